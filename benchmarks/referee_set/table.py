"""Writes what was found as tables: each rule in a line, each kind of mistake in a line, and what was missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

OURS = "fuzz judge"


@dataclass(frozen=True)
class Outcome:
    """Whether a rule accepts a solution: `folder` is ``right`` or ``wrong``, `name` ``problem__kind``."""

    rule: str
    folder: str
    name: str
    accepted: bool
    seconds: float
    reason: str = ""

    @property
    def kind(self) -> str:
        return self.name.partition("__")[2]


def page(outcomes: Sequence[Outcome]) -> str:
    """Both tables, and the solutions that `fuzz judge` says something false of."""
    return "\n\n".join(filter(None, [by_rule(outcomes), by_kind(outcomes), "\n".join(mistakes(outcomes))]))


def rules_of(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(one.rule for one in outcomes))


def by_rule(outcomes: Sequence[Outcome]) -> str:
    lines = ["| rule | caught | false alarms | median seconds | all seconds |", "|---|---|---|---|---|"]
    for rule in rules_of(outcomes):
        own = [one for one in outcomes if one.rule == rule]
        wrong, right = ([one for one in own if one.folder == folder] for folder in ("wrong", "right"))
        caught, alarms = (sum(not one.accepted for one in part) for part in (wrong, right))
        seconds = [one.seconds for one in own]
        times = f"{median(seconds):.1f} | {sum(seconds):.0f}"
        lines.append(f"| {rule} | {caught} of {len(wrong)} | {alarms} of {len(right)} | {times} |")
    return "\n".join(lines)


def by_kind(outcomes: Sequence[Outcome]) -> str:
    rules = rules_of(outcomes)
    lines = [f"| caught of each kind | {' | '.join(rules)} |", "|---" * (len(rules) + 1) + "|"]
    wrong = [one for one in outcomes if one.folder == "wrong"]
    for kind in sorted({one.kind for one in wrong}):
        counts = (sum(not one.accepted for one in wrong if (one.rule, one.kind) == (rule, kind)) for rule in rules)
        lines.append(f"| {kind.replace('_', ' ')} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def mistakes(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for one in outcomes:
        if one.rule == OURS and one.accepted == (one.folder == "wrong"):
            said = f"`{one.reason}`" if one.reason else "RIGHT"
            yield f"- `{one.folder}/{one.name}.py`: {said}"
