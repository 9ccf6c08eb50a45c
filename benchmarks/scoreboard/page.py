"""The scoreboard's page and plot, from what was measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scoreboard.board import Board
from fuzz.reference.envelope import SAFETY

CLASSES = ("plain", "nearly constant or far from 0", "outliers and cancellation", "range")


def page(board: Board, honest: Board, how: str, old: str) -> str:
    """docs/scoreboard.md, of the project's own targets with planted bugs, and of the honest set.

    `how` says when and with which options it was measured; the last section is that of the `old` page.
    """
    parts = [f"{HEAD}\n\n{how}", table(board), alarms("## False alarms by class of values", board, CLASSES)]
    parts += [honest_set(honest)] if honest.honest or honest.unmeasured else []
    parts += [others(board), margin(board), missed(board), last_section(old)]
    return "\n\n".join(parts) + "\n"


HEAD = """# Scoreboard

Made by `make scoreboard`; do not edit above the last section. Rows are acceptance rules, ours and published ones; each
judges the same outputs of the same cases on the `cpu` backend. The published rules are those of
`benchmarks/scoreboard/acceptance.py`, each with its project's constants and our float64 reference.

A planted bug counts as caught where, in some case, the rule rejects the planted kernel and accepts the good kernel.
"Bug by case" counts the pairs in which it does so. A false alarm is a case in which the rule rejects a good kernel.
Cases in which an intermediate may leave float32's range decide nothing and are left out."""


def table(board: Board) -> str:
    first = [bug for bug, early in board.wrong.items() if early]
    honest = sum(board.honest.values())
    lines = [
        f"| rule | caught of {len(board.wrong)} | of {len(first)} older than the safety factor "
        f"| of {len(board.wrong) - len(first)} newer | caught, bug by case "
        f"| false alarms in {honest} honest cases |",
        "|---|---|---|---|---|---|",
    ]
    for rule, caught in board.caught.items():
        early = len(set(caught) & set(first))
        alarms_ = sum(board.alarms[rule].values())
        lines.append(f"| {rule} | {len(caught)} | {early} | {len(caught) - early} | {board.pairs[rule]} | {alarms_} |")
    return "\n".join(lines)


def alarms(heading: str, board: Board, order: Sequence[str]) -> str:
    titles = [title for title in order if title in board.honest]
    lines = [
        heading,
        "",
        "| rule | " + " | ".join(f"{title} ({board.honest[title]})" for title in titles) + " |",
        "|---" * (len(titles) + 1) + "|",
    ]
    for rule, counts in board.alarms.items():
        lines.append(f"| {rule} | " + " | ".join(str(counts.get(title, 0)) for title in titles) + " |")
    left_out = ", ".join(f"{count} in which {why}" for why, count in board.left_out.most_common())
    return "\n".join(lines + ["", f"Left out are cases: {left_out or 'none'}. {extent(board)}"])


def extent(board: Board) -> str:
    """How many of the planned cases the tables tell of, and of which targets they tell nothing."""
    drawn = sum(board.honest.values()) + sum(board.left_out.values())
    text = f"Of {board.planned:,} planned cases {drawn:,} are judged or left out."
    return f"{text} Targets that were not measured, {len(board.unmeasured)}: {', '.join(board.unmeasured) or 'none'}."


def honest_set(board: Board) -> str:
    """The same cases of the honest set under every rule, and those that ours rejects."""
    lines = [alarms(HONEST_SET, board, sorted(board.honest))]
    if board.rejected:
        lines += ["Rejected by ours, where no exact value says that the kernel is wrong:", "\n".join(
            f"- {case}" for case in board.rejected)]  # fmt: skip
    return "\n\n".join(lines)


HONEST_SET = """## The honest set

Good kernels by other hands ([honest.md](honest.md)) and some of the operations of PyTorch and FlagGems, drawn by a
seed: the cases in which a rule rejects a kernel. Of those that ours rejects the exact value is asked; where it says
that the kernel is wrong, they are left out for every rule. FlagGems' rule is told the largest dim as the number of
terms."""


def others(board: Board) -> str:
    """Bugs that are no wrong values: by oracle."""
    total = Counter(oracle for oracle, _ in board.others.values())
    found = Counter(oracle for oracle, seen in board.others.values() if seen)
    lines = [
        "## Bugs that are no wrong values",
        "",
        "Rules on values cannot see them, so they stand outside the ratio: reads and writes out of bounds, inputs",
        "written over, bits that change from run to run or with the batch.",
        "",
        "| oracle | bugs | seen by ours |",
        "|---|---|---|",
        *(f"| {oracle} | {count} | {found[oracle]} |" for oracle, count in sorted(total.items())),
    ]
    unseen = [bug for bug, (_, seen) in board.others.items() if not seen]
    return "\n".join(lines + (["", f"Not seen: {', '.join(unseen)}."] if unseen else []))


