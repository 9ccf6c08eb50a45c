"""The pretence that CPU tensors are on a GPU."""

from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq, is_cuda

from fuzz.backends import cpu
from fuzz.backends.cpu.runtime.activation import DRIVER
from fuzz.backends.triton_host.identity import pretence


@pytest.fixture(autouse=True)
def pretended() -> Iterator[None]:
    with cpu.active(), pretence(DRIVER):
        yield


@triton.jit
def double(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def launch(x: torch.Tensor) -> torch.Tensor:
    """As published launchers do."""
    assert x.is_cuda and x.device.type == "cuda"
    with torch.cuda.device(x.device.index):
        out = torch.empty(x.shape, device=x.device)
        double[(1,)](x, out, x.numel(), B=8)
    return out


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, device="cuda"),
        lambda: torch.ones(3).to("cuda:0"),
        lambda: torch.ones(3).to(device=torch.device("cuda")),
        lambda: torch.tensor([1.0, 1, 1], device=torch.device("cuda", 0), pin_memory=True),
        lambda: torch.nn.Linear(3, 1, device="cuda").weight.data[0].fill_(1),
        lambda: torch.ones(3).cuda(),
    ],
)
def test_tensors_of_a_gpu_are_made_and_taken(make):
    assert launch(make()).tolist() == [2, 2, 2]


def test_devices_are_those_of_a_gpu():
    x = torch.ones(1)
    assert (x.device, x.get_device(), x.data.device.index) == (torch.device("cuda:0"), 0, 0)
    assert torch.nn.Parameter(x).device.type == "cuda"
    assert torch.empty(1, device="meta").device.type == "meta"
    assert torch.version.cuda
    assert triton.runtime.driver.active.get_active_torch_device() == x.device
    assert triton.runtime.driver.active.get_current_target().backend == "cuda"
    with torch.device("cuda"):
        assert torch.zeros(2).device == x.device


@triton.jit
def what_it_runs_on(out):
    tl.store(out, is_cuda())
    tl.store(out + 1, cuda_capability_geq(9, 0))
    tl.store(out + 2, cuda_capability_geq(10, 0))


def ask_kernel(capability: tuple[int, int]) -> list[int]:
    out = torch.zeros(3, dtype=torch.int32)
    with cpu.knobs.set(capability=capability):
        what_it_runs_on[(1,)](out)
    return out.tolist()


def test_kernels_that_ask_for_their_target_are_compiled_for_each():
    for capability, seen in (((8, 0), [1, 0, 0]), ((10, 0), [1, 1, 1]), ((9, 0), [1, 1, 0]), ((8, 0), [1, 0, 0])):
        assert ask_kernel(capability) == seen


def test_generators_of_any_device():
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert torch.rand(2, generator=generator, device="cuda").shape == (2,)
    assert isinstance(torch.default_generator, torch.Generator)


def test_this_package_and_others_afterwards_see_the_real_device():
    from fuzz.backends.cpu.runtime.launcher import span

    x = torch.ones(2)
    assert span(x) == (x.data_ptr(), 8)
    with cpu.active():
        assert x.device.type == "cuda"


def test_unknown_identities_are_refused():
    with pytest.raises(ValueError, match="identity is one of cpu, cuda"):
        cpu.knobs.identity = "hip"
