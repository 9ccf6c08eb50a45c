"""Which disagreement is triaged next: the one least like those before it, the most ordinary inputs first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import pytest
from bugs import make_bug, wrong_value

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import recipe
from fuzz.run.findings.triage_priority import MOST_ASKED, TriagePriority
from fuzz.run.findings.triage_queue import Suspect
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.triggers import Trigger, departures
from fuzz.worker.deadline import Deadline, OutOfTime

FLOOD, RARE = replace(wrong_value("dx"), symptom="nonfinite"), wrong_value("dweight")


def case_of(case: Case, values: str) -> Case:
    """A contiguous case with values by that recipe."""
    for name, value in case.last.tensors.items():
        edited = replace(value, values=recipe(values, 1), layout=CONTIGUOUS, dtype="float32")
        case = case.with_call(0, case.last.with_argument(name, edited))
    return replace(case, split=None)


def suspects(case: Case, *findings: Finding) -> list[Suspect]:
    return [Suspect(index, case, (finding,), ()) for index, finding in enumerate(findings)]


def triaged(order: TriagePriority, waiting: Sequence[Suspect]) -> list[int]:
    """The indices of all that waits, in the order in which it is triaged."""
    left, taken = list(waiting), []
    while left:
        chosen = order.choose(left, False)
        assert chosen is not None
        left.remove(chosen)
        taken.append(chosen.index)
    return taken


def test_a_rare_bug_is_triaged_second_after_a_flood_of_another(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    """However many findings of the first one came before it."""
    waiting = suspects(two_cases[0], *[FLOOD] * 155, RARE)
    assert triaged(TriagePriority(layernorm), waiting) == [0, 155, *range(1, 155)]


def test_the_order_is_the_same_again(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    waiting = suspects(two_cases[0], FLOOD, RARE, wrong_value("dbias"), FLOOD, wrong_value("dx", "dweight"), RARE)
    assert triaged(TriagePriority(layernorm), waiting) == triaged(TriagePriority(layernorm), waiting)


def test_ordinary_inputs_come_before_extreme_ones(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    extreme, ordinary = (case_of(two_cases[0], name) for name in ("huge", "normal"))
    both = [Suspect(0, extreme, (FLOOD,), ()), Suspect(1, ordinary, (RARE,), ())]
    assert triaged(TriagePriority(layernorm), both) == [1, 0]


def test_of_findings_that_are_alike_another_class_of_inputs_comes_first(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    extreme, ordinary = (case_of(two_cases[0], name) for name in ("huge", "normal"))
    waiting = [Suspect(index, ordinary if index else extreme, (FLOOD,), ()) for index in range(3)]
    assert triaged(TriagePriority(layernorm), waiting) == [1, 0, 2]


def test_errors_without_the_pattern_that_is_usual_come_second(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    """Before other classes of inputs; and after one of them the usual ones have their turn."""
    odd = replace(RARE, unlike=("dweight", "offset"))
    waiting = suspects(two_cases[0], *[RARE] * 9, odd, RARE, odd)
    assert triaged(TriagePriority(layernorm), waiting)[:4] == [0, 9, 1, 11]


def test_what_the_present_case_shows_as_well_is_no_reason_to_postpone_it(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    both = replace(FLOOD, outputs=("dx", "dbias"))
    order, (first, *others) = TriagePriority(layernorm), suspects(two_cases[0], FLOOD, both, RARE)
    assert order.choose([first], False) is first
    assert not order.has_news(others[:1]) and order.has_news(others)
    assert order.choose([], True) is None and order.has_news(others[:1])


def test_what_a_postponed_bug_may_explain_waits_for_it(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    both = replace(FLOOD, outputs=("dx", "dbias"))
    bug = make_bug(two_cases[0], finding=FLOOD, waits_for="shrinking", shown_by_usual=True)
    order, waiting = TriagePriority(layernorm, bugs=[bug]), suspects(two_cases[0], both)
    assert not order.has_news(waiting) and order.choose(waiting, True) is None
    bug.waits_for = ""
    assert order.has_news(waiting) and order.choose(waiting, True) is waiting[0]


def test_a_task_waits_for_what_is_unlike_all_before_it_but_not_at_the_end(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    waiting = suspects(two_cases[0], FLOOD, FLOOD, RARE)
    order = TriagePriority(layernorm)
    for expected in (0, 2):
        chosen = order.choose(waiting, True)
        assert chosen is not None and chosen.index == expected
        waiting.remove(chosen)
    assert order.choose(waiting, True) is None and order.choose(waiting, False) is waiting[0]
    late = TriagePriority(layernorm, Deadline.after(5.0, time.monotonic()), reserve=60.0)
    assert late.choose(waiting, True) is None and late.choose([], True) is None


def test_what_is_unlike_all_before_it_is_news_until_it_is_triaged_but_not_at_the_end(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    waiting = suspects(two_cases[0], FLOOD, RARE, FLOOD)
    order = TriagePriority(layernorm)
    for expected in (True, True, False):
        assert order.has_news(waiting) == expected
        chosen = order.choose(waiting, False)
        assert chosen is not None
        waiting.remove(chosen)
    rest = replace(suspects(two_cases[0], wrong_value("dbias"))[0], is_rest=True)
    assert not order.has_news([rest])
    late = TriagePriority(layernorm, Deadline.after(5.0, time.monotonic()), reserve=60.0)
    assert not late.has_news(suspects(two_cases[0], FLOOD))


def test_the_rest_of_a_case_comes_after_what_is_unlike_all_before_it(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    waiting = suspects(two_cases[0], FLOOD, RARE)
    waiting[0] = replace(waiting[0], is_rest=True)
    order = TriagePriority(layernorm)
    assert triaged(order, waiting) == [1, 0] and order.choose(waiting[:1], True) is None


@pytest.mark.parametrize("waits_for", ["shrinking", ""])
def test_wrong_values_of_usual_inputs_are_news_where_extreme_ones_alone_have_shown_them(
    two_cases: tuple[Case, Case], layernorm: Target, waits_for: str
) -> None:
    """Once, and not where the known bug is one that values do not decide."""
    extreme, usual = (case_of(two_cases[0], name) for name in ("huge", "normal"))
    known = make_bug(extreme, finding=FLOOD)
    order = TriagePriority(layernorm)
    order.know([known])
    known.waits_for = waits_for
    waiting = [Suspect(index, case, (FLOOD,), ()) for index, case in enumerate((extreme, usual, usual))]
    assert not known.shown_by_usual and not order.has_news(waiting[:1]) and order.has_news(waiting[:2])
    assert order.choose(waiting, True) is waiting[1]
    del waiting[1]
    assert order.choose([], True) is None and not order.has_news(waiting)
    known.shown_by_usual = True
    assert order.choose(waiting, True) is None
    stray = Finding("bounds", ("dx",), "stray-read", "m")
    order = TriagePriority(layernorm, bugs=[make_bug(extreme, finding=stray, waits_for="shrinking")])
    assert not order.has_news([Suspect(0, usual, (stray,), ())])


def test_each_of_two_bugs_may_be_ruled_out_by_something_else(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    """One is known of extreme inputs alone, and the case lacks what the other one needs."""
    other, needed = two_cases
    usual = case_of(other, "normal")
    bugs = [make_bug(case_of(other, "huge"), finding=FLOOD), make_bug(needed, finding=FLOOD, shown_by_usual=True)]
    bugs[1].triggers = tuple(one for one in departures(needed, layernorm) if one.edit(usual).key == usual.key)
    assert bugs[1].triggers
    order = TriagePriority(layernorm, bugs=bugs)
    order.choose([Suspect(0, bugs[0].case, (FLOOD,), ())], False)
    assert order.choose([], True) is None
    assert order.has_news([Suspect(1, usual, (FLOOD,), ())])
    bugs[1].triggers = None
    assert not order.has_news([Suspect(1, usual, (FLOOD,), ())])


@pytest.mark.parametrize(("graded", "is_shown"), [("ordinary", True), ("extreme", False), (None, False)])
def test_of_a_known_bug_it_is_noted_whether_usual_inputs_show_it(
    two_cases: tuple[Case, Case], layernorm: Target, graded: str | None, is_shown: bool
) -> None:
    extreme, usual = (case_of(two_cases[0], name) for name in ("huge", "normal"))
    grade = Grade("high", graded) if graded else None
    bugs = [make_bug(extreme, finding=FLOOD, grade=grade), make_bug(usual, finding=FLOOD, grade=grade)]
    TriagePriority(layernorm).know(bugs)
    assert [bug.shown_by_usual for bug in bugs] == [is_shown, True]


def test_what_was_known_before_the_run_counts_as_triaged(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    order = TriagePriority(layernorm)
    order.know([make_bug(two_cases[0], finding=FLOOD)])
    assert triaged(order, suspects(two_cases[0], FLOOD, RARE)) == [1, 0]


def test_a_case_is_as_rare_as_the_rarest_of_its_findings(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    waiting = suspects(two_cases[0], FLOOD, FLOOD)
    waiting.append(Suspect(2, two_cases[0], (FLOOD, RARE), ()))
    assert triaged(TriagePriority(layernorm), waiting) == [0, 2, 1]


def test_a_case_that_lacks_what_each_known_bug_of_its_outputs_needs_is_news(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    """However often these outputs were wrong before; and once it was triaged it is so no more."""
    other, needed = two_cases
    known = make_bug(needed, finding=RARE, shown_by_usual=True)
    order = TriagePriority(layernorm)
    order.know([known])
    waiting = [Suspect(index, case, (RARE,), ()) for index, case in enumerate((needed, needed, other, other))]
    assert not order.has_news(waiting)
    known.triggers = tuple(one for one in departures(needed, layernorm) if one.edit(other).key == other.key)
    assert known.triggers and order.has_news(waiting)
    assert triaged(order, waiting)[0] == 2 and not order.has_news(waiting)


def test_of_new_findings_that_comes_first_which_usual_inputs_show_as_well(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    """They are asked for once each, and not where nothing else is as new."""
    findings = [replace(RARE, outputs=(name,)) for name in "abc"]
    asked: list[str] = []

    def shows_usually(case: Case, finding: Finding) -> bool:
        asked.extend(finding.outputs)
        return finding.outputs == ("c",)

    order = TriagePriority(layernorm, shows_usually=shows_usually)
    assert triaged(order, suspects(two_cases[0], *findings)) == [2, 0, 1]
    assert asked == ["a", "b", "c"]


def test_an_order_without_time_to_ask_is_that_of_the_cases(two_cases: tuple[Case, Case], layernorm: Target) -> None:
    def late(case: Case, finding: Finding) -> bool:
        raise OutOfTime

    order = TriagePriority(layernorm, shows_usually=late)
    assert triaged(order, suspects(two_cases[0], RARE, FLOOD)) == [0, 1]


def postponed(case: Case, order: TriagePriority) -> Bug:
    """A postponed bug that an order knows of, of which nothing is known yet that it needs."""
    bug = make_bug(case, finding=RARE, shown_by_usual=True)
    order.know([*order.bugs, bug])
    bug.waits_for = "shrinking"
    return bug


def departures_without(needed: Case, other: Case, target: Target) -> tuple[Trigger, ...]:
    """What of a case's departures from defaults another case lacks."""
    return tuple(one for one in departures(needed, target) if one.edit(other).key == other.key)


