"""Declares shapes of which there are several: ranks that vary, and dims that are 1 or full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from operator import index
from typing import SupportsIndex

from fuzz.errors import TargetError
from fuzz.escaping import clean_text
from fuzz.model.dims import Expression, OneOr, Size

Shape = tuple[str, ...]
Dim = Expression | OneOr | int
LONGEST_NAME, SHOWN = 200, 60
"""Characters of the longest name of an argument or a dim, and those of a longer one that a message shows."""
MAX_RANK = 6
"""Dims that a run of sizes may have."""


@dataclass(frozen=True)
class Sizes:
    """A run of `least` to `most` named dims, name0, name1, .., as many in each tensor of a call that has the run."""

    name: str
    least: int
    most: int
    dims: tuple[Size, ...]

    def names(self, rank: int) -> Shape:
        """The dims of the run where it has so many."""
        return tuple(dim.text for dim in self.dims[:rank])

    def rank_in(self, shape: Shape) -> int:
        """How many dims of the run a shape has."""
        return sum(text in self.names(self.most) for text in shape)


def sizes(name: str, least: int, most: int, *, low: int = 1, high: int = 1) -> Sizes:
    """From `least` to `most` dims of `low` to `high` each: the ``*`` of a shape ``(*, N)``. TargetError for none."""
    check_dim_name(name)
    least, most, low, high = (whole_number(number, f"sizes({name!r}, ..)") for number in (least, most, low, high))
    if not 0 <= least < most <= MAX_RANK:
        raise TargetError(f"sizes({name!r}, {least}, {most}): 0 <= least < most <= {MAX_RANK} dims")
    if not 0 <= low <= high:
        raise TargetError(f"sizes({name!r}): no size lies between {low} and {high}")
    return Sizes(name, least, most, tuple(Size(f"{name}{number}", low, high) for number in range(most)))


def check_dim_name(name: object) -> None:
    """TargetError for a dim's name that is no identifier, or that no entry can hold."""
    if not isinstance(name, str):
        raise TargetError(f'a dim begins with its name, as in size("N", 1, 64), and not with {name!r}')
    if not name.isidentifier() or len(name) > LONGEST_NAME:
        due = f"must be an identifier of at most {LONGEST_NAME} letters"
        raise TargetError(f"dim name {clean_text(name, SHOWN)!r} {due}")


def whole_number(value: object, where: str) -> int:
    """A limit of a dim; TargetError for what is no whole number."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        hint = f": write {value:.0f}" if isinstance(value, float) and value.is_integer() else ""
        raise TargetError(f"{where} takes whole numbers, and not {value!r}{hint}") from None


def check_dims(shape: Sequence[object]) -> None:
    """TargetError for what is no dim, such as all dims as a tuple."""
    for dim in shape:
        if isinstance(dim, Expression | OneOr | Sizes | SupportsIndex):
            continue
        if isinstance(dim, list | tuple):
            texts = (one.text if isinstance(one, Expression) else str(one) for one in dim)
            raise TargetError(f"the dims of a shape are written without brackets: tensor({', '.join(texts)})")
        due = 'a size, such as N = size("N", 1, 64), an expression of sizes or a whole number'
        raise TargetError(f"a dim of a shape is {due}, and not {dim!r}")


def spell_out(shape: Sequence[Dim | Sizes]) -> tuple[Shape, ...]:
    """The shapes that a declaration stands for, in order: all dims full, with the fewest dims of each run, first."""
    check_dims(shape)
    choices = [list(_choices(dim)) for dim in shape]
    runs = {dim.name: dim for dim in shape if isinstance(dim, Sizes)}
    found = []
    for ranks in product(*(range(run.least, run.most + 1) for run in runs.values())):
        chosen = dict(zip(runs, ranks, strict=True))
        parts = [
            [dim.names(chosen[dim.name])] if isinstance(dim, Sizes) else options
            for dim, options in zip(shape, choices, strict=True)
        ]
        found += [tuple(text for part in parts_of_shape for text in part) for parts_of_shape in product(*parts)]
    return tuple(dict.fromkeys(found))


def named_sizes(shape: Sequence[Dim | Sizes]) -> tuple[Size, ...]:
    """The dims that a declared shape names by themselves."""
    bases = (dim.base if isinstance(dim, OneOr) else dim for dim in shape)
    return tuple(
        size for dim in bases for size in (dim.dims if isinstance(dim, Sizes) else (dim,)) if isinstance(size, Size)
    )


def fitting(shapes: Sequence[Shape], runs: Sequence[Sizes], ranks: Mapping[str, int]) -> list[Shape]:
    """Those of an argument's shapes in which each of its runs has as many dims as in the call."""
    return [shape for shape in shapes if all(run.rank_in(shape) == ranks[run.name] for run in runs)]


def _choices(dim: Dim | Sizes) -> Iterator[Shape]:
    if isinstance(dim, Sizes):
        return
    base = dim.base if isinstance(dim, OneOr) else dim
    yield (base.text if isinstance(base, Expression) else str(index(base)),)
    if isinstance(dim, OneOr):
        yield ("1",)
