"""Runs an entry's case for its plots and its script, in a worker of its own, since both run the target's code."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import FatalError, run
from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.errors import FuzzError, TargetError, UsageError, one_line
from fuzz.model.case import Argument, Call
from fuzz.model.dtypes import Bits, DType, from_bits, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.entry import Entry
from fuzz.model.oracle_specs import ACCURACY
from fuzz.model.outcome import NotRun, OutOfMemory, Returned, describe
from fuzz.model.recipes import Exact
from fuzz.model.recipes.torch_values import from_bits as tensor_of
from fuzz.oracles.diagnosis import make_context
from fuzz.oracles.examine import set_up_process
from fuzz.oracles.execution.examination import Examination
from fuzz.report.reproducer.script import script
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.plan import SweepPlan, choose_arguments, elementwise_dim
from fuzz.sweep.sweep_counts import NEAR_VIEW
from fuzz.sweep.ulps import ulps
from fuzz.target import loader
from fuzz.target.spec import Launcher, Target
from fuzz.web.entry_plots.client import PlotConfig, PlotRequest, PlotResult
from fuzz.web.entry_plots.error_plots import ErrorCurve, error_in_ulp, make_plots
from fuzz.worker.channel import LastResponse
from fuzz.worker.protocol import WorkerConfig

FATAL_SYMPTOMS = ("died", "hung", "out-of-memory")
"""Symptoms of cases that are not run again for plots."""
MAX_POINTS = 1024
"""Points of a curve."""


def make_handler(config: PlotConfig) -> Callable[[PlotRequest], LastResponse]:
    """The worker's handler of requests; each one is its process's last."""
    backend = named_backend(config.backend).name

    def handle(request: PlotRequest) -> LastResponse:
        try:
            worker_config = WorkerConfig(locate_target(config, request), request.entry.planted or None, backend)
            loader.check_fits(request.entry.case, loader.load(worker_config.target), request.path)
            return LastResponse(PlotWorker(worker_config, *set_up_process(worker_config)).run(request))
        except UsageError as error:
            return LastResponse(PlotResult(why=one_line(error), no_script="its target cannot be run here", failed=True))
        except FatalError as fatal:
            return LastResponse(PlotResult(why=f"nothing to draw: {describe(fatal.outcome)}", failed=True))

    return handle


def locate_target(config: PlotConfig, request: PlotRequest) -> str:
    """What to load an entry's target by. TargetError where it is in none of the configured folders."""
    name = request.entry.case.target
    if config.target_folders is None:
        return loader.find_target(name, request.path, config.target_file)[0]
    if name in {path.stem for path in loader.built_in_files()} or name.partition("_")[0] in loader.LIBRARIES:
        return name
    for path in sorted(path for folder in config.target_folders for path in loader.files_that_declare(name, folder)):
        return f"{path}:{name}"
    more = "fuzz serve --targets DIR names more folders"
    raise TargetError(f"target {name!r} is neither built in nor in a configured folder; {more}")


@dataclass(frozen=True)
class PlotWorker:
    """Runs entries of one target, with one planted bug or none, on one backend."""

    config: WorkerConfig
    target: Target
    launcher: Launcher
    backend: Backend

    def run(self, request: PlotRequest) -> PlotResult:
        """Plots and script of one entry, each with the reason where there is none."""
        script, no_script = self.script(request)
        return replace(self.measure(request.entry), script=script, no_script=no_script)

    def script(self, request: PlotRequest) -> tuple[str, str]:
        """(the stand-alone program, or why there is none)."""
        planted_bug = loader.load_planted(self.target, self.config.planted)[0] if self.config.planted else None
        try:
            return script(request.entry, self.target, planted_bug, request.command), ""
        except (FuzzError, OSError, AssertionError, KeyError) as error:
            return "", one_line(error)

    def measure(self, entry: Entry) -> PlotResult:
        """What is plotted of an entry."""
        if entry.finding and entry.finding.symptom in FATAL_SYMPTOMS:
            return PlotResult(why=f"nothing to draw: the case ends its process ({entry.finding.symptom})")
        outcome = run(self.target, self.launcher, entry.case.calls, self.backend)
        if not isinstance(outcome, Returned):
            # What a full machine ends may run later.
            busy = isinstance(outcome, NotRun | OutOfMemory)
            return PlotResult(why=f"nothing to draw: {describe(outcome)}", failed=busy)
        if self.target.reference is None:
            return PlotResult(why="nothing to draw: the target has no reference")
        try:
            seen = make_context(Examination(self.target, self.launcher, entry.case, self.backend, outcome))
        except FuzzError as error:
            return PlotResult(why=f"nothing to draw: {one_line(error)}")
        if not any(output.numel() for output in seen.got.values()):
            return PlotResult(why="nothing to draw: no floating output")
        finding, curve = entry.finding, None
        if finding and finding.as_accuracy.oracle == ACCURACY.name:
            # The target may not be elementwise.
            with suppress(UsageError, OverflowError):
                curve = self.curve(entry, finding.outputs[0])
        return PlotResult(tuple(make_plots(seen, curve)))

    def curve(self, entry: Entry, output: str) -> ErrorCurve:
        """The kernel at values around the finding's, the other arguments as they are there. UsageError where none."""
        call, elements = entry.case.last, entry.finding.elements if entry.finding else ()
        # Those of the first element that the finding shows, of the first one of all where it shows none.
        index = elements[0].index[0] if elements and elements[0].index else 0
        (swept,), batch, held = choose_arguments(self.target, "", False), elementwise_dim(self.target), {}
        for name, one in call.arguments.items():
            words = one.bits(call.dims).reshape(-1)
            held[name] = Argument((batch,), one.dtype, Exact((int(words[min(index, words.size - 1)]),), one.dtype))
        plan = SweepPlan(
            self.config.target, self.target.name, self.config.planted, self.backend.name,
            Call({batch: 1}, held, call.options), (swept,), output=output,
        )  # fmt: skip
        kernel = SweptKernel(plan, self.target, self.launcher, self.backend)
        bits = sample_around(float(from_bits(held[swept].bits({batch: 1}), plan.kind)[0]), plan.kind)
        tensors = kernel.make_tensors([tensor_of(bits, plan.kind, self.backend.device)])
        got = kernel.run(tensors).cpu()
        inputs = {name: tensor.cpu().double() for name, tensor in tensors.items()}
        want, kind = kernel.rounding.expected(inputs, members=1).value, named_dtype(DTYPE_NAMES[got.dtype])
        error, wrong_sign = ulps(got.double(), want, kind), got.double() * want.sign() < 0
        rows = zip(from_bits(bits, plan.kind).tolist(), error.tolist(), wrong_sign.tolist(), strict=True)
        values = [error_in_ulp(swept, x, far, "wrong" if wrong else "right") for x, far, wrong in rows]
        note = ", ".join([f"{plan.dtype}, {len(values)} values", *(f"{n} = {text}" for n, text in plan.fixed.items())])
        return ErrorCurve(output, swept, note, values)


def sample_around(x: float, kind: DType) -> Bits:
    """Words of MAX_POINTS values, evenly within NEAR_VIEW of 0, or further out where x lies there, and of x itself."""
    reach = NEAR_VIEW if not math.isfinite(x) or abs(x) < NEAR_VIEW else min(2 * abs(x), kind.largest)
    points = np.append(np.linspace(-reach, reach, MAX_POINTS), x if math.isfinite(x) else 0.0)
    return to_bits(np.sort(points), kind)
