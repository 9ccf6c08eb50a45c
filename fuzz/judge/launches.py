"""The oracle `launches`: the result of a solution depends on the kernels that its file defines."""

from __future__ import annotations

from fuzz.judge.judgement import LAUNCHES, Evidence
from fuzz.judge.problem import UnsupportedHere
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import SolutionReport, same_words
from fuzz.model.case import Case

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


def accuse(symptom: str, message: str) -> Evidence:
    return Evidence(LAUNCHES, ("launcher",), symptom, message, "high")
