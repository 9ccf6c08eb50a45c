"""Finds which parameter of a solution stands for which one of the problem, where their names differ.

What has the problem's name is that one. Of the others those stand for each other that are alone with their shape and
with what they are made of (ones, zeros, or random numbers). Where several are equal in both, and as many on either
side, they are taken in their order: KernelBench sets one seed before each constructor, so weights are only equal for it
where both make them in the same order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fuzz.judge.problem.description import NotComparable

FILLS = ("zeros", "ones")
"""What a parameter may be made of that distinguishes it from others of its shape."""


@dataclass(frozen=True)
class Weight:
    """A parameter or a buffer: its name, its shape, and its fill, one of FILLS or empty for any values."""

    name: str
    shape: tuple[int, ...]
    fill: str = ""
    is_parameter: bool = True


def match_weights(problem: Sequence[Weight], solution: Sequence[Weight]) -> dict[str, str]:
    """The problem's name -> the solution's name, for all weights of the problem.

    Raises NotComparable where one is left. A solution may have buffers of its own, but no parameters.
    """
    own = {one.name: one for one in solution}
    found = {one.name: one.name for one in problem if one.name in own}
    for name in found:
        check_shape(name, next(one for one in problem if one.name == name), own[name])
    wanted = [one for one in problem if one.name not in found]
    given = [one for one in solution if one.name not in found]
    for properties in ("shape and fill", "shape"):
        groups = group(wanted, properties), group(given, properties)
        for key, ones in groups[0].items():
            others = groups[1].get(key, [])
            if len(ones) == len(others):
                found |= {one.name: other.name for one, other in zip(ones, others, strict=True)}
        taken = set(found.values())
        wanted = [one for one in wanted if one.name not in found]
        given = [one for one in given if one.name not in taken]
    if wanted:
        raise NotComparable(f"the problem's {wanted[0].name} has no counterpart in the solution's ModelNew")
    if extra := [one.name for one in given if one.is_parameter]:
        raise NotComparable(f"the solution's {extra[0]} has no counterpart in the problem's Model")
    return found


def check_shape(name: str, wanted: Weight, given: Weight) -> None:
    if wanted.shape != given.shape:
        raise NotComparable(f"{name} has shape {given.shape}, and in the problem {wanted.shape}")


def group(weights: Iterable[Weight], properties: str) -> Mapping[Hashable, list[Weight]]:
    """Weights that have the same shape, and the same fill if asked for, parameters apart from buffers."""
    found: dict[Hashable, list[Weight]] = defaultdict(list)
    for one in weights:
        found[one.is_parameter, one.shape, one.fill if properties == "shape and fill" else ""].append(one)
    return found


def describe_renamed(names: Mapping[str, str]) -> str:
    """Which weights stand for which, where their names differ; empty where none does."""
    renamed = [f"{other} for {name}" for name, other in names.items() if name != other]
    return f"weights by shape and order: {', '.join(renamed)}" if renamed else ""
