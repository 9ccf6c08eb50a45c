"""What an oracle is: a check of one case, or of several replicas of a plan that ran together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from fuzz.backends.base import Backend
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import OracleSpec
from fuzz.oracles.comparison.bits import Outputs, differing_rows
from fuzz.oracles.comparison.error_bounds import drifting_places
from fuzz.oracles.execution.examination import Examination, stacked_outputs
from fuzz.oracles.execution.rerun import Rerun, run_again
from fuzz.oracles.script_check import SavedFinding, ScriptCheck
from fuzz.target.promises import describe_promise
from fuzz.target.spec import Target


class Oracle(ABC):
    """Looks for one kind of disagreement; `spec` describes it."""

    spec: ClassVar[OracleSpec]

    @property
    def name(self) -> str:
        return self.spec.name

    @abstractmethod
    def applies(self, target: Target, case: Case) -> bool:
        """Whether the oracle can say anything about this case."""

    def runs_on(self, backend: Backend) -> bool:
        """Whether a backend can do what the oracle needs."""
        return True

    @abstractmethod
    def check(self, exams: Sequence[Examination]) -> list[Finding | None]:
        """The finding of each replica, None where there is none. The replicas are of one plan, and have returned."""

    def diagnose(self, exam: Examination, least: Examination) -> tuple[str, ...]:
        """What is wrong in a case with a finding, in sentences that its least case does not contradict."""
        return ()

    @abstractmethod
    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        """How a stand-alone script shows a finding of this oracle."""


class CaseOracle(Oracle):
    """An oracle that looks at each case alone."""

    def check(self, exams: Sequence[Examination]) -> list[Finding | None]:
        return [self.check_case(exam) for exam in exams]

    @abstractmethod
    def check_case(self, exam: Examination) -> Finding | None:
        """The disagreement in one case, or None."""


class RerunOracle(Oracle):
    """An oracle that runs the last call again with something changed, and compares the results of both runs."""

    def check(self, exams: Sequence[Examination]) -> list[Finding | None]:
        findings: list[Finding | None] = [None] * len(exams)
        for rerun in self.reruns(exams) if exams else ():
            pending = [place for place, row in enumerate(rerun.rows) if findings[row] is None]
            if pending:
                some = rerun.select(pending)
                (results,) = run_again([(exams, some)])
                compare_results(exams, some, results, findings)
        return findings

    @abstractmethod
    def reruns(self, exams: Sequence[Examination]) -> Iterator[Rerun]:
        """The reruns of a case, or of replicas of one stack, and how their results compare."""


def check_reruns(
    checks: Sequence[tuple[RerunOracle, Sequence[Examination]]],
) -> list[list[Finding | None]]:
    """What `check` gives of each oracle and its replicas of one stack; reruns of all oracles run at once."""
    findings: list[list[Finding | None]] = [[None] * len(exams) for _, exams in checks]
    reruns = [
        (exams, rerun, found)
        for (oracle, exams), found in zip(checks, findings, strict=True)
        for rerun in (oracle.reruns(exams) if exams else ())
    ]
    results = run_again([(exams, rerun) for exams, rerun, _ in reruns])
    for (exams, rerun, found), some in zip(reruns, results, strict=True):
        compare_results(exams, rerun, some, found)
    return findings


def compare_results(
    exams: Sequence[Examination],
    rerun: Rerun,
    results: Iterable[tuple[Sequence[int], Outputs]],
    findings: list[Finding | None],
) -> None:
    """Compares the (rows, outputs) of a rerun with the first run, and adds the findings of rows that have none."""
    for rows, outputs in results:
        some = [exams[row] for row in rows]
        pairs = rerun.pairs(stacked_outputs(some), outputs)
        places = [place for place in differing_rows(pairs) if findings[rows[place]] is None]
        if places and rerun.bound_of:
            places = drifting_places(some, pairs, places, rerun.bound_of)
        if places and rerun.wrong:
            places = [places[place] for place in rerun.wrong([some[place] for place in places])]
        for place in places:
            pair = {name: (one[place], other[place]) for name, (one, other) in pairs.items()}
            findings[rows[place]] = rerun.compare(exams[rows[place]], pair)


def name_promise(finding: Finding | None, target: Target, keyword: str, less: str = "") -> Finding | None:
    """The finding whose message says which promise was broken, where it was made, and how to promise less."""
    return finding and replace(finding, message=f"{finding.message}; {describe_promise(target, keyword, less)}")
