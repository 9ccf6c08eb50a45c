"""What a run has seen: cases that were refused or could not run count only as that."""

from __future__ import annotations

import pytest

from fuzz.model.case import Case
from fuzz.model.outcome import NotRun, Rejected
from fuzz.search.statistics import RunStatistics
from fuzz.worker.protocol import Report, report_outcome


@pytest.mark.parametrize(("outcome", "counts"), [(Rejected("no"), (3, 2, 0)), (NotRun("others hold it"), (3, 0, 2))])
def test_a_case_that_could_not_run_is_neither_rejected_nor_a_finding(
    case: Case, outcome: Rejected | NotRun, counts: tuple[int, int, int]
) -> None:
    statistics, report = RunStatistics(), report_outcome(outcome)
    statistics.learn(case, report, Report("returned", False, (), ("fault", "accuracy")), report)
    assert (statistics.cases, statistics.rejected, statistics.not_run) == counts
    assert report.findings == () and statistics.oracles == {"fault": 1, "accuracy": 1}
    assert sum(statistics.dtypes.values()) == len(case.last.tensors)