def margin(board: Board) -> str:
    needs, ratios = sorted(board.honest_needs), sorted(board.honest_ratios)
    weakest = min(board.planted_needs, key=lambda bug: board.planted_needs[bug])
    least = min(board.planted_ratios, key=lambda bug: board.planted_ratios[bug])
    lines = [
        "## The margin",
        "",
        "![Honest errors and planted bugs over the safety factor](scoreboard.svg)",
        "",
        "For each case, the least safety factor with which it passes: the error beyond the output's own rounding, over",
        "the envelope's spread, at its worst element. For each planted bug, the largest of its cases. A safety factor",
        "between the two groups raises no false alarm and misses nothing. The cases here have at most 4096 elements;",
        "`benchmarks/silent.py` runs the good kernels over cases of all sizes.",
        "",
        "| | |",
        "|---|---|",
        f"| honest cases, largest safety needed | {needs[-1]:.2f} |",
        f"| 99.9 % of them need at most | {quantile(needs, 0.999):.2f} |",
        f"| 99 % of them need at most | {quantile(needs, 0.99):.2f} |",
        f"| in use | {SAFETY:g} |",
        f"| planted bugs, least safety that hides one | {board.planted_needs[weakest]:.3g} ({weakest}) |",
        f"| honest error over bound: median, 99 %, worst | {quantile(ratios, 0.5):.3f}, {quantile(ratios, 0.99):.3f}, "
        f"{ratios[-1]:.3f} |",
        f"| least planted error over bound, in its worst case | {board.planted_ratios[least]:.3g} ({least}) |",
    ]
    return "\n".join(lines)


def missed(board: Board) -> str:
    lines = ["## What each rule misses", "", "| rule | bugs |", "|---|---|"]
    for rule, caught in board.caught.items():
        left = [bug for bug in board.wrong if bug not in caught]
        lines.append(f"| {rule} | {', '.join(left) or 'none'} |")
    return "\n".join(lines)


def last_section(old: str) -> str:
    """The last section of the page as it stood, which is pasted from benchmarks/silent.py and not made here."""
    start = old.find(TITLE)
    return old[start:].rstrip() if start >= 0 else f"{TITLE}\n\nMade by `python3 -m benchmarks.silent`."


TITLE = "## Correct kernels over many cases"


def quantile(values: list[float], share: float) -> float:
    """Of sorted values, the least that so many do not exceed."""
    return values[max(math.ceil(share * len(values)) - 1, 0)]


def plot(board: Board, path: Path) -> None:
    """Two panels: safety needed, and error over bound; honest cases as a histogram, planted bugs as marks."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "scoreboard", "font.size": 9, "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.2))
    needed = (board.honest_needs, board.planted_needs, SAFETY, "least safety factor that accepts the case")
    over = (board.honest_ratios, board.planted_ratios, 1.0, "error over bound (safety factor 4)")
    for panel, parts in zip(panels, (needed, over), strict=True):
        draw(panel, *parts)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def draw(panel: Any, honest: list[float], planted: dict[str, float], limit: float, title: str) -> None:
    low, high = -3.0, 6.0

    def place(value: float) -> float:
        return min(max(math.log10(value), low), high) if value > 0 else low

    edges = [low + (high - low) * i / 54 for i in range(55)]
    panel.hist([place(v) for v in honest], bins=edges, color="#4878a8", label=f"{len(honest)} honest cases")
    panel.set_yscale("log")
    panel.set_xlim(low - 0.1, high + 0.1)
    marks = sorted(place(v) for v in planted.values())
    heights = [1.3 * 1.12**i for i in range(len(marks))]
    panel.plot(marks, heights, "v", color="#c44e52", markersize=5, label=f"{len(marks)} planted bugs, at their worst")
    panel.axvline(math.log10(limit), color="black", linewidth=1, label=f"in use: {limit:g}")
    panel.set_xticks(range(int(low), int(high) + 1, 1))
    panel.set_xticklabels([f"$\\leq 10^{{{int(low)}}}$", *(f"$10^{{{i}}}$" for i in range(int(low) + 1, int(high))),
                           f"$\\geq 10^{{{int(high)}}}$"])  # fmt: skip
    panel.set_xlabel(title)
    panel.set_ylabel("honest cases")
    panel.legend(loc="center", bbox_to_anchor=(0.66, 0.6), fontsize=8)
