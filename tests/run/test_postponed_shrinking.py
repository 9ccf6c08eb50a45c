"""Shrinking that takes long is postponed while something waits that is like nothing before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from bugs import make_bug, wrong_value
from handlers import NothingSmaller, first_seen, make_handler, take_triage

from fuzz import corpus
from fuzz.model.case import Case
from fuzz.model.finding import Finding, Verdict
from fuzz.model.rate import Rate
from fuzz.model.recipes import recipe
from fuzz.run.findings.finding_handler import FindingHandler
from fuzz.run.watcher import Watcher
from fuzz.shrink.passes import usual_inputs
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.bug import SHRINKING, Bug
from fuzz.triage.input_classes import is_usual
from fuzz.triage.severity import GRADING
from fuzz.triage.triggers import Trigger
from fuzz.worker.deadline import Deadline, OutOfTime


class Shrunk(Watcher):
    """Notes the bugs that were reported, with how they were then, and those of which nothing is left to do."""

    def __init__(self) -> None:
        self.bugs: list[tuple[Bug, str]] = []
        self.triaged: list[Bug] = []
        self.merged: list[Bug] = []

    def on_shrunk(self, bug: Bug) -> None:
        self.bugs.append((bug, bug.cut_off))

    def on_triaged(self, bug: Bug) -> None:
        self.triaged.append(bug)

    def on_merged(self, bug: Bug, index: int) -> None:
        self.merged.append(bug)


class InTwoSteps(NothingSmaller):
    """Triage that is postponed once: the first step takes `cases[0]`, the second one `cases[1]`."""

    steps: Iterator[Case]

    def shrink(self, bug: Bug, budget: Budget) -> None:
        bug.cut_off, case = SHRINKING, next(self.steps)
        bug.least = replace(bug.least, case=case)
        budget.started -= 3.0
        bug.cut_off = "" if budget.left() else SHRINKING


@pytest.fixture
def handler(two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path) -> FindingHandler:
    """One whose triage is postponed once; its tasks wait in `tasks`."""
    handler = make_handler(layernorm, tmp_path, deadline=Deadline())
    small, large = two_cases
    triage = InTwoSteps(layernorm, handler.triage.worker, ())
    triage.steps = iter([large, small, small, small])
    news = iter([True])
    handler.budgets.time_limit, handler.budgets.has_news = 60.0, lambda: next(news, False)
    take_triage(handler, triage)
    handler.attribution.triage, handler.saver.watcher = triage, Shrunk()
    return handler


def tasks_of(handler: FindingHandler) -> list[Any]:
    tasks: list[Any] = []
    handler.postprocessor.defer = tasks.append
    return tasks


def entries(folder: Path) -> list[tuple[Case, str]]:
    """The case of each entry of a folder, and the step at which its triage was cut off."""
    return [(entry.case, entry.provenance.cut_off) for entry in map(corpus.read, corpus.entry_files([folder]))]


def test_a_postponed_bug_is_saved_at_once_and_shrunk_further_later(
    handler: FindingHandler, two_cases: tuple[Case, Case], tmp_path: Path
) -> None:
    small, large = two_cases
    tasks, bug = tasks_of(handler), make_bug(large, "dx")
    assert handler.add_bug(bug, first_seen(bug))
    assert entries(tmp_path) == [(large, SHRINKING)] and handler.saver.watcher.bugs == []  # type: ignore[attr-defined]
    tasks.pop()()
    assert entries(tmp_path) == [(small, "")] and handler.bugs == [bug] and not tasks
    assert bug.least.diagnosis == ()
    assert handler.saver.watcher.bugs == [(bug, "")]  # type: ignore[attr-defined]


def test_a_bug_that_is_shrunk_further_counts_as_postponed_meanwhile(
    handler: FindingHandler, two_cases: tuple[Case, Case]
) -> None:
    """What it may explain would be news otherwise, for which it would be postponed again each time."""
    tasks, bug, postponed = tasks_of(handler), make_bug(two_cases[1], "dx"), list[bool]()

    def has_news() -> bool:
        postponed.append(bug.is_postponed)
        return len(postponed) == 1

    handler.budgets.has_news = has_news
    handler.add_bug(bug, first_seen(bug))
    assert postponed[0] is False and bug.is_postponed
    tasks.pop()()
    assert len(postponed) > 1 and all(postponed[1:]) and not bug.is_postponed


def test_a_postponed_bug_that_time_does_not_allow_to_shrink_further_is_reported_at_the_end(
    handler: FindingHandler, two_cases: tuple[Case, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain(bug: Bug) -> None:
        bug.least = replace(bug.least, verdict=Verdict("pending"))
        raise OutOfTime

    tasks, bug = tasks_of(handler), make_bug(two_cases[1], "dx")
    handler.add_bug(bug, first_seen(bug))
    monkeypatch.setattr(handler.triage, "explain", explain)
    tasks.pop()()
    assert (bug.case, bug.cut_off, bug.least.verdict.name) == (two_cases[1], SHRINKING, "unadjudicated")
    assert handler.saver.watcher.bugs == [(bug, SHRINKING)]  # type: ignore[attr-defined]
    assert handler.saver.watcher.triaged == [bug]  # type: ignore[attr-defined]
    assert entries(tmp_path) == [(two_cases[1], SHRINKING)]


def test_the_last_part_of_a_run_is_spent_on_grades_alone(
    handler: FindingHandler, two_cases: tuple[Case, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on a smaller case, nor on what the bug needs, by which it would be compared with others."""
    handler.postprocessor.with_grades = True
    tasks, bug = tasks_of(handler), make_bug(two_cases[1], "dx")
    handler.add_bug(bug, first_seen(bug))
    handler.budgets.deadline.end_now()
    never = Mock(side_effect=AssertionError)
    monkeypatch.setattr(handler.triage, "explain", never)
    monkeypatch.setattr(handler.triage, "find_triggers", never)
    monkeypatch.setattr(handler.saver, "find_same_cause", never)
    tasks.pop(0)()
    assert bug.waits_for == GRADING and len(tasks) == 1
    assert bug.case == two_cases[1] and entries(tmp_path) == [(two_cases[1], SHRINKING)]
    assert [one for one, _ in handler.saver.watcher.bugs] == [bug]  # type: ignore[attr-defined]


