"""Inputs that matter, and comparison bit by bit."""

import numpy as np
import torch
import triton

TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
BITS = {
    torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64,
}  # fmt: skip
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.0, 3.0, -7.0, 1e-3, 65504.0, 1e30, 3e38, 1e300, 1e-6, 1e-40]
SPECIAL += [-1e-45, 5e-324, float("inf"), float("-inf"), float("nan"), 0.1, -0.3, 1234.5678]


def bit_patterns(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Random bits seen as floats or integers: every exponent, NaN, infinities and subnormals."""
    words = np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)
    raw = torch.from_numpy(words.view(np.int64).copy())
    if dtype.is_floating_point:
        return raw.to(BITS[dtype]).view(dtype)
    return raw.to(dtype) if dtype != torch.bool else (raw & 1).bool()


def floats(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Special values, values near one, and random bits."""
    generator = torch.Generator().manual_seed(seed)
    special = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    special = special[torch.randint(len(SPECIAL), (count // 4,), generator=generator)]
    near = torch.randn(count // 4, generator=generator, dtype=torch.float64).to(dtype)
    mixed = torch.cat([special, near, bit_patterns(dtype, count - 2 * (count // 4), seed)])
    return mixed[torch.randperm(count, generator=generator)].contiguous()


def integers(dtype: torch.dtype, count: int, seed: int = 0) -> torch.Tensor:
    """Extremes, small values and random bits."""
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    edges = torch.tensor([info.min, info.min + 1, -2, -1, 0, 1, 2, 3, 7, 31, 32, 33, 63, 64, info.max - 1, info.max])
    edges = edges.to(dtype)[torch.randint(len(edges), (count // 2,), generator=generator)]
    mixed = torch.cat([edges, bit_patterns(dtype, count - count // 2, seed)])
    return mixed[torch.randperm(count, generator=generator)].contiguous()


def assert_same(got: torch.Tensor, want: torch.Tensor, *inputs: torch.Tensor) -> None:
    """Equal bits; any NaN equals any NaN."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.is_floating_point:
        bits = BITS[got.dtype]
        same = (got.view(bits) == want.view(bits)) | (got.isnan() & want.isnan())
    else:
        same = got == want
    if not bool(same.all()):
        where = (~same).nonzero()[0].tolist()
        place = tuple(where)
        shown = [tensor[place] for tensor in inputs if tensor.shape == got.shape]
        raise AssertionError(f"{(~same).sum()} differ, first at {place}: {got[place]} not {want[place]}, from {shown}")
