"""Judges a mutant by many cases beside the good kernel, with nothing of the fuzzer's but its cases and its memory.

python -m benchmarks.mutations.brute_force TARGET --record FILE     runs the good kernel and keeps what it gave
python -m benchmarks.mutations.brute_force TARGET --against FILE    runs a mutant on the same cases, and judges it

live             on some case it fails, touches memory that it must not, gives NaN or an infinity where the good kernel
                 gives none, or errs by more than FACTOR times the most that the good kernel errs there, of which half
                 a unit in the last place of the output's largest element is the least
does not compile it is not live, and the compiler refuses it in some dtype that the good kernel takes
within rounding  its bits differ somewhere, by no more than that
equivalent       the same bits on every case
undecided        the time ended before all cases had run, and none of those shows that it is live
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from fuzz.backends import backend
from fuzz.backends.execute import FatalError, run
from fuzz.errors import FuzzError
from fuzz.model.case import Case
from fuzz.model.outcome import CompileError, Outcome, Rejected, Returned
from fuzz.oracles.comparison.bits import same_bits
from fuzz.oracles.comparison.expected import evaluate_reference
from fuzz.oracles.execution.examination import Examination
from fuzz.search.engines.random import RandomEngine
from fuzz.target.loader import load
from fuzz.target.spec import Target

FACTOR = 8.0
LARGEST = 1 << 14
"""Elements of a case, at most."""
SLOWEST = 30
"""Seconds after which a call that does not end ends the process, by SIGALRM."""
SEED = 77
"""Another one than that of the runs that are to kill."""
LIVE, STILLBORN, ROUNDING, EQUIVALENT = "live", "does not compile", "within rounding", "equivalent"
UNDECIDED = "undecided"
STRONGEST = (LIVE, STILLBORN, ROUNDING, EQUIVALENT)
"""What is said of a mutant where its cases differ: the first that some case shows."""


@dataclass(frozen=True)
class Judgement:
    """What brute force says of a mutant, on which case (of how many), and why."""

    name: str
    cases: int
    why: str = ""


@dataclass(frozen=True)
class Behaviour:
    """What a kernel did on a case: the kind of outcome, outputs by name, and lines on memory that is wrong."""

    kind: str
    outputs: dict[str, torch.Tensor]
    faults: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()


def cases(target: Target, count: int) -> Iterator[Case]:
    """Single small calls in the order in which the engine `random` draws them."""
    engine = RandomEngine(target, SEED)
    drawn = (engine.case(number) for number in range(1 << 30))
    yield from islice((case for case in drawn if len(case.calls) == 1 and case.elements() <= LARGEST), count)


def run_case(target: Target, case: Case) -> tuple[Behaviour, Outcome]:
    """Runs the target on a case."""
    try:
        outcome = run(target, target.launcher, case.calls, backend("cpu"))
    except FatalError as error:
        outcome = error.outcome
    except FuzzError as error:
        return Behaviour(type(error).__name__, {}), Rejected(str(error))
    if not isinstance(outcome, Returned):
        return Behaviour(type(outcome).__name__, {}), outcome
    (result,) = outcome.calls
    faults = [f"{access.kind} outside of {access.buffer}" for access in result.accesses]
    faults += [f"{write.argument} is written" for write in result.writes]
    faults += [f"{name} is not written everywhere" for name in result.unwritten]
    return Behaviour("Returned", dict(result.outputs), tuple(faults), tuple(result.kernels)), outcome


def compare(target: Target, case: Case, good: Behaviour) -> Judgement:
    """Judges the mutant by one case."""
    signal.alarm(SLOWEST)
    bad, outcome = run_case(target, case)
    signal.alarm(0)
    if isinstance(outcome, CompileError) and bad.kind != good.kind:
        return Judgement(STILLBORN, 0, outcome.message)
    if bad.kind != good.kind:
        return Judgement(LIVE, 0, f"{bad.kind} instead of {good.kind}")
    if new := [line for line in bad.faults if line not in good.faults]:
        return Judgement(LIVE, 0, new[0])
    differing = [name for name, output in good.outputs.items() if not bool(same_bits(bad.outputs[name], output).all())]
    if not differing:
        return Judgement(EQUIVALENT, 0)
    exam = Examination(target, target.launcher, case, backend("cpu"), outcome)
    known = evaluate_reference(exam, 0, 0)
    reasons = [describe_error(name, good.outputs[name], bad.outputs[name], known[name].value) for name in differing]
    return next((Judgement(LIVE, 0, why) for why in reasons if why), Judgement(ROUNDING, 0))


def describe_error(name: str, good: torch.Tensor, bad: torch.Tensor, value: torch.Tensor) -> str:
    """Why an output that differs makes a mutant live, or nothing."""
    if not good.is_floating_point():
        return f"{name} differs"
    if not torch.equal(torch.isfinite(good), torch.isfinite(bad)):
        return f"{name} is not finite elsewhere"
    decided = torch.isfinite(good) & torch.isfinite(value)
    exact = torch.where(decided, value, 0.0)
    errors = [float((torch.where(decided, one.double(), 0.0) - exact).abs().max()) for one in (good, bad)]
    least = float(exact.abs().max()) * torch.finfo(good.dtype).eps / 2 + torch.finfo(good.dtype).tiny
    ratio = errors[1] / max(errors[0], least)
    return f"{name} errs by {errors[1]:.3g}, the good kernel by {errors[0]:.3g}" if ratio > FACTOR else ""


def record(target: Target, count: int) -> list[Behaviour]:
    """What the good kernel does, case by case."""
    return [run_case(target, case)[0] for case in cases(target, count)]


def judge(target: Target, expected: list[Behaviour], seconds: float) -> Judgement:
    """Judges a mutant by all cases, or until one shows that it is live; undecided where the time ends before."""
    end, name = time.monotonic() + seconds, EQUIVALENT
    for number, (case, good) in enumerate(zip(cases(target, len(expected)), expected, strict=True)):
        if time.monotonic() > end:
            return Judgement(UNDECIDED, number, f"the cases were not done within {seconds:g} s")
        found = compare(target, case, good)
        if found.name == LIVE:
            return Judgement(LIVE, number + 1, found.why)
        name = min(name, found.name, key=STRONGEST.index)
    return Judgement(name, len(expected))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target")
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=1800.0, help="after which a mutant is undecided")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--against", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    target = load(asked.target)
    backend("cpu").prepare()
    if asked.record:
        kept = [tuple(vars(one).values()) for one in record(target, asked.cases)]
        torch.save(kept, asked.record)
        print(json.dumps(sorted({name for one in kept for name in one[-1]})))
    else:
        expected: list[Any] = torch.load(asked.against)
        found = judge(target, [Behaviour(*one) for one in expected], asked.seconds)
        print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