def test_a_smaller_case_that_is_undecided_is_not_taken(
    handler: FindingHandler, two_cases: tuple[Case, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explain(bug: Bug) -> None:
        bug.least = replace(bug.least, verdict=Verdict("undecided"))

    tasks, bug = tasks_of(handler), make_bug(two_cases[1], "dx")
    handler.add_bug(bug, first_seen(bug))
    monkeypatch.setattr(handler.triage, "explain", explain)
    tasks.pop()()
    assert entries(tmp_path) == [(two_cases[1], "")] and handler.bugs == [bug]


@pytest.mark.parametrize("is_better", [True, False])
def test_a_postponed_bug_is_merged_with_one_of_which_it_is_known_only_then_to_have_the_cause(
    handler: FindingHandler, two_cases: tuple[Case, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    is_better: bool,
) -> None:  # fmt: skip
    small, large = two_cases
    tasks, bug = tasks_of(handler), make_bug(large, "dx")
    handler.add_bug(bug, first_seen(bug))
    other = make_bug(large if is_better else small, "dbias", triggers=())
    handler.triage.steps = iter([other.case, small])  # type: ignore[attr-defined]
    handler.add_bug(other, first_seen(other))
    monkeypatch.setattr(handler.attribution, "have_same_cause", lambda old, new: True)
    monkeypatch.setattr(handler.attribution, "is_better", lambda new, old: is_better)
    tasks.pop(0)()
    assert handler.bugs == [other] and entries(tmp_path) == [(small, "")] and other.hits == 2
    watcher: Any = handler.saver.watcher
    reported = [(other, ""), (other, "")] if is_better else [(other, "")]
    assert watcher.bugs == reported and watcher.triaged[-1] is other and watcher.merged == [other] * (not is_better)
    assert not other.least.diagnosis


@pytest.mark.parametrize("blames_reference", [False, True])
def test_what_the_smaller_case_does_not_show_any_more_is_handled_once_more(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch, blames_reference: bool
) -> None:
    tasks, bug = tasks_of(handler), make_bug(two_cases[1], "dx", "dbias")
    handler.add_bug(bug, first_seen(bug))

    def shrink(bug: Bug, budget: Budget) -> None:
        bug.least = replace(bug.least, case=two_cases[0], finding=wrong_value("dx"))

    def explain(bug: Bug) -> None:
        blamed = replace(bug.finding, symptom="reference") if blames_reference else bug.finding
        bug.least = replace(bug.least, finding=blamed)

    monkeypatch.setattr(handler.triage, "explain", explain)
    if blames_reference:
        bug.least = replace(bug.least, finding=replace(bug.finding, symptom="reference"))
    handled: list[Any] = []
    monkeypatch.setattr(handler.triage, "shrink", shrink)
    monkeypatch.setattr(handler.shrinker, "handle", lambda *what: handled.append(what))
    tasks.pop()()
    tasks.pop()()
    assert [what[1:3] for what in handled] == [(two_cases[1], [wrong_value("dbias")])]
    assert bug.subjects == wrong_value("dx").subjects == bug.sought.subjects


def test_what_a_postponed_bug_may_explain_is_handled_once_it_is_shrunk(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is filed after that is handled at once."""
    monkeypatch.setattr(handler.triage, "confirm", lambda case, finding, history: make_bug(case, finding=finding))
    tasks, bug = tasks_of(handler), make_bug(two_cases[1], "dx")
    handler.add_bug(bug, first_seen(bug))
    again, other = wrong_value("dx"), Finding("mutation", ("dx",), "written", "m")
    index = bug.origin.index + 1
    left = handler.handle(index, two_cases[1], [again, other], ())
    assert left[-1:] == (again,) and [one.sought.oracle for one in handler.bugs] == ["accuracy", "mutation"]
    tasks.pop()()
    assert handler.handle(index, two_cases[1], left[-1:], ()) == () and bug.hits == 2


def extreme(case: Case) -> Case:
    """A case of one call with huge values."""
    call = case.last
    for name, value in call.tensors.items():
        call = call.with_argument(name, replace(value, values=recipe("huge", 1)))
    return replace(case, calls=(call,), split=None)


def usual(case: Case) -> Case:
    return usual_inputs(replace(case, calls=(case.last,), split=None))


def test_a_postponed_bug_that_extreme_inputs_alone_show_explains_no_wrong_value_of_usual_ones(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a bug of its own, until it is shrunk and known to have the same cause."""
    monkeypatch.setattr(handler.triage, "shows_with_usual_inputs", lambda case, finding: is_usual(case, handler.target))
    monkeypatch.setattr(handler.triage, "confirm", lambda case, finding, history: make_bug(case, finding=finding))
    monkeypatch.setattr(handler.triage, "shrink", lambda bug, budget: None)
    handler.triage.worker.deadline = handler.deadline
    cases, tasks = [extreme(two_cases[1]), usual(two_cases[1])], tasks_of(handler)
    bug = make_bug(cases[0], "dx")
    handler.add_bug(bug, first_seen(bug))
    assert bug.is_postponed and not bug.shown_by_usual
    assert handler.handle(1, cases[0], [wrong_value("dx")], ()) == (wrong_value("dx"),)
    handler.handle(2, cases[1], [wrong_value("dx")], ())
    assert [one.case for one in handler.bugs] == cases and bug.hits == 1
    tasks.pop(0)()
    assert [one.case for one in handler.bugs] == cases[1:]


def test_bugs_that_usual_inputs_show_are_shrunk_further_first(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one that is shrunk meanwhile is postponed for them."""
    tasks = tasks_of(handler)
    bugs = [make_bug(two_cases[0], "dx"), make_bug(two_cases[1], "dbias", shown_by_usual=True)]
    for bug in bugs:
        bug.waits_for = SHRINKING
    handler.bugs += bugs
    shrunk, urgent = list[Bug](), list[bool]()

    def shrink(bug: Bug, budget: Budget) -> None:
        shrunk.append(bug)
        urgent.append(budget.is_urgent())

    handler.budgets.has_news = lambda: False
    monkeypatch.setattr(handler.shrinker, "_save_further", lambda bug: None)
    monkeypatch.setattr(handler.triage, "shrink", shrink)
    monkeypatch.setattr(handler.triage, "shows_with_usual_inputs", lambda case, finding: False)
    handler.shrinker.shrink(bugs[0])
    assert shrunk == bugs[:1] and urgent == [True]
    bugs[0].waits_for = SHRINKING
    for bug in bugs:
        handler.shrinker.defer(bug)
    for _ in range(3):
        tasks.pop(0)()
    assert shrunk[1:] == bugs[::-1] and urgent[1:] == [False, False] and not tasks


def test_after_the_deadline_it_may_explain_what_usual_inputs_show(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler.triage, "shows_with_usual_inputs", lambda case, finding: False)
    tasks_of(handler)
    bug = make_bug(extreme(two_cases[1]), "dx")
    handler.add_bug(bug, first_seen(bug))
    assert bug.is_postponed and not bug.shown_by_usual
    handler.triage.worker.deadline = handler.deadline
    handler.deadline.end_now()
    assert handler.handle(1, usual(two_cases[1]), [wrong_value("dx")], ()) == () and bug.hits == 2


@pytest.mark.parametrize("is_task_first", [False, True])
def test_after_the_deadline_nothing_waits_for_a_postponed_bug(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch, is_task_first: bool
) -> None:
    """What it may explain is a hit: nobody will know more."""

    def out_of_time(bug: Bug) -> None:
        raise OutOfTime

    tasks, bug = tasks_of(handler), make_bug(two_cases[1], "dx")
    handler.add_bug(bug, first_seen(bug))
    handler.deadline.end_now()
    handler.triage.worker.deadline = handler.deadline
    for step in ("explain", "find_triggers"):
        monkeypatch.setattr(handler.triage, step, out_of_time)
    if is_task_first:
        tasks.pop()()
    assert handler.handle(bug.origin.index + 1, two_cases[1], [wrong_value("dx")], ()) == () and bug.hits == 2


def test_a_postponed_bug_that_was_merged_meanwhile_is_not_shrunk(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, bug = tasks_of(handler), make_bug(two_cases[1], "dx")
    handler.add_bug(bug, first_seen(bug))
    handler.bugs.clear()
    monkeypatch.setattr(handler.triage, "shrink", None)
    tasks.pop()()
    assert handler.saver.watcher.bugs == []  # type: ignore[attr-defined]


def test_departures_that_a_smaller_case_no_longer_has_are_left_out(
    handler: FindingHandler, two_cases: tuple[Case, Case]
) -> None:
    """And none counts once the bug is not postponed."""
    small, large = two_cases
    tasks, bug = tasks_of(handler), make_bug(large, "dx")
    handler.add_bug(bug, first_seen(bug))
    handler.triage.steps = iter([small])  # type: ignore[attr-defined]
    kept, gone = Trigger("kept", lambda case: large), Trigger("gone", lambda case: small)
    bug.departures = (kept, gone)
    handler.budgets.has_news = lambda: True
    tasks.pop(0)()
    assert bug.is_postponed and bug.case == small and bug.needs == (kept,)
    bug.triggers = (gone,)
    assert bug.needs == (gone,), "where all that it needs is known, that counts"
    bug.waits_for, bug.triggers = "", None
    assert bug.needs == ()


def test_what_is_known_not_to_be_of_a_postponed_bug_is_handled_at_once_where_the_case_is_filed_under_it(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without running a case; what is filed after something else may be a consequence, and waits."""
    lacking, needed = (replace(case, split=None) for case in two_cases)
    monkeypatch.setattr(handler.triage, "confirm", lambda case, finding, history: make_bug(case, finding=finding))
    handler.triage.worker.deadline = handler.deadline
    bug = make_bug(needed, "dx", waits_for=SHRINKING, shown_by_usual=True, rate=Rate(10, 10))
    bug.departures = (Trigger("all", lambda case: lacking),)
    handler.bugs.append(bug)
    again, other = wrong_value("dx"), Finding("mutation", ("dx",), "written", "m")
    assert handler.handle(1, needed, [again], ()) == (again,) and handler.bugs == [bug]
    monkeypatch.setattr(handler.triage, "shown_subjects", Mock(side_effect=OutOfTime))
    assert handler.handle(2, lacking, [other, again], ())[-1:] == (again,)
    assert [one.sought.oracle for one in handler.bugs] == ["accuracy", "mutation"]
    handler.handle(3, lacking, [again], ())
    assert [one.sought.oracle for one in handler.bugs] == ["accuracy", "mutation", "accuracy"] and bug.hits == 1


def test_a_new_bug_does_not_become_one_that_is_postponed_while_it_shrinks(
    handler: FindingHandler, two_cases: tuple[Case, Case]
) -> None:
    postponed, bug = make_bug(two_cases[1], "dx", waits_for=SHRINKING), make_bug(two_cases[1], "dx")
    postponed.departures = (Trigger("all", lambda case: two_cases[0]),)
    handler.bugs.append(postponed)
    handler.add_bug(bug, first_seen(bug))
    assert bug.others == (postponed.departures,)


@pytest.mark.parametrize("is_equal", [True, False])
def test_a_bug_whose_shrinking_ended_in_the_time_for_grades_is_compared_with_equal_ones_only(
    handler: FindingHandler, two_cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch, is_equal: bool
) -> None:
    """What each of two bugs needs takes long to find."""
    small, large = two_cases
    tasks, bug = tasks_of(handler), make_bug(large, "dx")
    handler.add_bug(bug, first_seen(bug))
    other = make_bug(small, "dx" if is_equal else "dbias", triggers=())
    handler.bugs.append(other)
    explain = handler.triage.explain

    def explain_late(bug: Bug) -> None:
        explain(bug)
        handler.budgets.deadline = Deadline.after(10.0, time.monotonic())

    monkeypatch.setattr(handler.triage, "explain", explain_late)
    if not is_equal:
        monkeypatch.setattr(handler.triage, "find_triggers", Mock(side_effect=AssertionError))
    tasks.pop(0)()
    assert handler.bugs == ([other] if is_equal else [bug, other])
