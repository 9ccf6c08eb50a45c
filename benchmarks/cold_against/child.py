"""What one process measures with whatever checkout it imports: it uses only what both have.

    python child.py specialisations TARGET PLANS
    python child.py plans TARGET SECONDS
    python child.py rates TARGET PLANS
    python child.py warm TARGET PLANS

Prints a value in JSON as the last line of its standard output.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

LATER_PLAN = 256
"""The first plan that has many replicas."""
REPEATS = 100


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def specialisations(target_name: str, plans: int) -> dict[str, list[float]]:
    """Runs the first plans of a target in this process: by kernel, the seconds of each launch that compiled it."""
    from triton.runtime.jit import JITFunction

    found: dict[str, list[float]] = defaultdict(list)
    compiled: list[str] = []
    compile_kernel, launch = JITFunction._do_compile, JITFunction.run

    def compile_noted(self: Any, *arguments: Any, **options: Any) -> Any:
        compiled.append(self.fn.__name__)
        return compile_kernel(self, *arguments, **options)

    def launch_measured(*arguments: Any, **options: Any) -> Any:
        compiled.clear()
        start = processor_seconds()
        result = launch(*arguments, **options)
        if len(compiled) == 1:
            found[compiled[0]].append(processor_seconds() - start)
        return result

    runs = first_plans(target_name, plans)
    JITFunction._do_compile, JITFunction.run = compile_noted, launch_measured
    for run_plan in runs:
        run_plan()
    return found


def warm(target_name: str, plans: int) -> dict[str, float]:
    """Runs each of the first plans of a target many times: by kernel, seconds of its launches when they are fastest.

    The sum over the launches of a plan; kernels have their optimised code from the start.
    """
    os.environ["FUZZ_CPU_COMPILER"] = "optimising"
    from triton.runtime.jit import JITFunction

    launch, launches = JITFunction.run, []

    def launch_measured(self: Any, *arguments: Any, **options: Any) -> Any:
        start = time.perf_counter()
        result = launch(self, *arguments, **options)
        launches.append((self.fn.__name__, time.perf_counter() - start))
        return result

    runs, sums = first_plans(target_name, plans), defaultdict(float)
    JITFunction.run = launch_measured
    for run_plan in runs:
        repeats = []
        # The first one compiles, and lets autotuners choose.
        for _ in range(1 + REPEATS):
            launches.clear()
            run_plan()
            repeats.append(list(launches))
        for same in zip(*repeats[1:], strict=True):
            sums[same[0][0]] += min(seconds for _, seconds in same)
    return sums


def first_plans(target_name: str, plans: int) -> list[Callable[[], Any]]:
    """Sets this process up as a worker of the target: what runs each of its first plans."""
    preload()
    from fuzz.backends.execute import run
    from fuzz.oracles.examine import set_up_process
    from fuzz.search.engines.random import RandomEngine
    from fuzz.worker.protocol import WorkerConfig

    target, launcher, backend = set_up_process(WorkerConfig(target_name, None, "cpu", counters=True))
    engine = RandomEngine(target, 0)
    return [partial(run, target, launcher, engine.case(number).calls, backend) for number in range(plans)]


def preload() -> None:
    """Does before what a process does once, as in a worker, which is forked from a process that has done it."""
    with suppress(ImportError):
        import_module("fuzz.oracles.execution.preload")


def rates(target_name: str, plans: int) -> dict[str, float]:
    """Runs and examines plans as a worker does: how many cases, in how many seconds of the processor."""
    preload()
    from fuzz.backends import BACKENDS
    from fuzz.model.oracle_specs import sample_oracles
    from fuzz.oracles.examine import make_handler
    from fuzz.search.engines.random import RandomEngine
    from fuzz.target.loader import load
    from fuzz.worker.protocol import ReplicaGroup, WorkerConfig

    limits = BACKENDS["cpu"].replica_limits(guided=False)
    engine, index = RandomEngine(load(target_name), 0, first=LATER_PLAN, limits=limits), 0
    groups = []
    for proposal in (engine.propose() for _ in range(plans)):
        size = proposal.replica_count
        asked = tuple(sample_oracles(index + replica, size) for replica in range(size))
        groups.append(ReplicaGroup(proposal.plan, asked, index))
        index += size
    handle = make_handler(WorkerConfig(target_name, None, "cpu", counters=True))
    start = processor_seconds()
    for group in groups:
        handle(group)
    return {"cases": index, "seconds": processor_seconds() - start}


def plans(target: str, seconds: float) -> None:
    """`fuzz run` for so many seconds: its plans and cases."""
    from fuzz.cli import main
    from fuzz.run.fuzzer import Fuzzer

    counts = {"plans": 0, "cases": 0}
    learn, run = Fuzzer._learn, Fuzzer.run

    def learn_counted(self: Any, group: Any, reports: Any, *rest: Any) -> None:
        counts["plans"] += 1
        counts["cases"] += len(reports)
        learn(self, group, reports, *rest)

    def run_and_print(self: Any) -> Any:
        result = run(self)
        # Counts of a run that failed would be taken for those of a slow one.
        print(json.dumps(counts), flush=True)
        return result

    Fuzzer._learn, Fuzzer.run = learn_counted, run_and_print  # type: ignore[method-assign]
    main(["run", target, "--seconds", str(seconds), "--backend", "cpu", "--corpus", "findings"])


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "plans":
        plans(arguments[0], float(arguments[1]))
    measure = {"specialisations": specialisations, "rates": rates, "warm": warm}[what]
    print(json.dumps(measure(arguments[0], int(arguments[1]))))
