"""Which targets of a folder the library on the path can run, and which of its code each runs.

python -m benchmarks.archaeology.probe FOLDER RELEASE

Runs a few drawn cases of every target, each target in a process of its own; prints one JSON line for each: its name,
`absent` with the reason where the library lacks what every case needs, `code`, the digest of what ran.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from benchmarks.archaeology.code import digest
from fuzz.backends.execute import FatalError, run
from fuzz.coverage_report.observe import Observer
from fuzz.coverage_report.protocol import Function
from fuzz.errors import TargetError, one_line
from fuzz.model.case import Case
from fuzz.model.outcome import Rejected, describe
from fuzz.oracles.examine import set_up_process
from fuzz.run.options import RunOptions
from fuzz.run.setup import start_worker_server
from fuzz.search.engines.random import RandomEngine
from fuzz.target.finder import find_targets
from fuzz.target.loader import load
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.process import Worker, WorkerCrash
from fuzz.worker.protocol import WorkerConfig

HANDLER = "benchmarks.archaeology.probe:make_handler"
CASES = 12
SECONDS = 30.0
"""For the cases of one target."""
LACKING = NotImplementedError.__name__
"""What a target refuses an input by where its library lacks what the input needs."""
Ran = tuple[str, bool, frozenset[Function]]
"""What became of a case, whether it was refused, and the functions that it ran or referred to."""


def make_handler(config: WorkerConfig) -> Callable[[Case], Ran]:
    """Makes the handler of a worker: a case -> what ran."""
    target, launcher, backend = set_up_process(config)
    observer = Observer(target.path)

    def handle(case: Case) -> Ran:
        try:
            outcome = observer.observe(lambda: run(target, launcher, case.calls, backend))
        except FatalError as fatal:
            outcome = fatal.outcome
        scope = observer.scope
        functions = {function for function in scope.called.values() if function} | scope.referenced | scope.kernels
        return describe(outcome), isinstance(outcome, Rejected), frozenset(functions)

    return handle


def probe(text: str, release: Path) -> dict[str, str]:
    """The line of one target."""
    target = load(text)
    functions: set[Function] = set()
    lacking, accepted = "", False
    deadline = Deadline.after(SECONDS, time.monotonic())
    config, memory = WorkerConfig(text, None, "cpu"), RunOptions(text).worker_memory
    worker = Worker(HANDLER, config, memory, target.timeout, deadline=deadline)
    engine = RandomEngine(target, 0)
    try:
        for case in islice(iter(lambda: engine.propose().plan, None), CASES):
            ran = worker.call(case)
            if isinstance(ran, WorkerCrash):
                accepted = True
            else:
                functions |= ran[2]
                accepted |= not ran[1]
                lacking = ran[0] if ran[1] and LACKING in ran[0] else lacking
    except OutOfTime:
        accepted = True
    finally:
        worker.stop()
    return {"target": target.name, "absent": "" if accepted else lacking, "code": digest(functions, release)}


def main(folder: Path, release: Path) -> None:
    start_worker_server()
    for file in sorted(path for path in folder.rglob("*.py") if not path.name.startswith("_")):
        try:
            texts = find_targets(str(file))
        except TargetError as error:
            print(json.dumps({"file": file.name, "absent": one_line(error)}), flush=True)
            continue
        for text in texts:
            print(json.dumps({"text": text, **probe(text, release)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
