"""The results of mutants as Markdown, between marks of a document."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.document import replace_between_marks
from benchmarks.mutations.operators import OPERATORS

NAME = "mutations: written by make mutations"
KILLED, LIVE = "killed", "live"
OTHERS = ("equivalent", "within rounding", "does not compile", "alarm on the good kernel")
Row = dict[str, Any]


def write(path: Path, rows: list[Row]) -> None:
    """Puts the tables between the marks."""
    replace_between_marks(path, NAME, page(rows))


def page(rows: list[Row]) -> str:
    """The score, by operator, by kernel, and every survivor."""
    killed, live = count(rows)
    seconds = ", ".join(f"{one:g}" for one in sorted({row["seconds"] for row in rows}))
    kernels = len({row["target"] for row in rows})
    head = f"**{killed} of {live} live mutants of {kernels} kernels killed ({share(killed, live)})**, {seconds} s each."
    by_operator = table("operator", {name: [row for row in rows if row["operator"] == name] for name in OPERATORS})
    targets = dict.fromkeys(row["target"] for row in rows)
    by_kernel = table("kernel", {name: [row for row in rows if row["target"] == name] for name in targets})
    return "\n\n".join([head, by_operator, by_kernel, survivors(rows)])


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
