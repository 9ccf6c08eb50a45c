"""Implements ``fuzz drift``: how a row's result depends on its batch, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fuzz.cli.console import complain, errors, put, put_json
from fuzz.cli.shared_options import BackendName, FailOn, FindingsFolder, Json
from fuzz.cli.sweep import parse_pairs
from fuzz.drift.plan import BATCHES, make_plan
from fuzz.drift.report import drift_json, format_table, make_plot
from fuzz.drift.runner import breaks_promise, make_cases, run_drift, why_unsaved
from fuzz.errors import UsageError
from fuzz.model.oracle_specs import INVARIANCE
from fuzz.report.plotting.matplotlib_figure import check_plot_path, plot_title, save_figure
from fuzz.run.options import RunOptions
from fuzz.run.setup import choose_backend, load_checked_target, writable_findings_folder
from fuzz.sweep.runner import exit_code, file_cases


def drift(
    target: Annotated[str, typer.Argument(help="A target's name, a file, or file.py:name.")],
    layers: Annotated[int, typer.Option(help="Layers that follow each other.")] = 20,
    batches: Annotated[str, typer.Option(help="Batch sizes, with commas.")] = ",".join(map(str, BATCHES)),
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16; the target's plain one by default.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE of a dim (64 by default) or an option.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed of all weights and inputs.")] = 0,
    planted: Annotated[str | None, typer.Option(help="A planted bug instead of the good kernel.")] = None,
    backend: BackendName = "auto",
    corpus: FindingsFolder = None,
    fail_on: FailOn = "medium",
    plot: Annotated[Path | None, typer.Option(help="Draw drift, truth and envelope into this file.")] = None,
    json: Json = False,
) -> int:
    """The last row of a batch against the same row alone, layer by layer, with the truth and the envelope."""
    loaded = load_checked_target(target, planted, backend)
    check_plot_path(plot)
    plan = make_plan(
        loaded, target, backend=choose_backend(backend), layers=layers, batches=parse_sizes(batches), dtype=dtype,
        planted=planted, settings=parse_pairs(settings or []), seed=seed,
    )  # fmt: skip
    folder = writable_findings_folder(loaded, planted, corpus)
    options = RunOptions(target, planted, backend, seed=seed, corpus=folder, fail_on=fail_on)
    measured = []
    for batch in run_drift(plan, options.worker_memory):
        measured.append(batch)
        last = batch.layers[-1]
        errors.print(f"batch of {last.batch}: drift {last.drift:.3g} after {last.layer} layers")
    if plot:
        title = plot_title(plan.target, planted, plan.dtype, plan.backend, plan.options)
        save_figure(plot, title, [make_plot(plan, measured)])
    if not json:
        put(format_table(plan, measured))
    cases = make_cases(plan, measured)
    result = file_cases(options, loaded, plan.backend, errors, cases, INVARIANCE.name) if cases else None
    if reason := why_unsaved(plan, measured, result):
        complain(reason)
    if json:
        put_json(drift_json(plan, measured, result))
    return exit_code(result, is_broken=any(breaks_promise(plan, layer) for batch in measured for layer in batch.layers))


def parse_sizes(text: str) -> tuple[int, ...]:
    """Batch sizes from a text such as 1,16,128."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--batches {text}: give sizes with commas, such as 1,16,128") from None
