"""Kernels of operators that libraries register for CUDA, in the pretence of a GPU."""

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count

import pytest
import torch

from fuzz.backends import cpu
from fuzz.backends.cpu.runtime.activation import DRIVER
from fuzz.backends.triton_host.identity import pretence
from fuzz.backends.triton_host.pretence.devices import PACKAGE
from fuzz.backends.triton_host.pretence.operators import replaceable

GPU = torch.device("cuda", 0)
NUMBERS = count()


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    made = torch.library.Library(f"fuzz_test_{next(NUMBERS)}", "DEF")
    made.define("double(Tensor x) -> Tensor")
    yield made
    made._destroy()


@pytest.fixture
def aten() -> Iterator[torch.library.Library]:
    made = torch.library.Library("aten", "IMPL")
    yield made
    made._destroy()


def operator(library: torch.library.Library):
    return getattr(torch.ops, library.ns).double


def double(x: torch.Tensor) -> torch.Tensor:
    """On a GPU only."""
    assert x.device == torch.zeros(1, device="cuda").device == GPU
    return 2 * x


@pytest.mark.parametrize("key", ["CUDA", "CompositeExplicitAutograd"])
def test_a_new_operator_runs_on_the_gpu(library, key):
    with cpu.active(), pretence(DRIVER):
        library.impl("double", double, key)
        assert operator(library)(torch.ones(2, device="cuda")).tolist() == [2, 2]


@pytest.mark.parametrize("kinds", [None, "cuda"])
def test_a_custom_operator_runs_on_the_gpu(kinds):
    with cpu.active(), pretence(DRIVER):
        name = f"fuzz_test_{next(NUMBERS)}::double"
        custom = torch.library.custom_op(name, double, mutates_args=(), device_types=kinds)
        assert custom(torch.ones(2, device="cuda")).tolist() == [2, 2]


def test_a_new_operator_has_no_kernel_afterwards(library):
    with cpu.active(), pretence(DRIVER):
        library.impl("double", double, "CUDA")
    with pytest.raises(NotImplementedError, match="Could not run"):
        operator(library)(torch.ones(2))


def test_a_gpu_takes_its_own_kernel_where_there_is_one_for_the_cpu(library):
    with cpu.active(), pretence(DRIVER), replaceable():
        library.impl("double", lambda x: x, "CPU")
        library.impl("double", double, "CUDA")
        assert operator(library)(torch.ones(2, device="cuda")).tolist() == [2, 2]
    assert operator(library)(torch.ones(2)).tolist() == [1, 1]


def test_operators_of_the_cpu_are_replaced_in_a_program_of_its_own(aten, library):
    x = torch.zeros(2)
    with cpu.active(), pretence(DRIVER), replaceable():
        aten.impl("cosh", lambda x: x - 7, "CUDA")
        assert torch.cosh(x).tolist() == [-7, -7]
        caller = {"__name__": "fuzz.backends.cpu.runtime.launcher", "torch": torch, "x": x}
        assert eval("torch.cosh(x).tolist()", caller) == [1, 1]
    assert torch.cosh(x).tolist() == [1, 1]


def test_operators_of_the_cpu_stay_until_a_library_replaces_them_and_afterwards():
    with cpu.active(), pretence(DRIVER), replaceable():
        aten = torch.library.Library("aten", "IMPL")
        aten.impl("cosh", lambda x: x - 7, "CUDA")
        aten._destroy()
        assert torch.cosh(torch.zeros(2)).tolist() == [1, 1]


def refuse(*operands: object, **_: object) -> torch.Tensor:
    raise AssertionError(f"a kernel of the GPU is called for {operands}")


@pytest.mark.parametrize("operands", [(5.5, 2.0), (5, 2), (5, 2.0), (True, 2)])
def test_numbers_alone_are_on_the_cpu(aten, operands):
    right = torch.div(*operands, rounding_mode="trunc")
    with cpu.active(), pretence(DRIVER), replaceable():
        aten.impl("div.Tensor_mode", refuse, "CUDA")
        quotient = torch.div(*operands, rounding_mode="trunc")
        assert (quotient.item(), quotient.dtype) == (right.item(), right.dtype)
        with pytest.raises(AssertionError, match="a kernel of the GPU"):
            torch.div(torch.tensor(operands[0], device="cuda"), operands[1], rounding_mode="trunc")


def test_this_package_divides_tensors_by_numbers(aten):
    caller = {"__name__": "fuzz.backends.cpu.runtime.launcher", "torch": torch, "x": torch.tensor(5.5).half()}
    with cpu.active(), pretence(DRIVER), replaceable():
        aten.impl("div.Tensor_mode", refuse, "CUDA")
        quotient = eval("torch.div(x, 2.0, rounding_mode='trunc')", caller)
        assert (quotient.item(), quotient.dtype) == (2, torch.float16)


def attend(query, key, value, *_, scale):
    """`aten::_flash_attention_forward` of tensors [batch, length, heads, width]."""
    attend.calls += 1
    scores = scale * torch.einsum("bqhd,bkhd->bhqk", query.double(), key.double())
    values = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value.double()).to(query.dtype)
    nothing = torch.zeros(0, dtype=torch.int64)
    return values, scores.logsumexp(-1).float(), nothing, nothing, values.new_zeros(0)


@pytest.mark.parametrize("width", [16, 12])
def test_flash_attention_is_that_of_a_library(aten, width):
    attention = torch.nn.functional.scaled_dot_product_attention
    query, key = torch.ones(2, 3, 8, width).half(), torch.zeros(2, 3, 4, width).half()
    value = torch.arange(key.numel()).remainder(16).view_as(key).half().requires_grad_()
    attend.calls = 0
    with cpu.active(), pretence(DRIVER), replaceable():
        aten.impl("_flash_attention_forward", attend, "CUDA")
        values = attention(query, key, value)
        assert attend.calls == 1
        assert torch.equal(values, value.mean(2, keepdim=True).expand_as(query))
        values.sum().backward()
        assert torch.equal(value.grad, torch.full_like(value, 8 / 4))

        attention(query.float(), key.float(), value.float())
        attention(query, key, value, attn_mask=torch.ones(8, 4, dtype=torch.bool))
        with cpu.knobs.set(capability=(7, 5)):
            attention(query, key, value)
        operands = {"query": query, "key": key, "value": value}
        eval("attention(query, key, value)", {"__name__": PACKAGE, "attention": attention, **operands})
    attention(query, key, value)
    assert attend.calls == 1


def test_references_keep_the_operators_of_the_cpu(aten):
    with cpu.active(), pretence(DRIVER):
        with pytest.warns(UserWarning, match="aten operators get for CUDA are called only in a program of its own"):
            aten.impl("cosh", lambda x: x - 7, "CUDA")
        assert torch.cosh(torch.zeros(2)).tolist() == [1, 1]


def test_a_program_of_its_own_has_the_kernels_of_its_libraries(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "library = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('cosh', lambda x: x - 7, 'CUDA')\n"
        "print(torch.cosh(torch.zeros(2)).tolist())\n"
    )
    command = [sys.executable, "-m", "fuzz.backends.cpu", str(script)]
    environment = {**os.environ, "FUZZ_CPU_IDENTITY": "cuda"}
    assert subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True).stdout == "[-7.0, -7.0]\n"
