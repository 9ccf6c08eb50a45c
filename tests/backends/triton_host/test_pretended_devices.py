"""The devices of tensors in the pretence of a GPU, where torch calls back and where a number names the device."""

import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fuzz.backends import autodiff, cpu
from fuzz.backends.cpu.runtime.activation import DRIVER
from fuzz.backends.triton_host.identity import pretence

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def pretended() -> Iterator[None]:
    with cpu.active(), pretence(DRIVER):
        yield


class Recorded(torch.autograd.Function):
    """The identity, whose gradient allocates as published ones do and keeps the devices that it sees."""

    devices: list[torch.device] = []

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Recorded.devices += [gradient.device, torch.zeros(3, device="cuda").device]
        return gradient


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda y, x: y.backward(),
        lambda y, x: torch.autograd.backward([y]),
        lambda y, x: torch.autograd.grad(y, x),
        lambda y, x: autodiff.differentiate([y], [x], [torch.ones_like(y)]),
    ],
)
def test_gradients_are_computed_on_the_gpu(differentiate):
    Recorded.devices = []
    x = torch.ones(3, device="cuda", requires_grad=True)
    differentiate(Recorded.apply(x).sum(), x)
    assert Recorded.devices == [GPU, GPU]


def test_hooks_of_tensors_see_the_gpu():
    seen = []
    x = torch.ones(3, device="cuda", requires_grad=True)
    x.register_hook(lambda gradient: seen.append(gradient.device))
    (2 * x).sum().backward()
    assert seen == [GPU]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, device=0),
        lambda: torch.ones(3).to(0),
        lambda: torch.ones(3).to(0, torch.float64),
        lambda: torch.ones(3).to(device=0),
        lambda: torch.ones(3, device=torch.device(torch.cuda.current_device())),
        lambda: torch.nn.Linear(3, 3).to(0).weight,
        lambda: torch.nn.Linear(3, 3).to(device=0).weight,
        lambda: torch.ones(3, device=torch.accelerator.current_accelerator()),
    ],
)
def test_a_number_is_that_of_the_gpu(make):
    assert make().device == GPU


def test_devices_that_name_their_kind_are_those():
    assert torch.device(0) == torch.device("cuda", 0) == GPU
    assert torch.device("cpu", 0) == torch.device(index=0, type="cpu")


def test_the_accelerator_is_the_gpu():
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert (torch.accelerator.is_available(), torch.accelerator.device_count()) == (True, 1)
    torch.accelerator.set_device_index(0)
    torch.accelerator.synchronize()
    stream = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    assert stream == torch.cuda.current_stream()
    torch.accelerator.empty_cache()
    free, total = torch.accelerator.get_memory_info()
    assert 0 == torch.accelerator.memory_allocated() < free <= total


def test_a_compiled_function_finds_a_stream():
    """Dynamo asks the accelerator for it."""
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2, device="cuda")).tolist() == [2, 2]


def test_a_function_is_compiled_as_a_whole():
    """Dynamo traces what the pretence does with each function of torch."""
    compiled = torch.compile(lambda x: x.view(-1, 2).abs().add_(1), backend="eager", fullgraph=True)
    assert compiled(torch.ones(4, device="cuda")).tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: (x.device, x.device.index, x.get_device(), x.is_cuda),
        lambda x: (x + 1).device,
        lambda x: torch.zeros(2, device=x.device).to(x.device).device,
        lambda x: torch.zeros(2, device=0).device == torch.device("cuda", 0),
        lambda x: torch.nn.functional.gumbel_softmax(x).device,
    ],
)
def test_a_compiled_function_sees_the_gpu(ask):
    x = torch.ones(3, device="cuda")
    assert torch.compile(ask, backend="eager", fullgraph=True)(x) == ask(x)


def ask_device(x: torch.Tensor) -> torch.device:
    return x.device


def test_a_compiled_function_sees_the_cpu_where_the_pretence_is_off():
    compiled = torch.compile(ask_device, backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert compiled(x) == GPU
    with torch._C.DisableTorchFunction():
        assert compiled(x) == ask_device(x) == torch.device("cpu")


COMPILED = """
    import sys, torch
    from fuzz.backends import cpu
    cpu.knobs.identity = "cuda"
    ask = lambda x: (x.device.type, x.is_cuda)
    with cpu.active():
        assert "torch._dynamo" not in sys.modules
        compiled = torch.compile(ask, backend="eager", fullgraph=True)
        assert compiled(torch.ones(1)) == ("cuda", True)
    assert compiled(torch.ones(1)) == ("cpu", False)
    from torch._dynamo.variables import TensorVariable
    assert TensorVariable.method_attr_device.__module__.startswith("torch.")
"""


def test_dynamo_may_be_imported_later():
    subprocess.run([sys.executable, "-c", textwrap.dedent(COMPILED)], check=True, timeout=300)


def test_what_inductor_allocates_on_the_gpu_is_there():
    assert torch._C._dynamo.guards._empty_strided_cuda((4, 1), (1, 1), torch.float32).device == GPU


class Allocating(threading.Thread):
    def run(self):
        self.devices = [torch.ones(1).device, torch.zeros(1, device="cuda").device]


def test_threads_that_start_inside_are_inside():
    thread = Allocating()
    thread.start()
    thread.join()
    assert thread.devices == [GPU, GPU]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: torch.zeros(1, device=0).device).result() == GPU


def test_the_default_device_may_be_the_gpu():
    torch.set_default_device("cuda")
    try:
        assert torch.ones(2).device == torch.get_default_device() == GPU
    finally:
        torch.set_default_device(None)
