"""Writes the judgements of several operations: a table for people, and one JSON value for those that ask for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fuzz.escaping import printable
from fuzz.judge.result.judgement import CHEAT, NOT_COMPARABLE, RIGHT, UNDECIDED, UNSUPPORTED, WRONG, Judgement
from fuzz.judge.result.report import judgement_json
from fuzz.judge.result.score import score

HEAD = ("operation", "verdict", "severity", "own rule", "cases", "seconds", "reason")
WORST_FIRST = (CHEAT, WRONG, UNDECIDED, NOT_COMPARABLE, UNSUPPORTED, RIGHT)
LONGEST_REASON = 80


def format_table(judgements: Sequence[Judgement]) -> str:
    """A line for each operation, and how many there are of each verdict."""
    rows = [HEAD, *map(table_row, judgements)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]
    lines = ["  ".join(map(str.ljust, row, (*widths, 0))) for row in rows]
    found = Counter(one.verdict for one in judgements)
    counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in reversed(WORST_FIRST) if found[verdict])
    return "\n".join([*lines, "", f"{len(judgements)} operations: {counts}"])


def table_row(judgement: Judgement) -> tuple[str, ...]:
    rule = {None: "", True: "passes", False: "fails"}[judgement.own_rule]
    reason = printable(judgement.reason)
    short = reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]} .."
    severity = judgement.severity or ""
    return (
        judgement.problem, judgement.verdict, severity, rule, str(judgement.cases), f"{judgement.seconds:.1f}", short
    )  # fmt: skip


def operations_json(judgements: Sequence[Judgement]) -> Mapping[str, Any]:
    """The judgement of a module: that of its worst operation, with those of all under `operations`.

    The score is 0 where that of one operation is, and 1 where those of all are.
    """
    worst = min(judgements, key=lambda one: WORST_FIRST.index(one.verdict))
    parts = [judgement_json(one) for one in judgements]
    scores = [score(one) for one in judgements]
    total = 0.0 if 0.0 in scores else None if None in scores else 1.0
    codes = list(dict.fromkeys(code for part in parts for code in part["codes"]))
    sums = {name: sum(part[name] for part in parts) for name in ("cases", "calls", "launches", "refused")}
    reason = worst.reason if len(parts) == 1 else f"{worst.problem}: {worst.reason}"
    seconds = round(sum(one.seconds for one in judgements), 3)
    return {
        **judgement_json(worst), **sums, "reason": reason, "score": total, "codes": codes, "seconds": seconds,
        "operations": parts,
    }  # fmt: skip
