"""Implements ``fuzz judge --batch``: a folder of solutions, judged side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fuzz.cli.console import errors, put, put_json
from fuzz.errors import UsageError
from fuzz.judge.formats import FORMATS
from fuzz.text import printable

RESULTS = "judgements.jsonl"
"""The file in the folder of solutions that keeps their judgements, where no other one is named."""


def judge_batch(
    format: str, folder: Path, problems: Path | None, results: Path | None, workers: int, json: bool, **options: Any
) -> int:
    """Judges every solution below a folder that is not in the results yet. `options` are those of a task."""
    # Late: they import Hypothesis and torch.
    from fuzz.judge.batch.listing import list_folder
    from fuzz.judge.batch.results_file import ResultsFile
    from fuzz.judge.batch.run_batch import run_batch
    from fuzz.judge.batch.task import SCRIPT, JudgeTask, TaskOptions
    from fuzz.run.setup import choose_backend

    if format not in (*FORMATS, SCRIPT):
        raise UsageError(f"unknown format {format!r}: there are {', '.join((*FORMATS, SCRIPT))}")
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}")
    listing = list_folder(format, folder, problems)
    options["backend"] = choose_backend(options["backend"])
    share = share_of_memory(workers)
    tasks = [JudgeTask(TaskOptions(format, **options), *pair, share) for pair in listing.pairs]
    for path, reason in listing.left_out.items():
        errors.print(f"left out: {path}: {reason}")
    show = errors.print if json else put
    summary = run_batch(tasks, workers, ResultsFile(results or folder / RESULTS), lambda one: show(format_line(one)))
    summary.left_out = listing.left_out
    show(format_summary(summary))
    if json:
        put_json(summary_json(summary))
    return summary.exit_code


def share_of_memory(workers: int) -> int:
    """Bytes that each of the two processes of a judgement may hold, where so many judgements run at once."""
    from fuzz.worker.system import total_memory

    return max(total_memory() // (4 * workers), 1 << 30)


def format_line(judgement: Mapping[str, Any]) -> str:
    """One judgement on one line."""
    severity = f" ({judgement['severity']})" if judgement["severity"] else ""
    verdict = f"{judgement['verdict']}{severity}"
    return printable(f"{verdict:<16}{judgement['solution']}  {judgement['seconds']:.1f} s  {judgement['reason']}")


def format_summary(summary: Any) -> str:
    """How many solutions got which verdict, and how fast."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in summary.counts.items() if count)
    now = len(summary.judgements) - summary.known
    parts = [f"{len(summary.judgements)} solutions: {counts or 'none'}"]
    if summary.known:
        parts.append(f"{summary.known} were judged before")
    if now:
        parts.append(f"{now} in {summary.seconds:.1f} s, {summary.per_minute:.1f} a minute")
    if summary.left_out:
        parts.append(f"{len(summary.left_out)} left out")
    return "; ".join(parts)


def summary_json(summary: Any) -> Mapping[str, Any]:
    """The one value on standard output."""
    from fuzz.judge.report import VERSION

    return {
        "version": VERSION, "counts": summary.counts, "known": summary.known, "seconds": round(summary.seconds, 3),
        "per_minute": round(summary.per_minute, 3), "left_out": dict(summary.left_out),
        "judgements": summary.judgements,
    }  # fmt: skip
