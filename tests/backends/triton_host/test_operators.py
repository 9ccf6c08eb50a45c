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
