"""PlotWorker: the worker in which an entry sits for its portrait and its script, since both run the target's code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import FatalError, run
from fuzz.backends.memory import DTYPE_NAMES
from fuzz.errors import FuzzError, TargetError, UsageError, one_line
from fuzz.model.dtypes import Bits, DType, from_bits, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.entry import Entry
from fuzz.model.outcome import Returned, describe
from fuzz.oracles.accuracy import expected_values
from fuzz.oracles.diagnosis import DiagnosisContext, make_context
from fuzz.oracles.examination import Examination
from fuzz.oracles.examine import set_up_process
from fuzz.oracles.invariance import split_call
from fuzz.reference.envelope import make_precision
from fuzz.report.reproducer.script import Due, script
from fuzz.sweep import make_plan
from fuzz.sweep.correct_rounding import CorrectRounding
from fuzz.sweep.counts import NEAR
from fuzz.sweep.measure import KernelRunner
from fuzz.sweep.plan import batch_of, swept_arguments
from fuzz.sweep.ulps import ulps
from fuzz.target.loader import LIBRARIES, built_in_files, check_fits, find_target, load, load_planted
from fuzz.target.spec import Launcher, Target
from fuzz.web.plots.data import ErrorCurve, OutputErrors, PlotData
from fuzz.web.plots.protocol import PlotConfig, PlotRequest, PlotResult
from fuzz.worker.process import LastResponse
from fuzz.worker.protocol import WorkerConfig

ENDING = ("died", "hung", "out-of-memory")
"""Symptoms of cases that are not run to be drawn."""
DRAWN = 1024
"""Elements of one output that are drawn, and points of a curve."""


@dataclass(frozen=True)
class PlotWorker:
    """What one process draws: entries of one target, with one planted bug or none, on one backend."""

    worker_config: WorkerConfig
    target: Target
    launcher: Launcher
    backend: Backend

    def study(self, sitting: PlotRequest) -> PlotResult:
        """PlotData and script of one entry; what cannot be had is told in words."""
        return PlotResult(self.portrait(sitting.entry), *self.script(sitting))

    def script(self, sitting: PlotRequest) -> tuple[str, str]:
        """(the stand-alone program, or why there is none)."""
        plant = load_planted(self.target, self.worker_config.planted)[0] if self.worker_config.planted else None
        try:
            expected = expected_values(self.target, sitting.entry)
            due = Due(expected, split_call(self.target, sitting.entry.case))
            return script(sitting.entry, self.target, plant, due, sitting.repeat), ""
        except (FuzzError, OSError, AssertionError, KeyError) as error:
            return "", one_line(error)

    def portrait(self, entry: Entry) -> PlotData:
        if entry.finding and entry.finding.symptom in ENDING:
            return PlotData(why=f"nothing to draw: the case ends its process ({entry.finding.symptom})")
        outcome = run(self.target, self.launcher, entry.case.calls, self.backend)
        if not isinstance(outcome, Returned):
            return PlotData(why=f"nothing to draw: {describe(outcome)}")
        if self.target.reference is None:
            return PlotData(why="nothing to draw: the target has no reference")
        try:
            seen = make_context(Examination(self.target, self.launcher, entry.case, self.backend, outcome))
        except FuzzError as error:
            return PlotData(why=f"nothing to draw: {one_line(error)}")
        panels = tuple(panel(seen, output) for output in seen.got if seen.got[output].numel())
        return PlotData(panels, self.curves(entry), "" if panels else "nothing to draw: no floating output")

    def curves(self, entry: Entry) -> tuple[ErrorCurve, ...]:
        """The error along the one argument of an elementwise target; none for others."""
        finding = entry.finding
        if finding is None or finding.as_accuracy.oracle != "accuracy":
            return ()
        try:
            return (self.curve(entry, finding.outputs[0]),)
        except (UsageError, OverflowError):
            return ()

    def curve(self, entry: Entry, output: str) -> ErrorCurve:
        """The kernel at values around the finding's, the other arguments as they are there. UsageError where none."""
        call, place = entry.case.last, first_wrong(entry)
        swept = swept_arguments(self.target, "", False)[0]
        batch_of(self.target)
        dtype = call.arguments[swept].dtype
        held = {name: element(entry, name, place) for name in call.arguments}
        settings = {name: repr(value) for name, value in held.items() if name != swept}
        settings |= {name: str(value) for name, value in call.options.items()}
        plan = make_plan(
            self.target, self.worker_config.target, dtype=dtype, backend=self.backend.name,
            planted=self.worker_config.planted,
            swept=swept, settings=settings, output=output,
        )  # fmt: skip
        arithmetic = make_precision(plan.backend, self.target.accumulate, self.target.dot)
        truth = CorrectRounding(self.target, output, arithmetic, plan.options)
        bench = KernelRunner(plan, self.target, self.launcher, self.backend, truth)
        words = around(held[swept], plan.kind)
        tensors = bench.tensors((words,))
        got = bench.run(tensors).cpu()
        inputs = {name: one.cpu().double() for name, one in tensors.items()}
        want, kind = truth.expected(inputs, members=1).value, named_dtype(DTYPE_NAMES[got.dtype])
        error, sign = ulps(got.double(), want, kind), got.double() * want.sign() < 0
        x = from_bits(words, plan.kind).astype(np.float64)
        return ErrorCurve(output, swept, dtype, settings, numbers(x), numbers(error.numpy()), tuple(sign.tolist()))


