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
from fuzz.judge.processes.requests import Outputs, SolutionReport, same_words
from fuzz.judge.result.judgement import LAUNCHES, Evidence
from fuzz.judge.script import RACES, WAITS
from fuzz.model.case import Call, Case
from fuzz.model.finding import finding_order

UNSUPPORTED_ERRORS = ("UnsupportedOperation", "CompilerFailed", "NoCompiler", "CompilerTimeout")


def examine_launches(worker: IsolatedWorker, case: Case) -> Evidence | None:
    """The evidence that no result depends on the kernels; None where one does, or there are none.

    Raises UnsupportedHere where they cannot be run on this machine.
    """
    log = worker.log
    if not log.launches:
        if log.kernels_defined and log.trouble:
            if log.trouble.startswith(UNSUPPORTED_ERRORS):
                raise UnsupportedHere(f"a kernel cannot be run here: {log.trouble}")
            return accuse("fallback", f"its kernels raise, it goes on without them: {log.trouble}")
        return accuse("unused", "it defines kernels and never launches one") if log.kernels_defined else None
    with_launches, without = worker.run(case), worker.run(case, launch=False)
    if isinstance(with_launches, SolutionReport) and isinstance(without, SolutionReport):
        if with_launches.launches and all(map(same_words, with_launches.outputs, without.outputs)):
            return accuse("independent", "its result is the same where its kernels are not launched")
    return None


def examine_copies(worker: IsolatedWorker, cases: Iterable[Case]) -> Evidence | None:
    """The evidence that in each of these cases every launch writes nothing but copies of what it is given.

    Where the reference itself only moves values, kernels that do so are what is asked for.
    """
    for case in cases:
        ran = worker.run(case, copies=True)
        if not isinstance(ran, SolutionReport) or not ran.only_copies or moves_values(case.last, ran.outputs[-1]):
            return None
    return accuse("independent", "its kernels compute nothing: each writes, bit for bit, a copy of what it is given")


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
    if WAITS.search(solution.read_text(encoding="utf-8", errors="replace")):
        return
    ran = worker.run(case, races=True)
    if not isinstance(ran, SolutionReport):
        return
    races = [one for one in ran.findings if one.symptom in RACES]
    updated = set.intersection(*({one.outputs for one in races if one.symptom == symptom} for symptom in RACES))
    places = {one.source_line: one for one in reversed(races) if one.outputs in updated}
    for finding in sorted(places.values(), key=finding_order):
        yield Evidence(
            finding.oracle, finding.outputs, finding.symptom, finding.message, "medium", "ordinary", case,
            details=(f"at {finding.source_line}", "programs that run at once lose updates"),
        )  # fmt: skip
