"""Implements ``fuzz judge``: a verdict on a solution of a problem, as both are published, or on a folder of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fuzz.cli.console import errors, put, put_json
from fuzz.cli.shared_options import BackendName, Json, refuse_unused
from fuzz.errors import UsageError
from fuzz.escaping import printable
from fuzz.judge.batch.task import JudgeTask, TaskOptions
from fuzz.judge.formats import FORMATS, KERNELBENCH, OPS, WITHOUT_PROBLEM
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.result.judgement import Judgement
from fuzz.judge.result.report import VERSION, format_judgement, judgement_json
from fuzz.worker.system import total_memory

LOCAL, RAY = "local", "ray"
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
    cluster: Annotated[str, typer.Option(help="Where the workers of a batch run: local or ray.")] = LOCAL,
    address: Annotated[str | None, typer.Option(help="That of the Ray cluster; by default $RAY_ADDRESS.")] = None,
    gpus_per_worker: Annotated[float, typer.Option(help="GPUs that each worker on a Ray cluster takes.")] = 0.0,
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
        options = TaskOptions(words[0] if words else KERNELBENCH, backend, seconds, seed, memory << 20)
        check_spec(options.format, spec)
        hosts = cluster, address, gpus_per_worker
        return judge_batch(options, hosts, batch, problems, results, workers, str(spec or ""), json)
    of_batches = {
        "--problems": problems is not None, "--workers": workers != 1, "--results": results is not None,
        "--memory": memory > 0, "--cluster": cluster != LOCAL, "--address": address is not None,
        "--gpus-per-worker": gpus_per_worker > 0,
    }  # fmt: skip
    refuse_unused("--batch", of_batches)
    format, problem, solution = name_paths(words)
    check_spec(format, spec)
    return judge_paths(JudgeOptions(problem, solution, format, backend, seconds, seed, spec=spec), json)


def check_spec(format: str, spec: Path | None) -> None:
    """Raises UsageError where problems of a format have no spec."""
    if spec is not None and format != KERNELBENCH:
        raise UsageError(f"--spec is for {KERNELBENCH}, and not for {format}")


def judge_paths(options: JudgeOptions, json: bool) -> int:
    """Judges what the arguments name; as text each judgement is printed as it comes."""
    # It imports Hypothesis, which takes as long as everything else that the command line needs.
    from fuzz.judge.command import judge_all
    from fuzz.judge.ops.report import format_table

    found: list[Judgement] = []
    for judgement in judge_all(options, errors.print):
        if not json:
            put("\n" * bool(found) + format_judgement(judgement))
        found.append(judgement)
    if json:
        values = [judgement_json(one) for one in found]
        put_json(values if options.format == OPS or options.solution.is_dir() else values[0])
    elif options.format == OPS and len(found) > 1:
        put(f"\n{format_table(found)}")
    return max(one.exit_code for one in found)


def name_paths(words: list[str]) -> tuple[str, Path, Path]:
    """The format, the problem and the solution that the arguments name; a program stands for its problem as well."""
    if len(words) == 2 and words[0] in WITHOUT_PROBLEM:
        return words[0], Path(words[1]), Path(words[1])
    if len(words) == 3 and words[0] in FORMATS:
        return words[0], Path(words[1]), Path(words[2])
    if len(words) != 2:
        raise UsageError(f"fuzz judge takes {USAGE}")
    return KERNELBENCH, Path(words[0]), Path(words[1])


@contextmanager
def connect_hosts(cluster: str, address: str | None, gpus: float) -> Iterator[Callable[[], Any]]:
    """What makes a worker, as long as the cluster is connected; each takes so many GPUs of a Ray cluster."""
    from fuzz.judge.batch.host import HOST_MODULE, JudgeHost

    if cluster == LOCAL:
        yield JudgeHost
        return
    from fuzz.campaign.hosts.ray_process import RayProcess, ray_connection

    with ray_connection(address, gpus):
        yield partial(JudgeHost, partial(RayProcess, HOST_MODULE, gpus), remote=True)


def judge_batch(
    options: TaskOptions,
    hosts: tuple[str, str | None, float],
    folder: Path,
    problems: Path | None,
    results: Path | None,
    workers: int,
    spec: str,
    json: bool,
) -> int:
    """Judges every solution below a folder that is not in the results yet; `hosts` are those of `connect_hosts`."""
    # Late: they import Hypothesis and torch.
    from fuzz.backends import BACKENDS, check_name
    from fuzz.judge.batch.listing import list_folder
    from fuzz.judge.batch.results_file import ResultsFile
    from fuzz.judge.batch.run_batch import run_batch
    from fuzz.run.setup import choose_backend

    cluster, address, gpus = hosts
    if cluster not in (LOCAL, RAY):
        raise UsageError(f"--cluster must be {LOCAL} or {RAY}, and is {cluster!r}")
    if cluster == LOCAL and (address or gpus):
        raise UsageError("--address and --gpus-per-worker are for --cluster ray")
    if options.format not in (*FORMATS, *WITHOUT_PROBLEM):
        raise UsageError(f"unknown format {options.format!r}: there are {', '.join((*FORMATS, *WITHOUT_PROBLEM))}")
    if workers < 1:
        raise UsageError(f"--workers must be at least 1, not {workers}")
    listing = list_folder(options.format, folder, problems)
    if cluster == LOCAL or options.backend == "auto":
        options = replace(options, backend=choose_backend(options.backend))
    check_name(options.backend)
    if cluster == RAY and BACKENDS[options.backend].is_accelerator and not gpus:
        raise UsageError(f"the backend {options.backend} needs --gpus-per-worker, such as 0.25")
    # Each judgement has two processes.
    share = max(total_memory() // (4 * workers), 1 << 30)
    tasks = [JudgeTask(options, *pair, share, spec) for pair in listing.pairs]
    for path, reason in listing.left_out.items():
        errors.print(f"left out: {path}: {reason}")
    show = errors.print if json else put
    kept = ResultsFile(results or folder / RESULTS)
    with connect_hosts(*hosts) as make_host:
        summary = run_batch(tasks, workers, kept, lambda one: show(format_line(one)), make_host)
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