def make_handler(gallery: PlotConfig) -> Callable[[PlotRequest], LastResponse]:
    """The worker's handler, sitting -> study; each one is its process's last."""
    backend = named_backend(gallery.backend).name

    def handle(sitting: PlotRequest) -> LastResponse:
        try:
            text = located(gallery, sitting)
            return LastResponse(
                PlotWorker(*settled(WorkerConfig(text, sitting.entry.planted or None, backend), sitting)).study(sitting)
            )
        except UsageError as error:
            return LastResponse(PlotResult(PlotData(why=one_line(error)), why="its target cannot be run here"))
        except FatalError as fatal:
            return LastResponse(PlotResult(PlotData(why=f"nothing to draw: {describe(fatal.outcome)}")))

    return handle


def settled(worker_config: WorkerConfig, sitting: PlotRequest) -> tuple[WorkerConfig, Target, Launcher, Backend]:
    """What a studio needs, once the entry's case is known to fit its target."""
    check_fits(sitting.entry.case, load(worker_config.target), sitting.path)
    return worker_config, *set_up_process(worker_config)


def located(gallery: PlotConfig, sitting: PlotRequest) -> str:
    """What to load an entry's target by. TargetError where it is in none of the gallery's places."""
    name = sitting.entry.case.target
    if gallery.beside or gallery.given:
        return find_target(name, sitting.path, gallery.given)[0]
    try:
        return find_in(name, gallery.folders)
    except TargetError as error:
        raise TargetError(f"{one_line(error)}; fuzz serve --targets DIR names more folders") from None


def find_in(name: str, folders: Iterable[Path]) -> str:
    """The built-in target of that name, else the first of the files in the folders that declares it."""
    if name in {path.stem for path in built_in_files()} or name.partition("_")[0] in LIBRARIES:
        return name
    for path in sorted(place for folder in folders for place in folder.glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "@target(" in text and f"def {name}(" in text:
            return f"{path}:{name}"
    raise TargetError(f"target {name!r} is neither built in nor in a configured folder")


def panel(seen: DiagnosisContext, output: str) -> OutputErrors:
    """One output of the picture; of a large one all kinds of wrong elements and others evenly."""
    got, want, bound = (part[output].reshape(-1).numpy() for part in (seen.got, seen.want, seen.bound))
    wrong = seen.wrong[output].reshape(-1).numpy() if output in seen.wrong else np.zeros(got.size, dtype=bool)
    places = chosen(wrong)
    kind, shape = seen.kind(output), seen.got[output].shape
    error = ulps(torch.from_numpy(got[places]), torch.from_numpy(want[places]), kind).numpy()
    alike = {name: x.reshape(-1).numpy() for name, x in seen.inputs.items() if x.shape == shape}
    return OutputErrors(
        output, kind.name, tuple(shape), got.size, tuple(places.tolist()),
        numbers(got[places]), numbers(want[places]), numbers(bound[places]), numbers(error),
        tuple(wrong[places].tolist()),
        {name: numbers(x[places]) for name, x in alike.items()},
    )  # fmt: skip


def chosen(wrong: np.ndarray) -> np.ndarray:
    """Places of at most DRAWN elements in order: all where they are few, else half of them wrong ones if there are."""
    if wrong.size <= DRAWN:
        return np.arange(wrong.size)
    hit = np.flatnonzero(wrong)
    some = hit[np.linspace(0, hit.size - 1, min(hit.size, DRAWN // 2)).astype(np.int64)]
    evenly = np.linspace(0, wrong.size - 1, DRAWN - some.size).astype(np.int64)
    return np.unique(np.concatenate([some, evenly]))


def numbers(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def first_wrong(entry: Entry) -> int:
    """The place of the first element that the finding shows; 0 where it tells none."""
    shown = entry.finding.elements if entry.finding else ()
    return shown[0].index[0] if shown and shown[0].index else 0


def element(entry: Entry, name: str, place: int) -> float:
    """One element of an argument of one dim."""
    value = entry.case.last.arguments[name]
    words = value.bits(entry.case.last.dims).reshape(-1)
    word = words[min(place, words.size - 1)]
    return float(from_bits(np.asarray([word]), named_dtype(value.dtype))[0])


def around(x: float, kind: DType) -> Bits:
    """Words of DRAWN values, evenly from -NEAR to NEAR, or further out where x lies there, and of x itself."""
    reach = NEAR if not math.isfinite(x) or abs(x) < NEAR else min(2 * abs(x), kind.largest)
    return to_bits(np.sort(np.append(np.linspace(-reach, reach, DRAWN), x if math.isfinite(x) else 0.0)), kind)
