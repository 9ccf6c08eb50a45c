"""The runs of the honest set as Markdown, between marks of two documents: how much ran, and what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.document import replace_between_marks
from benchmarks.honest import ledger
from benchmarks.honest.store import judged

NAME = "honest: written by make honest"
BY_CLASS = {"ordinary": "high", "special": "medium", "layout": "medium", "extreme": "low"}
"""Severity by the most ordinary inputs alone: every error of PyTorch's own operations is as large as PyTorch's."""
GRADES = ("high", "medium", "low", "not graded")
REPORTED = ("high", "medium", "not graded")
Run = dict[str, Any]
Runs = Mapping[tuple[str, str], list[Run]]


def write(path: Path, runs: Runs, lines: Sequence[ledger.Line] = ()) -> None:
    """Puts the sets between the marks of a document, and findings between those of the one beside it, *-findings.
    `lines` are what all machines have run.
    """
    replace_between_marks(path, NAME, "\n\n".join(filter(None, [page(runs), ledger.table(lines)])))
    replace_between_marks(path.with_name(f"{path.stem}-findings{path.suffix}"), NAME, findings(runs))


def page(runs: Runs) -> str:
    """The sets, and what could not be run."""
    return "\n\n".join(filter(None, [sets(runs), gpuemu(runs), refused(runs)]))


def gpuemu(runs: Runs) -> str:
    """How many of the corpus's bugs and of its controls were reported, medium or higher."""
    lines = []
    for (backend, name), found in runs.items():
        if name == "gpuemu" and found:
            reported = {
                kernel_of(run["target"]) for run in found for one in distinct(run) if grade(name, one) in REPORTED
            }
            kernels = {kernel_of(run["target"]) for run in found}
            bugs = {kernel for kernel in kernels if kernel.endswith("_buggy")}
            lines.append(
                f"gpuemu's corpus on `{backend}`: {len(bugs & reported)} of {len(bugs)} bugs and "
                f"{len(reported - bugs)} of {len(kernels - bugs)} controls reported."
            )
    return "\n".join(lines)


def grade(name: str, finding: Mapping[str, Any]) -> str:
    """The severity of a finding of a set; of PyTorch's own operations by the inputs alone."""
    severity = finding.get("severity") or "not graded"
    return BY_CLASS.get(finding.get("input_class") or "", severity) if name == "torch" else severity


def kernel_of(target: str) -> str:
    return target.rpartition(":")[2]


def sets(runs: Runs) -> str:
    """A row for each set and backend, of judged cases; cut off are disagreements that a run had no time to confirm."""
    lines = [
        f"| set | backend | kernels | cases | least for one | hours | {' | '.join(GRADES)} | cut off | not run |",
        "|---" * (8 + len(GRADES)) + "|",
    ]
    for (backend, name), found in runs.items():
        if not found:
            continue
        cases: Counter[str] = Counter()
        for run in found:
            cases[run["target"]] += judged(run)
        ran = {target: count for target, count in cases.items() if count}
        grades = Counter(grade(name, one) for run in found for one in distinct(run))
        hours = sum(run.get("seconds", 0.0) for run in found) / 3600
        cut_off = sum(run.get("cut_off", {}).get("disagreements", 0) for run in found)
        failed = len(cases) - len(ran)
        counts = f"{len(ran)} | {sum(ran.values()):,} | {min(ran.values(), default=0):,}"
        head = f"| {name} | {backend} | {counts} | {hours:.2f}"
        lines.append(f"{head} | {' | '.join(str(grades[one]) for one in GRADES)} | {cut_off} | {failed} |")
    return "\n".join(lines)


def distinct(run: Run) -> list[Run]:
    """The findings that no earlier run of the target has saved."""
    return [one for one in run.get("findings", ()) if one["seen"] == "new"]


def findings(runs: Runs) -> str:
    """Every finding, once."""
    lines = ["| kernel | backend | severity | verdict | what disagrees |", "|---|---|---|---|---|"]
    for (backend, name), found in runs.items():
        for run in found:
            for one in distinct(run):
                verdict = one.get("verdict") or "-"
                message = " ".join(one["message"].split()).replace("|", "\\|")[:220]
                lines.append(
                    f"| {name} {kernel_of(run['target'])} | {backend} | {grade(name, one)} | {verdict} | {message} |"
                )
    return "\n".join(lines) if len(lines) > 2 else "Nothing was found."


def refused(runs: Runs) -> str:
    """Why kernels had no case, by what their last runs say, counted."""
    reasons: Counter[str] = Counter()
    for found in runs.values():
        ran = {run["target"] for run in found if run.get("cases")}
        last = {run["target"]: run for run in found if run["target"] not in ran}
        reasons.update(reason(run.get("error") or run.get("why", "")) for run in last.values())
    if not reasons:
        return "Every kernel had cases."
    lines = ["| kernels that were not run | why |", "|---|---|"]
    return "\n".join(lines + [f"| {count} | {text} |" for text, count in reasons.most_common()])


def reason(error: str) -> str:
    """An error without the names in front of it."""
    return error.rpartition("target '")[2].partition("': ")[2][:110].replace("|", "\\|") or error[:110]
