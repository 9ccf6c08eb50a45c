"""Generates the bits of recipes as torch tensors on any device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np
import torch

from fuzz.model.dtypes import Bits, DType, dtype
from fuzz.model.recipes.counter_rng import LANES, MX3, SHIFTS, Array, signed
from fuzz.model.recipes.explicit import Exact, Overrides, Patched, Values, bits_of, check_overrides
from fuzz.model.recipes.generation import generate, generate_replicas
from fuzz.model.recipes.namespace import Namespace
from fuzz.model.recipes.recipe import Recipe

_CARRIERS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_NUMPY_CARRIERS = {8: np.uint8, 16: np.int16, 32: np.int32, 64: np.int64}
_FEW = 1 << 14
_BLOCKS = {"cpu": 1 << 16}
_MX3 = signed(MX3)
_MAGNITUDE = (1 << 63) - 1


class TorchNamespace(Namespace):
    """Recipes by torch on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.block = _BLOCKS.get(device.type, 1 << 24)

    def arange(self, start: int, stop: int) -> Array:
        return torch.arange(start, stop, dtype=torch.int64, device=self.device)

    def table(self, values: tuple[int, ...]) -> Array:
        return _table(values, self.device)

    def array(self, values: np.ndarray) -> Array:
        return torch.from_numpy(values).to(self.device, non_blocking=True)

    def lanes(self, count: int) -> Array:
        return _table(LANES, self.device)[:count].reshape(-1, 1, 1)

    def shr(self, x: Array, n: int) -> Array:
        return (x >> n) & (_MAGNITUDE >> (n - 1))

    def mix(self, x: Array) -> Array:
        for shift in SHIFTS[:3]:
            x ^= self.shr(x, shift)
            x *= _MX3
        x ^= self.shr(x, SHIFTS[3])
        return x

    def real(self, x: Array) -> Array:
        return x.to(torch.float64)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        return torch.where(condition, yes, no)

    def clip(self, x: Array, low: int, high: int) -> Array:
        return torch.clamp(x, low, high)

    def round(self, x: Array, d: DType) -> Array:
        bits = x.view(torch.int64)
        return bits if d.bits == 64 else _round(bits, d)

    def empty(self, rows: int, columns: int, d: DType) -> Array:
        return torch.empty((rows, columns), dtype=_CARRIERS[d.bits], device=self.device)


def _round(bits: Array, d: DType) -> Array:
    """Patterns in d of finite doubles given by their bits: nearest even, largest finite at most.

    In integers, because torch goes from double to half by way of float, which rounds twice, and may flush subnormals.
    """
    dropped = 52 - d.mantissa
    lowest = (1024 - d.bias) << 52  # the bits of the smallest normal value, as a double
    magnitude = bits & _MAGNITUDE
    shifted = magnitude - ((1023 - d.bias) << 52)
    normal = (shifted + ((shifted >> dropped) & 1) + ((1 << (dropped - 1)) - 1)) >> dropped
    # Adding 2^52 subnormal steps makes the double's own adder round to a whole number of steps, which is the pattern.
    anchor = d.smallest_subnormal * 2.0**52
    anchor_bits = (1023 - d.bias - d.mantissa + 53) << 52
    steps = (magnitude.view(torch.float64) + anchor).view(torch.int64) - anchor_bits
    patterns = torch.where(magnitude < lowest, steps, normal).clamp_(max=d.largest_bits)
    return patterns | ((bits >> 63) & d.sign_mask)


@lru_cache(maxsize=256)
def _table(values: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device)


@lru_cache(maxsize=16)
def namespace(device: str | torch.device = "cpu") -> TorchNamespace:
    """The namespace of a device, the same object each time."""
    return TorchNamespace(torch.device(device))


def tensor(values: Values, shape: tuple[int, ...], name: str, device: str | torch.device = "cpu") -> torch.Tensor:
    """A new contiguous tensor of dtype `name` on `device`, with exactly the bits that `bits_of` gives."""
    d = dtype(name)
    recipe = values.recipe if isinstance(values, Patched) else values
    if isinstance(recipe, Exact) or by_numpy(prod(shape), device):
        return from_bits(bits_of(values, shape, d), d, device)
    patterns: torch.Tensor = generate(recipe, shape, d, namespace(device))
    if isinstance(values, Patched):
        override_in_place(patterns, values.overrides, d)
    return patterns.view(getattr(torch, name))


def tensors(
    recipe: Recipe, seeds: Sequence[int], shape: tuple[int, ...], name: str, device: str | torch.device = "cpu"
) -> torch.Tensor:
    """A stack of tensors, of shape (len(seeds), *shape): slice r has the bits of this recipe with seed seeds[r]."""
    d = dtype(name)
    if by_numpy(len(seeds) * prod(shape), device):
        return from_bits(generate_replicas(recipe, seeds, shape, d), d, device)
    patterns: torch.Tensor = generate_replicas(recipe, seeds, shape, d, namespace(device))
    return patterns.view(getattr(torch, name))


def by_numpy(elements: int, device: str | torch.device) -> bool:
    """Whether numpy makes so many elements sooner: always for the CPU, and where launches would outweigh the work."""
    return elements <= _FEW or torch.device(device).type == "cpu"


def from_bits(patterns: Bits, d: DType, device: str | torch.device = "cpu") -> torch.Tensor:
    """A new tensor with the bits of numpy patterns."""
    carrier = np.array(patterns, dtype=d.unsigned, order="C").view(_NUMPY_CARRIERS[d.bits])
    return torch.from_numpy(carrier).to(device, non_blocking=True).view(getattr(torch, d.name))


def to_bits(values: torch.Tensor) -> Bits:
    """The bits of a tensor, any layout and device, as a new numpy array."""
    d = dtype(str(values.dtype).removeprefix("torch."))
    carrier = values.detach().contiguous().view(_CARRIERS[d.bits]).cpu()
    return np.array(carrier.numpy().view(d.unsigned))


def override_in_place(bits: torch.Tensor, overrides: Overrides, d: DType) -> None:
    """Puts these bits into a contiguous tensor of bits, by one transfer however many they are."""
    check_overrides(overrides, bits.numel(), d)
    if overrides:
        pairs = torch.tensor([(index, signed(pattern)) for index, pattern in overrides], dtype=torch.int64)
        indices, patterns = pairs.T.to(bits.device, non_blocking=True)
        bits.view(-1)[indices] = patterns.to(bits.dtype)
