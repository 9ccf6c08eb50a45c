"""Which targets of a folder the library on the path can run, and which of its code each runs.

python -m benchmarks.archaeology.probe FOLDER RELEASE

Runs the launcher of every target on drawn cases, all in this process, with kernels that are only noted: nothing is
compiled. Prints one JSON line for each target: its name, `absent` with the reason where the library lacks what every
case needs, `code`, the digest of what ran and of what that refers to.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from benchmarks.archaeology.code import digest
from benchmarks.archaeology.run import name_of
from fuzz.backends.execute import FatalError, run
from fuzz.backends.reached_functions import find_functions
from fuzz.coverage_report.scope import describe
from fuzz.errors import TargetError, one_line
from fuzz.model.case import Case
from fuzz.model.outcome import NotRun, Outcome, Rejected
from fuzz.oracles.examine import set_up_process
from fuzz.search.engines.random import RandomEngine
from fuzz.target.finder import find_targets
from fuzz.target.spec import Target
from fuzz.worker.protocol import WorkerConfig

CASES, ENOUGH = 24, 4
"""Cases that are tried, and those that are accepted until no more are."""
LACKING = NotImplementedError.__name__
"""What a target refuses an input by where its library lacks what the input needs."""


ROOM = 1 << 31
"""Bytes that launchers may allocate: what a kernel leaves unwritten may be read as a size."""


class Reached:
    """What a release's functions that are called, and the kernels that are launched, refer to."""

    def __init__(self, release: Path) -> None:
        self.release = str(release)
        self.starts: list[Any] = []

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Notes what is called and launched in a block."""
        sys.setprofile(self._note_call)
        try:
            yield
        finally:
            sys.setprofile(None)

    def launch(self, kernel: Any, *_: Any, **__: Any) -> None:
        """Takes the place of a kernel's launch."""
        self.starts.append(kernel)

    def functions(self) -> set[FunctionType]:
        """The functions that were noted, with those that they reach by name."""
        unique = {id(start): start for start in self.starts}.values()
        return {function for start in unique for function in find_functions(start)}

    def _note_call(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self.release):
            # The whole class of a method: what is differentiated has its backward there.
            self.starts.append(frame.f_globals.get(frame.f_code.co_qualname.partition(".")[0]))


def note_launches(reached: Reached) -> None:
    """Makes all kernels of this process do nothing but be noted."""
    for kind in (JITFunction, Autotuner, Heuristics):
        kind.run = lambda kernel, *values, **names: reached.launch(kernel)


def probe(text: str, release: Path) -> dict[str, str]:
    """The line of one target."""
    target, launcher, backend = set_up_process(WorkerConfig(text, None, "cpu"))
    reached = Reached(release)
    note_launches(reached)
    outcomes = []
    for case in draw(target):
        outcome = call(partial(run, target, launcher, case.calls, backend))
        if isinstance(outcome, NotRun):
            continue  # Larger than this process may be: it says nothing of the library.
        if not isinstance(outcome, Rejected):
            # What runs while a module is imported is no code of this target's alone.
            with reached.noting():
                call(partial(run, target, launcher, case.calls, backend))
        outcomes.append(outcome)
        if sum(not isinstance(each, Rejected) for each in outcomes) == ENOUGH:
            break
    found = {each for function in reached.functions() if (each := describe(function))}
    return {"target": target.name, "absent": lacking(outcomes), "code": digest(found, release)}


def probed(text: str, release: Path) -> dict[str, str]:
    """The line of one target, also where its file cannot be imported with this release."""
    try:
        return probe(text, release)
    except TargetError as error:
        return {"target": name_of(text), "absent": one_line(error), "code": ""}


def draw(target: Target) -> Iterator[Case]:
    """The cases of a target."""
    engine = RandomEngine(target, 0)
    return islice(iter(lambda: engine.propose().plan, None), CASES)


def call(function: Callable[[], Outcome]) -> Outcome:
    """The outcome of a run, whatever it does to the process."""
    try:
        return function()
    except FatalError as fatal:
        return fatal.outcome


def lacking(outcomes: Sequence[Outcome]) -> str:
    """Why a target is absent, where all its cases are refused, and one because the library lacks something."""
    messages = [outcome.message for outcome in outcomes if isinstance(outcome, Rejected)]
    told = [message for message in messages if LACKING in message]
    return told[0] if told and len(messages) == len(outcomes) else ""


def main(folder: Path, release: Path) -> None:
    """Prints the lines of all targets, or of a file that cannot be imported."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM,) * 2)
    for file in sorted(path for path in folder.rglob("*.py") if not path.name.startswith("_")):
        try:
            texts = find_targets(str(file))
        except TargetError as error:
            print(json.dumps({"file": file.name, "absent": one_line(error)}), flush=True)
            continue
        for text in texts:
            print(json.dumps({"text": text, **probed(text, release)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
