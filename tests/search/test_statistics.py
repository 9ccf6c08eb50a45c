"""What a run has seen: cases that were refused or could not run count only as that."""

from __future__ import annotations

import pytest

from fuzz.model.case import Case
from fuzz.model.outcome import NotRun, Rejected
from fuzz.model.recipes import recipe
from fuzz.search.statistics import RunStatistics
from fuzz.worker.protocol import Report, report_of_outcome


@pytest.mark.parametrize(("outcome", "counts"), [(Rejected("no"), (3, 2, 0)), (NotRun("others hold it"), (3, 0, 2))])
def test_a_case_that_could_not_run_is_neither_rejected_nor_a_finding(
    case: Case, outcome: Rejected | NotRun, counts: tuple[int, int, int]
) -> None:
    statistics, report = RunStatistics(), report_of_outcome(outcome)
    statistics.learn(case, report, Report("returned", False, (), ("fault", "accuracy")), report)
    assert (statistics.cases, statistics.rejected, statistics.not_run) == counts
    assert report.findings == () and statistics.oracles == {"fault": 1, "accuracy": 1}
    assert sum(statistics.dtypes.values()) == len(case.last.tensors)


def test_statistics_count_rejected_cases_apart(case: Case) -> None:
    statistics = RunStatistics()
    statistics.learn(case, Report("rejected: no", True, (), ()))
    statistics.learn(case, Report("returned", False, (), ("fault", "accuracy"), 0.5))
    assert (statistics.cases, statistics.rejected, statistics.worst) == (2, 1, 0.5)
    assert dict(statistics.oracles) == {"fault": 1, "accuracy": 1}
    shares = statistics.distribution()
    assert shares["dims"] == {"N": {"least": 2, "most": 2}}
    assert shares["recipes"] == {recipe("normal").name: 0.5, "exact": 0.5}
