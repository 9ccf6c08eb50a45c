"""What is to be run: for each target its releases, in runs of neighbours with the same code, and the pairs of these."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

Pair = tuple[str, str]
"""A release and the next newer one."""


@dataclass(frozen=True)
class Period:
    """Neighbouring releases, the oldest first, in which a target runs the same code of its library."""

    code: str
    releases: tuple[str, ...]

    @property
    def first(self) -> str:
        return self.releases[0]

    @property
    def last(self) -> str:
        return self.releases[-1]


def periods(releases: Sequence[str], codes: Mapping[str, str]) -> list[Period]:
    """The periods of a target whose code each release has; those that lack the target have none."""
    present = [release for release in releases if release in codes]
    return [Period(code, tuple(group)) for code, group in groupby(present, key=lambda release: codes[release])]


def neighbours(releases: Sequence[str]) -> list[Pair]:
    """All pairs of a release and the next."""
    return list(zip(releases, releases[1:], strict=False))


def draw_third(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """A third of the pairs, rounded up, in their order."""
    drawn = random.Random(seed).sample(range(len(pairs)), -(-len(pairs) // 3))
    return [pairs[place] for place in sorted(drawn)]


def steps(target_periods: Sequence[Period], chosen: Collection[Pair]) -> list[tuple[Period, Period]]:
    """Neighbouring periods of a target where the release that begins the newer one is the newer of a chosen pair."""
    newer = {pair[1] for pair in chosen}
    return [(old, new) for old, new in zip(target_periods, target_periods[1:], strict=False) if new.first in newer]


def chains(target_periods: Sequence[Period], chosen: Collection[Pair]) -> list[list[tuple[Period, Period]]]:
    """For each step all steps from it on that begin where the one before ends, the newest step first."""
    found = list[list[tuple[Period, Period]]]()
    for step in reversed(steps(target_periods, chosen)):
        found.append([step, *(found[-1] if found and found[-1][0][0] == step[1] else [])])
    return found


def searched(target_periods: Sequence[Period], chosen: Collection[Pair]) -> list[Period]:
    """The periods on which a target is to be searched: the older one of each step."""
    return [old for old, _ in steps(target_periods, chosen)]
