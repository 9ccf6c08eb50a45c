"""Implements ``fuzz judge``: a verdict on a solution of a problem, as both are published, or on a folder of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fuzz.cli.console import errors, put, put_json
from fuzz.cli.shared_options import BackendName, Json
from fuzz.errors import UsageError
from fuzz.judge.batch.task import JudgeTask, TaskOptions
from fuzz.judge.formats import FORMATS, KERNELBENCH, OPS, SCRIPT, WITHOUT_PROBLEM
from fuzz.judge.report import VERSION, format_judgement, judgement_json
from fuzz.text import printable
from fuzz.worker.system import total_memory

RESULTS = "judgements.jsonl"
"""The file in the folder of solutions that keeps their judgements, where no other one is named."""
USAGE = (
    "PROBLEM SOLUTION (or a folder of them), flashinfer DEF.json SOLUTION.json, gpumode DIR FILE.py, script FILE.py, "
    "ops FILE.py (or a folder of BackendBench)"
)
BATCH = "Judge every solution below this folder; the only argument is then the format, kernelbench without one."

SPEC = "YAML with the inputs, dims and dtypes of a problem, or a folder of such; by default PROBLEM.yaml beside it."


def judge(
    paths: Annotated[list[str] | None, typer.Argument(help=USAGE)] = None,
    seconds: Annotated[float, typer.Option(help="Try odd inputs for so long, after the ordinary ones.")] = 30.0,
    seed: Annotated[int, typer.Option(help="The seed of the inputs.")] = 0,
    backend: BackendName = "auto",
    batch: Annotated[Path | None, typer.Option(help=BATCH)] = None,
    problems: Annotated[Path | None, typer.Option(help="The folder with the problems of a batch.")] = None,
    workers: Annotated[int, typer.Option(help="How many solutions of a batch are judged at once.")] = 1,
    results: Annotated[
        Path | None, typer.Option(help="Keeps the judgements of a batch; by default judgements.jsonl in its folder.")
    ] = None,
    memory: Annotated[int, typer.Option(help="MiB that a process of a batch may hold; 0 for a share of all.")] = 0,
    spec: Annotated[Path | None, typer.Option(help=SPEC)] = None,
    json: Json = False,
) -> int:
    """Say whether a solution of a problem is right, wrong, or a cheat."""
    words = paths or []
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"--seconds must not be negative, and is {seconds:g}")
    if memory < 0:
        raise UsageError(f"--memory must not be negative, and is {memory}")
    if batch is not None:
        if len(words) > 1:
            known = ", ".join((*FORMATS, *WITHOUT_PROBLEM))
            raise UsageError(f"--batch takes one argument at most, the format: {known}")
        return judge_batch(
            words[0] if words else KERNELBENCH, batch, problems, results, workers, json,
            seconds=seconds, seed=seed, backend=backend, memory=memory << 20, spec=spec,
        )  # fmt: skip
    return judge_words(words, seconds, seed, backend, json, spec)


def judge_words(words: list[str], seconds: float, seed: int, backend: str, json: bool, spec: Path | None) -> int:
    """Judges what the arguments name."""
    # It imports Hypothesis, which takes as long as everything else that the command line needs.
    from fuzz.judge.command import judge_module, judge_paths, judge_script
    from fuzz.judge.ops.report import format_table

    if words[:1] == [SCRIPT] and len(words) == 2:
        judgements = judge_script(Path(words[1]), backend)
    elif words[:1] == [OPS] and len(words) == 2:
        judgements = judge_module(Path(words[1]), backend, seconds, seed, errors.print)
    else:
        named = words[:1] != [] and words[0] in FORMATS and len(words) == 3
        if not named and len(words) != 2:
            raise UsageError(f"fuzz judge takes {USAGE}")
        format, problem, solution = words if named else (KERNELBENCH, *words)
        judgements = judge_paths(format, Path(problem), Path(solution), backend, seconds, seed, errors.print, spec)
    found = list(judgements)
    if json:
        values = [judgement_json(one) for one in found]
        put_json(values[0] if len(values) == 1 else values)
    else:
        put("\n\n".join(map(format_judgement, found)))
        if words[0] == OPS and len(found) > 1:
            put(f"\n{format_table(found)}")
    return max(one.exit_code for one in found)


def judge_batch(
    format: str,
    folder: Path,
    problems: Path | None,
    results: Path | None,
    workers: int,
    json: bool,
    *,
    spec: Path | None = None,
    **options: Any,
) -> int:
    """Judges every solution below a folder that is not in the results yet. `options` are those of a task."""
    # Late: they import Hypothesis and torch.
    from fuzz.judge.batch.listing import list_folder
    from fuzz.judge.batch.results_file import ResultsFile
    from fuzz.judge.batch.run_batch import run_batch
    from fuzz.run.setup import choose_backend

    if format not in (*FORMATS, *WITHOUT_PROBLEM):
        raise UsageError(f"unknown format {format!r}: there are {', '.join((*FORMATS, *WITHOUT_PROBLEM))}")
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}")
    listing = list_folder(format, folder, problems)
    options["backend"] = choose_backend(options["backend"])
    # Each judgement has two processes.
    share = max(total_memory() // (4 * workers), 1 << 30)
    tasks = [JudgeTask(TaskOptions(format, **options), *pair, share, str(spec or "")) for pair in listing.pairs]
    for path, reason in listing.left_out.items():
        errors.print(f"left out: {path}: {reason}")
    show = errors.print if json else put
    summary = run_batch(tasks, workers, ResultsFile(results or folder / RESULTS), lambda one: show(format_line(one)))
    summary.left_out = listing.left_out
    show(format_summary(summary))
    if json:
        put_json(summary_json(summary))
    return summary.exit_code


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
    return {
        "version": VERSION, "counts": summary.counts, "known": summary.known, "seconds": round(summary.seconds, 3),
        "per_minute": round(summary.per_minute, 3), "left_out": dict(summary.left_out),
        "judgements": summary.judgements,
    }  # fmt: skip