def test_what_a_postponed_bug_does_not_explain_comes_before_its_shrinking(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    """A few cases tell of it, each of them once; those that it explains still wait for it."""
    asked: list[Case] = []

    def rules_out(bug: Bug, case: Case, finding: Finding) -> bool:
        bug.departures = bug.departures or tuple(departures(two_cases[1], layernorm))[:1]
        asked.append(case)
        return len(asked) == 3

    order = TriagePriority(layernorm, rules_out=rules_out)
    postponed(two_cases[1], order)
    both = replace(RARE, outputs=("dx", *RARE.outputs))
    waiting = [Suspect(index, two_cases[1], (both if index == 5 else RARE,), ()) for index in range(20)]
    assert not order.has_news(waiting) and not asked
    assert order.choose(waiting, True) is waiting[1] and len(asked) == 3
    del waiting[1]
    for _ in range(2):
        assert order.choose(waiting, True) is None and len(asked) == MOST_ASKED
        assert not order.has_news(waiting)


def test_a_case_that_lacks_what_a_postponed_bug_needs_is_not_run_to_tell(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    other, needed = two_cases
    asked: list[Case] = []

    def rules_out(bug: Bug, case: Case, finding: Finding) -> bool:
        bug.departures = departures_without(needed, other, layernorm)
        asked.append(case)
        return False

    order = TriagePriority(layernorm, rules_out=rules_out)
    bug = postponed(needed, order)
    waiting = [Suspect(0, needed, (RARE,), ()), Suspect(1, needed, (RARE,), ())]
    assert order.choose(waiting, True) is None and bug.departures and asked == [needed, needed]
    waiting.append(Suspect(2, other, (RARE,), ()))
    assert order.choose(waiting, True) is waiting[2] and len(asked) == 2


def test_what_may_be_the_consequence_of_something_else_waits_for_a_postponed_bug(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    """What a case is not filed under, what is left of a case, and what one of several calls shows."""
    other, needed = two_cases
    order = TriagePriority(layernorm, rules_out=Mock(side_effect=AssertionError))
    bug = postponed(needed, order)
    bug.departures = departures_without(needed, other, layernorm)
    order.choose([Suspect(9, other, (FLOOD,), ())], False)
    twice = replace(other, calls=(other.last, other.last), split=None)
    waiting = [
        Suspect(0, other, (FLOOD, RARE), ()),
        Suspect(1, other, (RARE,), (), is_rest=True),
        Suspect(2, twice, (RARE,), ()),
    ]
    assert order.choose(waiting, True) is None and not order.has_news(waiting)
    assert order.has_news([Suspect(3, other, (RARE,), ())])


def test_each_postponed_bug_that_may_explain_a_case_is_asked_about(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    """The case is news where none of them does, and none is asked about where one of them has no departures."""
    asked, explaining = list[Bug](), list[Bug]()

    def rules_out(bug: Bug, case: Case, finding: Finding) -> bool:
        asked.append(bug)
        bug.departures = tuple(departures(two_cases[1], layernorm))[:1]
        return bug not in explaining

    order = TriagePriority(layernorm, rules_out=rules_out)
    for _ in range(3):
        postponed(two_cases[1], order)
    bugs = [*order.bugs]
    bugs[2].departures = ()
    waiting = [Suspect(index, two_cases[1], (RARE,), ()) for index in range(3)]
    assert order.choose(waiting, True) is None and not asked
    order.bugs = bugs[:2]
    explaining.append(bugs[1])
    assert order.choose(waiting[:1], True) is None and asked == bugs[:2]
    explaining.clear()
    assert order.choose(waiting, True) is waiting[1] and len(asked) == 4


def test_no_case_is_run_for_a_postponed_bug_once_the_time_left_is_reserved_or_over(
    two_cases: tuple[Case, Case], layernorm: Target
) -> None:
    waiting = [Suspect(index, two_cases[0], (RARE,), ()) for index in range(5)]
    over = Mock(side_effect=OutOfTime)
    order = TriagePriority(layernorm, rules_out=over)
    postponed(two_cases[0], order)
    assert order.choose(waiting, True) is None and over.call_count == 5
    asked: list[Case] = []

    def rules_out(bug: Bug, case: Case, finding: Finding) -> bool:
        asked.append(case)
        order.reserve = 60.0
        return False

    order = TriagePriority(layernorm, Deadline.after(30.0, time.monotonic()), rules_out=rules_out)
    postponed(two_cases[0], order)
    assert order.choose(waiting, True) is None and len(asked) == 1
    asked.clear()
    order = TriagePriority(layernorm, rules_out=rules_out, seconds_to_ask=1e-9)
    postponed(two_cases[0], order)
    assert order.choose(waiting, True) is None and len(asked) == 1
