"""Defines a blocker: something that no case tried, where it stands, and what would reach it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Blocker:
    """Something never tried: its kind, its place, what it is, and what it needs to be tried.

    `lines` are those that cannot run without it. `elsewhere` are further lines at which the same was never tried.
    `reason` is why it is left out, by the target's author or by what the code is; empty where there is none.
    """

    kind: str
    file: str
    line: int
    what: str
    needs: str
    lines: frozenset[int] = frozenset()
    reason: str = ""
    elsewhere: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The text that the patterns of a target's `unreached=` are compared with."""
        return f"{self.kind} {self.what}"

    @property
    def behind(self) -> int:
        """How many lines cannot run without it."""
        return len(self.lines)


def merge(blockers: Iterable[Blocker]) -> Iterator[Blocker]:
    """The blockers, one for those that are the same but for their lines: at the first line, with what is behind all."""
    groups: dict[tuple[str, str, str], list[Blocker]] = {}
    for blocker in blockers:
        groups.setdefault((blocker.kind, blocker.file, blocker.what), []).append(blocker)
    for group in groups.values():
        first = min(group, key=lambda blocker: blocker.line)
        elsewhere = sorted({blocker.line for blocker in group} - {first.line})
        behind = frozenset[int]().union(*(blocker.lines for blocker in group))
        yield replace(first, lines=behind, elsewhere=tuple(elsewhere))


def add_reasons(blockers: Iterable[Blocker], unreached: Mapping[str, str]) -> list[Blocker]:
    """The blockers with the reasons that the target gives, those without one first, most lines behind first.

    A key of `unreached` is a pattern of fnmatch for the name of a blocker, or ``file:line``.
    """

    def with_reason(blocker: Blocker) -> Blocker:
        places = (blocker.name, f"{blocker.file}:{blocker.line}")
        reasons = (why for pattern, why in unreached.items() if any(fnmatchcase(text, pattern) for text in places))
        return replace(blocker, reason=next(reasons, blocker.reason))

    return sorted(
        map(with_reason, blockers), key=lambda each: (bool(each.reason), -each.behind, each.file, each.line, each.what)
    )
