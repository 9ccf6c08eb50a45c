"""``fuzz drift``: how a row's result depends on its batch, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fuzz import corpus as corpora
from fuzz.cli.console import errors, put, put_json
from fuzz.cli.run import checked_target, chosen_backend, default_folder
from fuzz.cli.sweep import pairs_of
from fuzz.drift import BatchDrift, DriftPlan, make_plan
from fuzz.drift.plan import BATCHES
from fuzz.drift.plot import make_plot, plot_title
from fuzz.drift.report import drift_json, text_of
from fuzz.drift.runner import broken, cases_of, drifted
from fuzz.errors import UsageError
from fuzz.model.oracles import INVARIANCE
from fuzz.report.plots.figure import check_plot_path, save_figure
from fuzz.run import environment
from fuzz.run.fuzzer import Result
from fuzz.run.options import RunOptions
from fuzz.sweep.runner import FindingsProgress, FixedCasesFuzzer
from fuzz.target.spec import Target


def drift(
    target: Annotated[str, typer.Argument(help="A target's name, a file, or file.py:name.")],
    layers: Annotated[int, typer.Option(help="Layers that follow each other.")] = 20,
    batches: Annotated[str, typer.Option(help="Batch sizes, with commas.")] = ",".join(map(str, BATCHES)),
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16; the target's plain one by default.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of a dim (64 by default) or an option.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all weights and inputs.")] = 0,
    planted: Annotated[str | None, typer.Option(help="A planted bug instead of the good kernel.")] = None,
    backend: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    corpus: Annotated[Path | None, typer.Option(help="Folder for findings.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw drift, truth and envelope into this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")] = False,
) -> int:
    """The last row of a batch against the same row alone, layer by layer, with the truth and the envelope."""
    loaded = checked_target(target, planted, backend)
    if plot:
        check_plot_path(plot)
    plan = make_plan(
        loaded, target, backend=chosen_backend(backend), layers=layers, batches=sizes_of(batches), dtype=dtype,
        planted=planted, settings=pairs_of(settings or []), seed=seed,
    )  # fmt: skip
    folder = corpus or default_folder(loaded, planted)
    corpora.check_writable(folder)
    asked = RunOptions(target, planted, backend, seed=seed, corpus=folder)
    found = drifted(plan, asked.worker_memory, progress)
    if plot:
        save_figure(plot, plot_title(plan), [make_plot(plan, found)])
    if not json:
        put(text_of(plan, found))
    result = examined(plan, found, asked, loaded, folder)
    if json:
        put_json(drift_json(plan, found, result))
    return exit_code(plan, found, result)


def sizes_of(text: str) -> tuple[int, ...]:
    """Batch sizes from a text such as 1,16,128."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--batches {text}: give sizes with commas, such as 1,16,128") from None


def progress(rows: BatchDrift) -> None:
    last = rows.rows[-1]
    errors.print(f"batch of {last.batch}: drift {last.drift:.3g} after {last.layer} layers", highlight=False)


def examined(
    plan: DriftPlan, found: list[BatchDrift], asked: RunOptions, target: Target, folder: Path
) -> Result | None:
    """The findings that the broken layers end as; None where nothing is broken."""
    cases = cases_of(plan, found)
    if not cases:
        return None
    options = RunOptions(
        asked.target, asked.planted, asked.backend, "exhaustive", asked.seed, cases=len(cases), corpus=folder
    )
    watcher = FindingsProgress(errors, "fuzz replay")
    return FixedCasesFuzzer(
        options, target, plan.backend, folder, watcher, environment.versions(), cases=cases, sampled=(INVARIANCE.name,)
    ).run()


def exit_code(plan: DriftPlan, found: list[BatchDrift], result: Result | None) -> int:
    """1 where the promise is broken, unless all of its findings are accepted."""
    if result and result.bugs:
        return int(any(not bug.accepted for bug in result.bugs))
    return int(any(broken(plan, row) for rows in found for row in rows.rows))
