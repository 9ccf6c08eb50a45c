"""The oracle `launches`: the result of a solution depends on the kernels that its file defines.

And the races between the programs of its launches: of updates of one element by several of them some may be lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.judge.problem.description import UnsupportedHere
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import Outputs, SolutionReport, TensorWords, same_words
from fuzz.judge.result.judgement import LAUNCHES, Evidence
from fuzz.judge.script import RACES
from fuzz.judge.waiting import waits
from fuzz.model.case import Call, Case
from fuzz.model.finding import filing_order

FILLS = (0, 1)
"""What unwritten memory holds beside poison where launches are left out: numbers that change no sum or product."""
UNSUPPORTED_ERRORS = ("UnsupportedOperation", "CompilerFailed", "NoCompiler", "CompilerTimeout")


def examine_launches(worker: IsolatedWorker, case: Case, others: Iterable[Case] = ()) -> Evidence | None:
    """The evidence that no result depends on the kernels; None where one does, or there are none.

    Kernels whose memory can hold zeros or ones instead, and no result changes, contribute nothing where that is so in
    the `others` too. Raises UnsupportedHere where the kernels cannot be run on this machine,
    or the solution may leave them out because it has no GPU.
    """
    log = worker.log
    if not log.launches:
        if log.trouble:
            if log.trouble.startswith(UNSUPPORTED_ERRORS):
                raise UnsupportedHere(f"a kernel cannot be run here: {log.trouble}")
            return accuse("fallback", f"its kernels raise, it goes on without them: {log.trouble}")
        if log.kernels_defined and worker.asks_for_gpu:
            raise UnsupportedHere("it looks for a GPU by the name of a device, and launches no kernel without one")
        return accuse("unused", "it defines kernels and never launches one") if log.kernels_defined else None
    text = "its result is the same where its kernels are not launched"
    if is_independent(worker, [case]):
        return accuse("independent", text)
    cases = (case, *others)
    for fill in FILLS:
        if is_independent(worker, cases, fill):
            return accuse("independent", f"{text} and their memory holds {fill}")
    return None


def is_independent(worker: IsolatedWorker, cases: Iterable[Case], fill: float | None = None) -> bool:
    """Whether each case's outputs are the same without its launches, memory that nobody wrote holding `fill`.

    With a number to fill it, outputs that are one number throughout say nothing: kernels may have written just that.
    """
    says_something = False
    for case in cases:
        with_launches, without = worker.run(case), worker.run(case, launch=False, fill=fill)
        if not isinstance(with_launches, SolutionReport) or not isinstance(without, SolutionReport):
            return False
        outputs = with_launches.outputs
        if fill is not None and any(is_constant(one) for call in outputs for one in call.values()):
            continue
        if not with_launches.launches or not all(map(same_words, outputs, without.outputs)):
            return False
        says_something = True
    return says_something


def is_constant(output: TensorWords) -> bool:
    """Whether all elements have the same words."""
    words = output.words.reshape(-1)
    return bool((words == words[:1]).all())


def examine_copies(worker: IsolatedWorker, cases: Iterable[Case]) -> Evidence | None:
    """The evidence that in each of these cases every launch writes nothing but copies of what it is given.

    Where the reference itself only moves values, kernels that do so are what is asked for.
    """
    for case in cases:
        ran = worker.run(case, copies=True)
        if not isinstance(ran, SolutionReport) or not ran.only_copies or moves_values(case.last, ran.outputs[-1]):
            return None
    return accuse("independent", "its kernels compute nothing: each writes, bit for bit, a copy of what it is given")


def examine_constants(worker: IsolatedWorker, cases: Iterable[Case]) -> Evidence | None:
    """The evidence that all that launches write are the same few numbers in each of these cases, of other values."""
    runs = [worker.run(case, copies=True) for case in cases]
    reports = [one for one in runs if isinstance(one, SolutionReport)]
    outputs = [one.outputs[-1] for one in reports]
    if len(reports) < len(runs) or any(is_constant(value) for one in outputs for value in one.values()):
        return None
    if not reports[0].written or any(one.written != reports[0].written for one in reports):
        return None
    return accuse("independent", "its kernels compute nothing: each writes one number, the same whatever it is given")


def moves_values(call: Call, outputs: Outputs) -> bool:
    """Whether all outputs have no other words than those of the arguments of their dtype, and zeros."""
    words: dict[str, list[Any]] = defaultdict(lambda: [np.zeros(1, np.uint8)])
    for one in call.arguments.values():
        words[one.dtype].append(one.bits(call.dims).reshape(-1))
    return all(bool(np.isin(one.words, np.concatenate(words[one.dtype])).all()) for one in outputs.values())


def accuse(symptom: str, message: str) -> Evidence:
    return Evidence(LAUNCHES, ("launcher",), symptom, message, "high")


def find_lost_updates(worker: IsolatedWorker, case: Case, solution: Path) -> Iterator[Evidence]:
    """Buffers of which programs load what others store, and store something else, without atomics.

    None where programs may wait for each other.
    """
    if waits(solution):
        return
    ran = worker.run(case, races=True)
    if not isinstance(ran, SolutionReport):
        return
    races = [one for one in ran.findings if one.symptom in RACES]
    updated = set.intersection(*({one.outputs for one in races if one.symptom == symptom} for symptom in RACES))
    places = {one.source_line: one for one in reversed(races) if one.outputs in updated}
    for finding in sorted(places.values(), key=filing_order):
        yield Evidence(
            finding.oracle, finding.outputs, finding.symptom, finding.message, "medium", "ordinary", case,
            details=(f"at {finding.source_line}", "programs that run at once lose updates"),
        )  # fmt: skip
