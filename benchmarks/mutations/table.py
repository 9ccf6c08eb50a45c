"""The results of mutants as Markdown, between marks of a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.document import replace_between_marks
from benchmarks.mutations.operators import OPERATORS

NAME = "mutations: written by make mutations"
KILLED, LIVE = "killed", "live"
SAME = ("equivalent", "within rounding")
OTHERS = (*SAME, "does not compile", "undecided", "alarm on the good kernel")
Row = dict[str, Any]


def write(path: Path, results: Mapping[str, Sequence[Row | None]]) -> None:
    """Puts the tables between the marks."""
    replace_between_marks(path, NAME, page(results))


def page(results: Mapping[str, Sequence[Row | None]]) -> str:
    """The score, by operator, by kernel, and every survivor, of the rows of each kernel that is listed; None stands for
    what is not measured."""
    by_target = {target: [row for row in rows if row] for target, rows in results.items()}
    rows = [row for group in by_target.values() for row in group]
    by_operator = table("operator", {name: [row for row in rows if row["operator"] == name] for name in OPERATORS})
    by_kernel = table("kernel", {target: group for target, group in by_target.items() if group})
    return "\n\n".join([head(results, rows), by_operator, by_kernel, survivors(rows)])


def head(results: Mapping[str, Sequence[Row | None]], rows: list[Row]) -> str:
    """The score, and what it rests on."""
    killed, live = count(rows)
    seconds = ", ".join(f"{one:g}" for one in sorted({row["seconds"] for row in rows}))
    kernels = len({row["target"] for row in rows})
    ungraded = sum(row["result"] == KILLED and row.get("severity") is None for row in rows)
    least = min((row["judged"]["cases"] for row in rows if row["result"] in SAME), default=0)
    text = f"**{killed} of {live} live mutants of {kernels} kernels killed ({share(killed, live)})**, {seconds} s each"
    text += f", {ungraded} of them by a finding that was not graded. Kernels listed: {len(results)}"
    if unfinished := [target for target, group in results.items() if None in group or not group]:
        text += f", of which not measured to the end: {', '.join(unfinished)}"
    return f"{text}. Equivalent or within rounding: by {least:,} cases or more."


def count(rows: list[Row]) -> tuple[int, int]:
    """(killed, live); what is killed is live."""
    killed = sum(row["result"] == KILLED for row in rows)
    return killed, killed + sum(row["result"] == LIVE for row in rows)


def share(killed: int, live: int) -> str:
    return f"{killed / live:.0%}" if live else "-"


def table(title: str, groups: dict[str, list[Row]]) -> str:
    """A row for each group: killed of live, the seconds that a kill takes, and what was not live."""
    lines = [
        f"| {title} | killed of live | share | median s | {' | '.join(OTHERS)} |",
        "|---" * (4 + len(OTHERS)) + "|",
    ]
    for name, rows in groups.items():
        killed, live = count(rows)
        times = [row["first_seconds"] for row in rows if row["result"] == KILLED]
        other = " | ".join(str(sum(row["result"] == one for row in rows)) for one in OTHERS)
        middle = f"{median(times):.0f}" if times else "-"
        lines.append(f"| {name} | {killed} of {live} | {share(killed, live)} | {middle} | {other} |")
    return "\n".join(lines)


def survivors(rows: list[Row]) -> str:
    """What brute force shows and no run of that length found."""
    left = [row for row in rows if row["result"] == LIVE]
    lines = ["| survivor | change | live by brute force | cases of the run |", "|---|---|---|---|"]
    for row in left:
        change = f"`{row['old']}` becomes `{row['new']}`".replace("|", "\\|").replace("\n", " ")
        why = f"{row['judged']['why']}, at case {row['judged']['cases']}".replace("|", "\\|")
        lines.append(f"| {row['target']} {row['kernel']}, line {row['line']} | {change} | {why} | {row['cases']} |")
    return "\n".join(lines) if left else "No live mutant survived."
