"""Makes cases of the seeds that a target's author wrote down, which every run tries before it draws any."""

from __future__ import annotations

from collections.abc import Mapping

from fuzz.model.case import Case
from fuzz.target.inputs import make_call
from fuzz.target.legal import make_legal
from fuzz.target.spec import Target


def seed_cases(target: Target) -> tuple[Case, ...]:
    """The target's seeds as cases of one call, or of several. TargetError for one that does not fit the declaration."""
    return tuple(_case(target, name) for name in target.seeds)


def _case(target: Target, name: str) -> Case:
    """A seed: sizes, options, and the numbers of tensors; what it leaves out is the least size, the default, or 1."""
    seed, where = target.seeds[name], f"target {target.name!r}: seed {name!r}"
    calls = (seed,) if isinstance(seed, Mapping) else tuple(seed)
    case = Case(target.name, tuple(make_call(target, call, where, strict=False) for call in calls))
    return make_legal(case, target)
