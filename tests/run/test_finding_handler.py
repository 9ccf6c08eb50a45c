"""What disagrees ends as one entry for each cause, whoever else saves entries meanwhile."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bugs import make_bug, wrong_value

from fuzz import corpus
from fuzz.model.case import Case
from fuzz.run.deduplicate import known_bugs
from fuzz.run.finding_handler import Disagreement, FindingHandler
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.worker.protocol import WorkerConfig


def make_handler(target: Target, folder: Path, **how: Any) -> FindingHandler:
    """A handler whose triage finds no smaller case."""
    triage: Any = SimpleNamespace(shrink=lambda bug, budget: None)
    config, options = WorkerConfig(target.name, None, "cpu"), RunOptions(target.name, corpus=folder)
    return FindingHandler(options, target, config, folder, {}, triage, Watcher(), 0.0, with_cross_checks=False, **how)


def first_seen(bug: Bug) -> Disagreement:
    return Disagreement(0, 0.0, bug.case, bug.finding)


def test_other_outputs_are_another_cause_until_they_are_seen_together(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    small, large = two_cases
    handler = make_handler(layernorm, tmp_path)
    one, other = make_bug(small, "dbias"), make_bug(large, "dweight")
    for bug in (one, other):
        handler.add_bug(bug, first_seen(bug))
    assert handler.bugs == [one, other] and len(list(corpus.entry_files([tmp_path]))) == 2
    handler.record_hit(one, Disagreement(7, 1.0, small, wrong_value("dbias", "dweight")))
    assert handler.bugs == [one] and one.hits == 3 and one.outputs == {"dbias", "dweight"}
    assert [str(path) for path in corpus.entry_files([tmp_path])] == [one.path]


@pytest.mark.parametrize("keep_smaller", [True, False])
def test_a_cause_that_another_run_saves_meanwhile_is_not_saved_twice(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path, keep_smaller: bool
) -> None:
    small, large = two_cases
    runs = [make_handler(layernorm, tmp_path, keep_smaller_duplicate=keep_smaller) for _ in range(2)]
    for run, case in zip(runs, (large, small), strict=True):
        bug = make_bug(case, "dx")
        run.add_bug(bug, first_seen(bug))
    assert len(list(corpus.entry_files([tmp_path]))) == 1
    assert [(one.known, one.hits) for run in runs for one in run.bugs] == [(False, 1), (True, 1)]


def test_a_campaign_saves_no_second_entry_of_a_cause_that_it_knows(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    small, large = two_cases
    for case, keep_smaller, count in ((large, True, 1), (small, False, 1), (small, True, 2)):
        run = make_handler(layernorm, tmp_path, keep_smaller_duplicate=keep_smaller)
        run.bugs += known_bugs(tmp_path, layernorm, None)
        bug = make_bug(case, "dx")
        run.add_bug(bug, first_seen(bug))
        assert len(list(corpus.entry_files([tmp_path]))) == count
