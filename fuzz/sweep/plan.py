"""SweepPlan: which argument of which elementwise target is swept, what the others hold, and the words of every part.

A target is elementwise where it promises that rows do not depend on their batch, and a row is one element: every
tensor has the batch as its only dim. So no declaration of its own is needed, and the invariance oracle examines it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fuzz.errors import UsageError
from fuzz.model.case import Argument, Call, Case, Scalar
from fuzz.model.dtypes import Bits, DType, neighbours, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import Exact
from fuzz.sweep.counts import BOUNDS
from fuzz.target.indices import IndexArgument
from fuzz.target.spec import OptionArgument, Target

SWEPT = ("bfloat16", "float16", "float32")
PART = 1 << 16
"""Elements of a part: what is computed at once."""
SAMPLE = 10_000_000
"""Values, or pairs, of a stratified sweep where none is told."""
SIXTEEN = 16
LARGE = 4
"""Requests of a large sweep on a GPU, a quarter of all values each."""


@dataclass(frozen=True)
class SweepPlan:
    """What to sweep. `text` and `target` name the target; `swept` holds one argument, or the two of a pair.

    `fixed` are the words of the other tensors, each with its dtype. `count` values are sampled, every sign and
    exponent evenly; 0 stands for all there are.
    """

    text: str
    target: str
    planted: str | None
    backend: str
    batch: str
    dtype: str
    swept: tuple[str, ...]
    order: tuple[str, ...]
    fixed: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    options: Mapping[str, Scalar] = field(default_factory=dict)
    count: int = 0
    output: str = ""
    edges: tuple[int, ...] = ()

    @property
    def kind(self) -> DType:
        return named_dtype(self.dtype)

    @property
    def pairs(self) -> bool:
        return len(self.swept) == 2

    @property
    def exhaustive(self) -> bool:
        return not self.count

    @property
    def parts(self) -> int:
        """Parts that there are, numbered from 0 in the order of the first argument's values."""
        values = 1 << self.kind.bits
        if self.exhaustive:
            return values if self.pairs else max(1, values // PART)
        return self._strata if not self.pairs else -(-self._firsts.size // max(1, PART // self._per_first))

    @property
    def large(self) -> bool:
        """Whether a GPU computes it by parts of its own."""
        return self.exhaustive and self.backend == "cuda" and self.kind.bits * len(self.swept) > SIXTEEN

    @property
    def requests(self) -> int:
        """What a worker is asked for one after another."""
        return LARGE if self.large else self.parts

    def words(self, part: int) -> tuple[Bits, ...]:
        """The words of each swept argument in one part, by the first one's value, NaN at both ends."""
        if self.pairs:
            return self._pairs(part)
        if self.exhaustive:
            size = min(PART, 1 << self.kind.bits)
            return (in_order(np.arange(part * size, (part + 1) * size, dtype=np.uint64), self.kind),)
        return (sampled(part, self._each, self.kind, self.edges),)

    @property
    def _strata(self) -> int:
        """One for each sign and exponent."""
        return 2 << self.kind.exponent_bits

    @property
    def _each(self) -> int:
        return max(1, -(-self.count // self._strata))

    def _pairs(self, part: int) -> tuple[Bits, ...]:
        if self.exhaustive:
            first = in_order(np.array([part], dtype=np.uint64), self.kind)
            second = in_order(np.arange(1 << self.kind.bits, dtype=np.uint64), self.kind)
            return np.repeat(first, second.size), second
        rows = max(1, PART // self._per_first)
        firsts = self._firsts[part * rows : (part + 1) * rows]
        each = max(1, self._per_first // self._strata)
        seconds = [everywhere(each, self.kind, int(first) + 1) for first in firsts]
        return np.repeat(firsts, seconds[0].size), np.concatenate(seconds)

    @property
    def _firsts(self) -> Bits:
        each = max(1, math.isqrt(self.count) // self._strata)
        return everywhere(each, self.kind, 0)

    @property
    def _per_first(self) -> int:
        """Second values of each first one: as many a stratum as fit, at least one."""
        return max(1, self.count // max(1, self._firsts.size) // self._strata) * self._strata

    def case(self, words: Mapping[str, tuple[int, ...]]) -> Case:
        """The ordinary case of these words of the swept arguments."""
        size = len(next(iter(words.values())))
        arguments = {}
        for name in self.order:
            if name in words:
                arguments[name] = Argument((self.batch,), self.dtype, Exact(words[name], self.dtype))
            else:
                dtype, word = self.fixed[name]
                arguments[name] = Argument((self.batch,), dtype, Exact((word,) * size, dtype))
        return Case(self.target, (Call({self.batch: size}, arguments, dict(self.options)),))


def in_order(places: Bits, kind: DType) -> Bits:
    """The words at these places of the order of values: negative NaN, -inf, .. -0, 0, .. inf, NaN."""
    half, top = 1 << (kind.bits - 1), (1 << kind.bits) - 1
    low = places < half
    return np.where(low, top - places, places - np.uint64(half)).astype(kind.unsigned)


def drawn(stratum: int, each: int, kind: DType, seed: int) -> Bits:
    """`each` words of one sign and exponent, in the order of values, one in each part of it; the same for a seed."""
    size = 1 << kind.mantissa
    noise = np.random.Generator(np.random.Philox(key=[seed, stratum])).random(min(each, size))
    fractions = ((np.arange(noise.size) + noise) * (size / noise.size)).astype(np.uint64)
    places = np.minimum(fractions, size - 1) + np.uint64(stratum) * np.uint64(size)
    return in_order(places, kind)


def everywhere(each: int, kind: DType, seed: int) -> Bits:
    """`each` words of every sign and exponent, in the order of values."""
    size, strata = 1 << kind.mantissa, 2 << kind.exponent_bits
    each = min(each, size)
    noise = np.random.Generator(np.random.Philox(key=[seed, strata])).random((strata, each))
    fractions = ((np.arange(each) + noise) * (size / each)).astype(np.uint64)
    starts = np.arange(strata, dtype=np.uint64)[:, None] * np.uint64(size)
    return in_order((np.minimum(fractions, size - 1) + starts).reshape(-1), kind)


def sampled(stratum: int, each: int, kind: DType, edges: tuple[int, ...]) -> Bits:
    """The same, with the ends of the stratum and its share of `edges`, which are places."""
    size = 1 << kind.mantissa
    start = stratum * size
    inside = [place for place in edges if start <= place < start + size]
    ends = np.array([start, start + 1, start + size - 2, start + size - 1, *inside], dtype=np.uint64)
    words = np.concatenate([drawn(stratum, each, kind, 0), in_order(ends, kind)])
    return in_order(np.unique(place_of(words, kind)), kind)


def place_of(words: Bits, kind: DType) -> Bits:
    """The places of words in the order of values: the inverse of `in_order`."""
    half, top = np.uint64(1 << (kind.bits - 1)), np.uint64((1 << kind.bits) - 1)
    wide = words.astype(np.uint64)
    return np.where(wide >= half, top - wide, wide + half)


def make_plan(
    target: Target,
    text: str,
    *,
    dtype: str,
    backend: str,
    planted: str | None = None,
    swept: str = "",
    settings: Mapping[str, str] | None = None,
    pairs: bool = False,
    count: int | None = None,
    output: str = "",
) -> SweepPlan:
    """The plan of what a person asked for. UsageError says what does not fit, in one line."""
    batch = elementwise_dim(target)
    if dtype not in SWEPT:
        raise UsageError(f"--dtype {dtype}: a sweep takes {', '.join(SWEPT)}")
    chosen = swept_arguments(target, swept, pairs)
    for name in chosen:
        if dtype not in target.tensors[name].dtypes:
            known = ", ".join(target.tensors[name].dtypes)
            raise UsageError(f"--dtype {dtype}: {name} of {target.name} is one of {known}")
    fixed, options = settled(target, chosen, dtype, dict(settings or {}))
    bits = named_dtype(dtype).bits * len(chosen)
    if count is None:
        count = SAMPLE if bits > SIXTEEN and backend != "cuda" else 0
    if count < 0 or (not count and bits > 32):
        raise UsageError(f"--stratified {count}: a number of values, or 0 for all of them where they are 2^32 or less")
    return SweepPlan(
        text, target.name, planted, backend, batch, dtype, chosen, tuple(target.tensors), fixed, options,
        count if bits > SIXTEEN else 0, output, edges_of(target, named_dtype(dtype)),
    )  # fmt: skip


def elementwise_dim(target: Target) -> str:
    """The dim of an elementwise target; UsageError says why a target is none."""
    batches = {target.batch} if target.batch else set(target.rows.values())
    shapes = {argument.shape for argument in target.tensors.values()}
    reasons = {
        "it has no reference": target.reference is None,
        "its gradients are computed by autograd": target.differentiable,
        "it does not promise that rows do not depend on their batch": len(batches) != 1,
        "a row of its tensors is more than one element": shapes != {(batch,) for batch in batches},
        "it takes indices": any(isinstance(argument, IndexArgument) for argument in target.tensors.values()),
    }
    for reason, holds in reasons.items():
        if holds:
            raise UsageError(f"{target.name} is not elementwise, so there is nothing to sweep: {reason}")
    (batch,) = batches
    assert batch is not None
    return batch


def swept_arguments(target: Target, given: str, pairs: bool) -> tuple[str, ...]:
    """One argument, or two for pairs: those asked for, else those in which the target is not linear come first."""
    floats = [name for name, argument in target.tensors.items() if set(argument.dtypes) & set(SWEPT)]
    order = sorted(floats, key=lambda name: name in target.linear)
    wanted = [name.strip() for name in given.split(",")] if given else order[: 1 + pairs]
    for name in wanted:
        if name not in floats:
            raise UsageError(f"{target.name} has no floating argument {name!r}; there are {', '.join(floats)}")
    if len(set(wanted)) != 1 + pairs:
        need = "two arguments, such as --argument x,dy" if pairs else "one argument; two need --pairs"
        raise UsageError(f"a sweep of {target.name} takes {need}; it has {', '.join(floats)}")
    return tuple(wanted)


def settled(
    target: Target, swept: tuple[str, ...], dtype: str, given: dict[str, str]
) -> tuple[dict[str, tuple[str, int]], dict[str, Scalar]]:
    """What the tensors that are not swept hold, as (dtype, word), 1 by default; and the options."""
    fixed: dict[str, tuple[str, int]] = {}
    for name, argument in target.tensors.items():
        if name not in swept:
            kind = named_dtype(dtype if dtype in argument.dtypes else argument.dtypes[0])
            fixed[name] = (kind.name, int(to_bits(number(name, given.pop(name, "1")), kind)))
    options = {
        name: chosen(name, option, given.pop(name)) if name in given else option.choices[0]
        for name, option in target.options.items()
    }
    if given:
        known = ", ".join([*fixed, *target.options]) or "nothing"
        raise UsageError(f"--set {next(iter(given))}: no such argument to set; there is {known}")
    return fixed, options


def number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"--set {name}={text}: not a number") from None
    if not math.isfinite(value):
        raise UsageError(f"--set {name}={text}: must be finite")
    return value


def chosen(name: str, option: OptionArgument, text: str) -> Scalar:
    """The choice of an option that this text spells, or another value of its kind."""
    for choice in option.choices:
        if str(choice) == text:
            return choice
    if type(option.choices[0]) is float:
        return number(name, text)
    raise UsageError(f"--set {name}={text}: not one of {', '.join(map(str, option.choices))}")


def edges_of(target: Target, kind: DType) -> tuple[int, ...]:
    """Places beside the ends of the regions and beside the target's constants."""
    values = [*BOUNDS, *target.constants, *(-value for value in target.constants)]
    words = [word for value in values for word in neighbours(int(to_bits(value, kind)), 4, kind)]
    return tuple(sorted({int(place) for place in place_of(np.array(words, dtype=kind.unsigned), kind)}))
