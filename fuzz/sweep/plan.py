"""Plans a sweep: which argument of which elementwise target, what the others hold, and the bits of every part.

A target is elementwise where it promises that rows do not depend on their batch, and a row is one element: every
tensor has the batch as its only dim. So no declaration of its own is needed, and the invariance oracle examines it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fuzz.backends import BACKENDS
from fuzz.errors import UsageError
from fuzz.model.case import Argument, Call, Case, Scalar
from fuzz.model.dtypes import Bits, DType, decimal, from_bits, neighbours, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes import Exact
from fuzz.sweep.ranks import bits_at, count_strata, rank_of, sample_all_strata, sample_with_edges
from fuzz.sweep.sweep_counts import BOUNDS
from fuzz.target.arguments import OptionArgument
from fuzz.target.indices import IndexArgument
from fuzz.target.spec import Target

DTYPES = ("bfloat16", "float16", "float32")
PART = 1 << 16
"""Elements of a part: what is computed at once."""
SAMPLE = 10_000_000
"""Values, or pairs, of a stratified sweep where no number is given."""
SMALL = 16
"""Bits of the swept arguments up to which a sweep of all values is small."""
GPU_PARTS = 256
"""Parts that a GPU computes at once, of a sweep of all 2^32 values or pairs."""


@dataclass(frozen=True)
class SweepPlan:
    """What to sweep. `text` names the target; `swept` holds one argument, or the two of a pair.

    `base` is a call of one element that holds what is not swept. `count` values are sampled, every sign and exponent
    evenly; 0 stands for all there are. `edges` are ranks that a sample includes. So many parts as `together` are one
    request.
    """

    text: str
    target: str
    planted: str | None
    backend: str
    base: Call
    swept: tuple[str, ...]
    count: int = 0
    output: str = ""
    edges: tuple[int, ...] = ()
    together: int = 1

    @property
    def dtype(self) -> str:
        return self.base.arguments[self.swept[0]].dtype

    @property
    def kind(self) -> DType:
        return named_dtype(self.dtype)

    @property
    def fixed(self) -> dict[str, str]:
        """What the arguments that are not swept hold, and the options."""
        rest = {name: one for name, one in self.base.arguments.items() if name not in self.swept}
        tensors = {name: decimal(one.bits(self.base.dims)[0], named_dtype(one.dtype)) for name, one in rest.items()}
        return {**tensors, **{name: str(value) for name, value in self.base.options.items()}}

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
        return count_strata(self.kind) if not self.pairs else -(-self._first_values.size // self._rows)

    @property
    def large(self) -> bool:
        """Whether parts are too many for each of their values to be looked at by the members of the reference."""
        return self.together > 1

    @property
    def requests(self) -> int:
        """How many requests a worker gets, one after another."""
        return self.parts // self.together

    def part_of(self, request: int, pattern: int) -> int:
        """The part of a request in which a value of the first argument lies."""
        if not self.large:
            return request
        return int(rank_of(np.array(pattern), self.kind)) // (1 if self.pairs else PART)

    def bits(self, part: int) -> tuple[Bits, ...]:
        """The bits of each swept argument in one part, by the first one's value, NaN at both ends."""
        if self.pairs:
            return self._pair_bits(part)
        if self.exhaustive:
            size = min(PART, 1 << self.kind.bits)
            return (bits_at(np.arange(part * size, (part + 1) * size, dtype=np.uint64), self.kind),)
        each = max(1, -(-self.count // count_strata(self.kind)))
        return (sample_with_edges(part, each, self.kind, self.edges),)

    def _pair_bits(self, part: int) -> tuple[Bits, ...]:
        if self.exhaustive:
            first = bits_at(np.array([part], dtype=np.uint64), self.kind)
            second = bits_at(np.arange(1 << self.kind.bits, dtype=np.uint64), self.kind)
            return np.repeat(first, second.size), second
        rows = self._rows
        firsts = self._first_values[part * rows : (part + 1) * rows]
        each = self._second_count // count_strata(self.kind)
        seconds = [sample_all_strata(each, self.kind, int(first) + 1) for first in firsts]
        return np.repeat(firsts, seconds[0].size), np.concatenate(seconds)

    @property
    def _first_values(self) -> Bits:
        return sample_all_strata(max(1, math.isqrt(self.count) // count_strata(self.kind)), self.kind, 0)

    @property
    def _second_count(self) -> int:
        """Second values of each first one: as many a stratum as fit, at least one."""
        strata = count_strata(self.kind)
        return max(1, self.count // max(1, self._first_values.size) // strata) * strata

    @property
    def _rows(self) -> int:
        """First values of a part."""
        return max(1, PART // self._second_count)

    def case(self, bits: Mapping[str, tuple[int, ...]]) -> Case:
        """The ordinary case of these bits of the swept arguments."""
        size, arguments = len(next(iter(bits.values()))), {}
        for name, one in self.base.arguments.items():
            held = bits[name] if name in bits else (int(one.bits(self.base.dims)[0]),) * size
            arguments[name] = replace(one, values=Exact(held, one.dtype))
        return Case(self.target, (replace(self.base, dims=dict.fromkeys(self.base.dims, size), arguments=arguments),))


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
    if dtype not in DTYPES:
        raise UsageError(f"--dtype {dtype}: a sweep takes {', '.join(DTYPES)}")
    names = choose_arguments(target, swept, pairs)
    for name in names:
        if dtype not in target.tensors[name].dtypes:
            known = ", ".join(target.tensors[name].dtypes)
            raise UsageError(f"--dtype {dtype}: {name} of {target.name} is one of {known}")
    base = parse_settings(target, batch, names, dtype, dict(settings or {}))
    bits = named_dtype(dtype).bits * len(names)
    if count is None:
        count = SAMPLE if bits > SMALL and not BACKENDS[backend].is_accelerator else 0
    if count < 0 or (not count and bits > 32):
        raise UsageError(f"--stratified {count}: a number of values, or 0 for all of them where they are 2^32 or less")
    if count and bits <= SMALL:
        raise UsageError(f"--stratified {count}: all {1 << bits:,} values of {dtype} are computed; leave it out")
    large = bits > SMALL and not count and BACKENDS[backend].is_accelerator
    return SweepPlan(
        text, target.name, planted, backend, base, names, count, output, edge_ranks(target, named_dtype(dtype)),
        GPU_PARTS if large else 1,
    )  # fmt: skip


def elementwise_dim(target: Target) -> str:
    """The dim of an elementwise target; UsageError says why a target is none."""
    batch = only_batch_dim(target)
    reasons = {
        "it has no reference": target.reference is None,
        "its gradients are computed by autograd": target.differentiable,
        "it does not promise that rows do not depend on their batch": batch is None,
        "a row of its tensors is more than one element": {one.shape for one in target.tensors.values()} != {(batch,)},
        "it takes indices": takes_indices(target),
        "it takes a size that is not the number of its elements": bool(set(target.passed_sizes.values()) - {batch}),
    }
    for reason, holds in reasons.items():
        if holds:
            raise UsageError(f"{target.name} is not elementwise, so there is nothing to sweep: {reason}")
    assert batch is not None
    return batch


def only_batch_dim(target: Target) -> str | None:
    """The dim whose rows do not depend on each other in any output; None where there is none, or more than one."""
    batches = {target.batch} if target.batch else set(target.rows.values())
    return batches.pop() if len(batches) == 1 else None


def takes_indices(target: Target) -> bool:
    return any(isinstance(argument, IndexArgument) for argument in target.tensors.values())


def choose_arguments(target: Target, names: str, pairs: bool) -> tuple[str, ...]:
    """One argument, or two for pairs: those named, else those in which the target is not linear come first."""
    floats = [name for name, argument in target.tensors.items() if set(argument.dtypes) & set(DTYPES)]
    order = sorted(floats, key=lambda name: name in target.linear)
    chosen = [name.strip() for name in names.split(",")] if names else order[: 1 + pairs]
    for name in chosen:
        if name not in floats:
            raise UsageError(f"{target.name} has no floating argument {name!r}; there are {', '.join(floats)}")
    if len(set(chosen)) != 1 + pairs:
        need = "two arguments, such as --argument x,dy" if pairs else "one argument; two need --pairs"
        raise UsageError(f"a sweep of {target.name} takes {need}; it has {', '.join(floats)}")
    return tuple(chosen)


def parse_settings(target: Target, batch: str, swept: tuple[str, ...], dtype: str, settings: dict[str, str]) -> Call:
    """A call of one element with what the tensors that are not swept hold, 1 by default, and the options."""
    arguments, fixed = {}, [name for name in target.tensors if name not in swept]
    for name, argument in target.tensors.items():
        kind = named_dtype(dtype if dtype in argument.dtypes else argument.dtypes[0])
        word = parse_value(name, settings.pop(name, "1"), kind) if name in fixed else 0
        arguments[name] = Argument((batch,), kind.name, Exact((word,), kind.name))
    options = parse_options(target, settings)
    if settings:
        known = ", ".join([*fixed, *target.options]) or "nothing"
        raise UsageError(f"--set {next(iter(settings))}: no such argument to set; there is {known}")
    return Call({batch: 1}, arguments, options)


def parse_options(target: Target, settings: dict[str, str]) -> dict[str, Scalar]:
    """The target's options, each at its first choice where `settings` does not set it; those used are removed."""
    return {
        name: parse_option(name, option, settings.pop(name)) if name in settings else option.choices[0]
        for name, option in target.options.items()
    }


def parse_number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"--set {name}={text}: not a number") from None
    if not math.isfinite(value):
        raise UsageError(f"--set {name}={text}: must be finite")
    return value


def parse_value(name: str, text: str, kind: DType) -> int:
    """The bits of a number in a dtype. UsageError where it is not finite there."""
    word = int(to_bits(parse_number(name, text), kind))
    if kind.is_float and not math.isfinite(from_bits(np.array(word, dtype=kind.unsigned), kind)):
        raise UsageError(f"--set {name}={text}: must be finite in {kind.name}, of at most {kind.largest:g}")
    return word


def parse_option(name: str, option: OptionArgument, text: str) -> Scalar:
    """The choice of an option that this text spells, or another value of its type."""
    for choice in option.choices:
        if str(choice) == text:
            return choice
    if type(option.choices[0]) is float:
        return parse_number(name, text)
    raise UsageError(f"--set {name}={text}: not one of {', '.join(map(str, option.choices))}")


def edge_ranks(target: Target, kind: DType) -> tuple[int, ...]:
    """Ranks beside the ends of the regions and beside the target's constants."""
    values = [*BOUNDS, *target.constants, *(-value for value in target.constants)]
    bits = [pattern for value in values for pattern in neighbours(int(to_bits(value, kind)), 4, kind)]
    return tuple(sorted({int(rank) for rank in rank_of(np.array(bits, dtype=kind.unsigned), kind)}))
