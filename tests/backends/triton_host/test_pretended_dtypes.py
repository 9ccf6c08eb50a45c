"""Dtypes that PyTorch computes on a GPU alone, and those of autocast for a GPU, in the pretence of one."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from fuzz.backends import cpu
from fuzz.backends.cpu.runtime.activation import DRIVER
from fuzz.backends.triton_host.identity import pretence


@pytest.fixture(autouse=True)
def pretended() -> Iterator[None]:
    with cpu.active(), pretence(DRIVER):
        yield


def test_what_the_cpu_lacks_in_a_dtype_is_computed_in_a_wider_one():
    x = torch.tensor([5, 6, 5], dtype=torch.int32)
    counts = torch.histc(x, bins=4, min=4, max=7)
    assert (counts.dtype, counts.tolist()) == (torch.int32, [0, 2, 1, 0])
    assert x.histc(bins=4, min=4, max=7).tolist() == [0, 2, 1, 0]


def test_other_dtypes_stay():
    with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
        torch.histc(torch.tensor([True]))


def test_what_is_written_keeps_its_dtype():
    with pytest.raises(RuntimeError, match="not implemented for 'Int'"):
        torch.histc(torch.tensor([5], dtype=torch.int32), bins=4, out=torch.empty(4, dtype=torch.int32))


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: F.softmax(x, -1),
        lambda x: torch.log_softmax(x, -1),
        lambda x: x.exp(),
        lambda x: x**2,
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.mse_loss(x, x),
        lambda x: torch.sum(input=x, dim=0),
    ],
)
def test_autocast_for_a_gpu_computes_in_float32(compute):
    x = torch.ones(2, 4, dtype=torch.float16)
    with torch.autocast("cuda"):
        assert compute(x).dtype == torch.float32
        assert (x @ x.T).dtype == x.exp_().dtype == torch.float16
    assert F.softmax(x, -1).dtype == x.exp().dtype == torch.float16
