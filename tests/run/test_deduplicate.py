"""A finding is attributed to a known bug by evidence, and never because it names the same output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from bugs import make_bug, wrong_value

from fuzz import corpus
from fuzz.model.case import Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.edit import with_values
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.model.rate import Rate
from fuzz.model.recipes import exact, recipe
from fuzz.run.findings.deduplicate import Attribution
from fuzz.run.findings.known_bugs import read_known_bugs
from fuzz.target.spec import Target
from fuzz.triage.triage import Triage
from fuzz.triage.triggers import Trigger, all_hold, departures
from fuzz.worker.deadline import Deadline
from fuzz.worker.protocol import Report

NAN = replace(wrong_value("dx"), symptom="nonfinite")
Launcher = Callable[[Case], tuple[Finding, ...]]


class Shown(Triage):
    """Triage of a launcher that is a function from cases to their findings."""

    launcher: Launcher

    def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
        return Report("returned", False, self.launcher(case), ORACLE_NAMES)


def attribution(target: Target, launcher: Launcher, *bugs: Any) -> Attribution:
    worker: Any = type("NoWorker", (), {"timeout": 1.0})()
    triage = Shown(target, worker, ())
    triage.launcher = launcher
    return Attribution(target, triage, list(bugs))


def rows(case: Case) -> int:
    return case.last.dims["M"]


def few_rows(case: Case) -> Case:
    return case.with_call(0, replace(case.last, dims={**case.last.dims, "M": 1})) if rows(case) > 1 else case


MANY_ROWS = Trigger("M", few_rows)


@pytest.fixture
def case(two_cases: tuple[Case, Case]) -> Case:
    return two_cases[0].with_call(0, replace(two_cases[0].last, dims={"M": 40, "N": 2}))


def test_what_vanishes_without_the_trigger_has_the_known_cause(layernorm: Target, case: Case) -> None:
    def launcher(case: Case) -> tuple[Finding, ...]:
        return (wrong_value("dx"),) if rows(case) > 1 else ()

    bug = make_bug(case, "dx", triggers=(MANY_ROWS,))
    assert attribution(layernorm, launcher, bug).attribute(case, wrong_value("dx")) == (bug, None)


def test_what_stays_without_the_trigger_has_another_cause(layernorm: Target, case: Case) -> None:
    found = attribution(layernorm, lambda case: (wrong_value("dx"),), make_bug(case, "dx", triggers=(MANY_ROWS,)))
    assert found.attribute(case, wrong_value("dx")) == (None, wrong_value("dx"))
    assert rows(found.without_known(case, wrong_value("dx"))) == 1


def test_a_case_without_the_trigger_has_another_cause(layernorm: Target, case: Case) -> None:
    found = attribution(layernorm, lambda case: (), make_bug(case, "dx", triggers=(MANY_ROWS,)))
    assert found.attribute(few_rows(case), wrong_value("dx")) == (None, wrong_value("dx"))


def test_departures_of_a_postponed_bug_rule_out_what_it_does_not_explain(
    layernorm: Target, two_cases: tuple[Case, Case]
) -> None:
    """A case that lacks one of them, or shows the same without; what it may explain waits for it as before."""
    (lacking, needed), ran = two_cases, list[Case]()
    other = replace(needed, target="other")
    name = next(one.name for one in departures(needed, layernorm) if one.edit(lacking).key == lacking.key)

    def launcher(case: Case) -> tuple[Finding, ...]:
        ran.append(case)
        shows = case.target == "other" or any(one.name == name for one in departures(case, layernorm))
        return (wrong_value("dx"),) if shows else ()

    bug = make_bug(needed, "dx", waits_for="shrinking", rate=Rate(10, 10), shown_by_usual=True)
    found, finding = attribution(layernorm, launcher, bug), wrong_value("dx")
    found.triage.worker.deadline = Deadline()
    for case in (needed, other, lacking):
        assert found.is_near_postponed(case, finding, is_first=True)
        assert found.attribute(case, finding, doubts=False) == (bug, None) and not ran
    ruled_out = [found.rules_out(bug, case, finding) for case in (needed, other, lacking)]
    assert ruled_out == [False, True, True] and name in {one.name for one in bug.needs} and bug.triggers is None
    count = len(ran)
    for case, expected in zip((needed, other, lacking), ruled_out, strict=True):
        assert found.is_near_postponed(case, finding, is_first=True) != expected
        assert found.is_near_postponed(case, finding, is_first=False)
        assert found.attribute(case, finding, doubts=False) == ((None, finding) if expected else (bug, None))
    twice = replace(lacking, calls=(lacking.last, lacking.last), split=None)
    assert not found.is_ruled_out(bug, twice, finding)
    assert not found.is_ruled_out(bug, lacking, wrong_value("dweight"))
    assert len(ran) == count, "what cases have told is remembered"
    without = found.without_known(other, finding)
    assert without.key != other.key and not all_hold(bug.needs, without)
    found.triage.worker.deadline.end_now()
    assert found.attribute(other, finding, doubts=False) == (bug, None)


def test_a_case_that_shows_a_part_of_its_finding_without_a_departure_may_have_two_causes(
    layernorm: Target, two_cases: tuple[Case, Case]
) -> None:
    """Which of them is known once the postponed bug is shrunk. A case that cannot be run tells nothing."""
    both, needed = wrong_value("dx", "dweight"), two_cases[1]
    bug = make_bug(needed, "dx", waits_for="shrinking", rate=Rate(10, 10))
    bug.departures = tuple(departures(needed, layernorm))[:1]
    found = attribution(layernorm, lambda case: (wrong_value("dx"),), bug)
    assert not found.rules_out(bug, needed, both) and found.rules_out(bug, needed, wrong_value("dx"))
    found = attribution(layernorm, lambda case: (both,), bug)
    found.triage.worker.deadline, bug.shown_by_usual = Deadline(), True
    assert found.rules_out(bug, needed, both) and found.attribute(needed, both) == (None, both)
    found = attribution(layernorm, lambda case: (wrong_value("dx"),), bug)
    found.triage.shown_subjects = lambda *case, **how: None  # type: ignore[method-assign,assignment]
    assert not found.rules_out(bug, needed, wrong_value("dx"))


@pytest.mark.parametrize(
    "how",
    [
        dict(rate=Rate(3, 10)),
        dict(rate=Rate(10, 10), stateful=True),
        dict(rate=Rate(10, 10), finding=Finding("mutation", ("dx",), "written", "m")),
    ],
)
def test_departures_are_not_tried_where_one_run_tells_little_or_the_finding_has_a_place(
    layernorm: Target, two_cases: tuple[Case, Case], how: dict[str, Any]
) -> None:
    bug = make_bug(two_cases[1], "dx", waits_for="shrinking", **how)
    found = attribution(layernorm, Mock(side_effect=AssertionError), bug)
    assert not found.rules_out(bug, bug.case, bug.finding) and bug.needs == ()


def test_a_bug_that_shows_always_explains_its_own_outputs_and_class_only(layernorm: Target, case: Case) -> None:
    always = make_bug(case, "dx", triggers=(), also=(NAN, wrong_value("dweight")), known=True)
    found = attribution(layernorm, lambda case: (wrong_value("dx", "dweight"),), always)
    assert found.attribute(case, wrong_value("dx")) == (always, None)
    cause, left = found.attribute(case, wrong_value("dx", "dweight"))
    assert cause is always and left == wrong_value("dweight")
    assert found.attribute(case, NAN) == (None, NAN)


def test_some_findings_of_a_bug_without_triggers_are_shrunk_again(layernorm: Target, case: Case) -> None:
    found = attribution(layernorm, lambda case: (wrong_value("dx"),), make_bug(case, "dx", triggers=()))
    left = [number for number in range(1, 100) if found.attribute(case, wrong_value("dx"))[1]]
    assert left == [1, 8, 64]


def test_a_case_that_agrees_with_all_at_its_default_has_another_cause_than_one_that_needs_nothing(
    layernorm: Target, case: Case
) -> None:
    odd = case.with_call(0, replace(case.last, options={"eps": 1e-12}))
    assert [trigger.name for trigger in departures(odd, layernorm)][-1] == "eps"
    bug = make_bug(case, "dx", triggers=(), known=True)
    found = attribution(layernorm, lambda case: (wrong_value("dx"),) if case == odd else (), bug)
    assert found.attribute(odd, wrong_value("dx"))[1] == wrong_value("dx")


def test_an_error_far_larger_than_that_of_a_bug_that_shows_always_has_another_cause(
    layernorm: Target, case: Case
) -> None:
    """Where few rows have the small error again; and the bug that is then known explains large errors only."""

    def launcher(case: Case) -> tuple[Finding, ...]:
        error = 0.5 if rows(case) > 8 else 0.01
        return (replace(wrong_value("dx"), error=error, ratio=error),)

    (large,), (small,) = launcher(case), launcher(few_rows(case))
    always = make_bug(few_rows(case), finding=small, triggers=(), known=True)
    found = attribution(layernorm, launcher, always)
    assert found.attribute(few_rows(case), small) == (always, None)
    cause, left = found.attribute(case, large)
    assert cause is always and left is not None and 0.01 < left.least_error < 0.5
    other = make_bug(case, finding=left, triggers=(MANY_ROWS,))
    assert not found.have_same_cause(always, other)
    found.bugs.append(other)
    assert found.attribute(case, large) == (other, None) and found.attribute(few_rows(case), small) == (always, None)


def test_an_error_of_another_pattern_than_that_of_a_bug_that_shows_always_has_another_cause(
    layernorm: Target, case: Case
) -> None:
    """However small it is; and the bug that is then known explains what does not show the pattern only."""

    def launcher(case: Case) -> tuple[Finding, ...]:
        patterns = frozenset({("dx", "offset")} if rows(case) < 40 else ())
        return (replace(wrong_value("dx"), error=0.01, ratio=1.0, patterns=patterns, disagreeing=9),)

    (odd,), (usual,) = launcher(case), launcher(few_rows(case))
    always = make_bug(few_rows(case), finding=usual, triggers=(), known=True)
    found = attribution(layernorm, launcher, always)
    for _ in range(7):
        assert found.attribute(few_rows(case), usual)[0] is always
    cause, left = found.attribute(case, odd)
    assert cause is always and left is not None and left.other_than == ("dx", "offset")
    other = make_bug(case, finding=left)
    assert [trigger.name for trigger in found.triage.find_triggers(other)] == ["M"]
    assert not found.have_same_cause(always, other) and not always.may_share_cause(other)
    found.bugs.append(other)
    assert found.attribute(case, odd) == (other, None) and found.attribute(few_rows(case), usual)[0] is always


def test_what_lacks_the_usual_pattern_of_a_run_is_shrunk_again(layernorm: Target, case: Case) -> None:
    """Though no finding of the bug was counted; what lacks the pattern of another output says nothing of the bug."""
    always = make_bug(case, "dx", triggers=(), known=True)
    found = attribution(layernorm, lambda case: (wrong_value("dx"),), always)
    odd = replace(wrong_value("dx"), unlike=("dx", "offset"))
    assert found.attribute(case, replace(odd, unlike=("dweight", "offset"))) == (always, None)
    left = found.attribute(case, odd)[1]
    assert left is not None and left.other_than == ("dx", "offset")


def test_a_case_of_which_something_else_is_shrunk_does_not_use_up_the_turn_of_a_bug(
    layernorm: Target, case: Case
) -> None:
    both, alone = wrong_value("dx", "dweight"), wrong_value("dx")
    found = attribution(layernorm, lambda case: (both,), make_bug(case, "dx", triggers=()))
    assert [found.attribute(case, both)[1] for _ in range(3)] == [wrong_value("dweight")] * 3
    assert found.attribute(case, alone)[1] == alone


def test_of_a_case_with_two_known_causes_only_one_is_shrunk_again(layernorm: Target, case: Case) -> None:
    """What the other one explains is not said to be the first one's."""
    both = wrong_value("dx", "dweight")
    found = attribution(layernorm, lambda case: (both,), *(make_bug(case, name, triggers=()) for name in both.outputs))
    assert found.attribute(case, both)[1] == wrong_value("dx")


@pytest.mark.parametrize("is_left_behind", [True, False])
def test_what_earlier_calls_leave_behind_shows_to_any_oracle_and_is_rarely_checked(
    layernorm: Target, case: Case, is_left_behind: bool
) -> None:
    """In a clean process, where each check takes one."""
    checked = []

    def launcher(case: Case) -> tuple[Finding, ...]:
        checked.append(case)
        return () if is_left_behind else (NAN,)

    unwritten = Finding("bounds", ("dx",), "unwritten", "u")
    bug = make_bug(replace(case, calls=case.calls * 2), finding=unwritten, stateful=True)
    found = attribution(layernorm, launcher, bug)
    causes = [found.attribute(case, NAN if turn % 2 else wrong_value("dx", "dbias"))[0] for turn in range(20)]
    assert causes[0] is causes[1] is (bug if is_left_behind else None) or not is_left_behind
    assert len(checked) == 6 and all(len(one.calls) == 1 for one in checked)


def test_a_place_is_evidence_and_another_place_of_a_raise_is_another_bug(layernorm: Target, case: Case) -> None:
    raised = Finding("fault", ("launcher",), "raised", "raised RuntimeError: a", source_line="a.py:1")
    bug = make_bug(case, finding=raised, triggers=())
    found = attribution(layernorm, lambda case: (), bug)
    assert found.attribute(case, replace(raised, message="raised RuntimeError: b")) == (bug, None)
    for other in (replace(raised, source_line="a.py:2"), replace(raised, message="raised TypeError: a")):
        assert found.attribute(case, other) == (None, other)
        assert not found.have_same_cause(bug, make_bug(case, finding=other, triggers=()))


@pytest.mark.parametrize(
    ("triggers", "other_triggers", "same"), [(1, 0, True), (0, 1, True), (1, 1, True), (0, 0, False)]
)
def test_two_bugs_are_one_where_the_triggers_of_either_explain_the_other(
    layernorm: Target, two_cases: tuple[Case, Case], case: Case, triggers: int, other_triggers: int, same: bool
) -> None:
    larger = case.with_call(0, replace(case.last, dims={"M": 41, "N": 2}))
    one = make_bug(case, "dx", triggers=(MANY_ROWS,) * triggers)
    other = make_bug(larger, "dweight", triggers=(MANY_ROWS,) * other_triggers)
    assert attribution(layernorm, lambda case: (), one).have_same_cause(one, other) is same


def clipped(most: int) -> Trigger:
    """A trigger of values, for which the seed of a case's recipe stands."""

    def lower(case: Case) -> Case:
        value = case.last.tensors["x"]
        seed = min(value.values.seed, most)  # type: ignore[union-attr]
        return case.with_call(0, case.last.with_argument("x", replace(value, values=recipe("normal", seed))))

    return Trigger("x large", lower, is_of_values=True)


def seeded(case: Case, seed: int, rows: int = 2) -> Case:
    call = replace(case.last, dims={"M": rows, "N": 2})
    return case.with_call(0, call.with_argument("x", replace(call.tensors["x"], values=recipe("normal", seed))))


def seed_of(case: Case) -> int:
    """The seed of x; 0 where its numbers are written out."""
    return int(getattr(case.last.tensors["x"].values, "seed", 0))


@pytest.mark.parametrize(("limit", "same"), [(6, True), (0, False)])
def test_plainer_values_are_evidence_only_where_both_bugs_need_the_same(
    layernorm: Target, case: Case, limit: int, same: bool
) -> None:
    """NaN from 7 on, and numbers that are wrong from 7 or from 1 on, of which the latter have a cause of their own."""

    def launcher(case: Case) -> tuple[Finding, ...]:
        return (*((NAN,) if seed_of(case) > 6 else ()), *((wrong_value("dx"),) if seed_of(case) > limit else ()))

    nan = make_bug(seeded(case, 9), finding=NAN, triggers=(clipped(6), MANY_ROWS))
    number = make_bug(seeded(case, limit + 1), "dx", triggers=(clipped(limit),))
    assert attribution(layernorm, launcher, nan).have_same_cause(nan, number) is same


def test_a_bug_whose_least_case_lacks_the_trigger_of_another_has_another_cause(layernorm: Target, case: Case) -> None:
    """The unshrunk case may lose both with one edit."""
    one = make_bug(case, "dx", triggers=(MANY_ROWS,))
    other = make_bug(case, finding=NAN, triggers=())
    other.least = replace(other.least, case=few_rows(case))
    found = attribution(layernorm, lambda case: (), one)
    assert not found.have_same_cause(one, other)


def test_a_merged_bug_drops_the_triggers_that_the_other_case_does_not_need(layernorm: Target, case: Case) -> None:
    old = make_bug(case, "dx", triggers=(MANY_ROWS,))
    new = make_bug(few_rows(case), "dx", "dweight")
    attribution(layernorm, lambda case: (), old).merge(old, new, replaces=True)
    assert (old.triggers, old.hits, old.case) == ((), 2, new.case)
    assert old.subjects == wrong_value("dx", "dweight").subjects


def test_an_entry_that_was_there_before_stays(layernorm: Target, case: Case) -> None:
    old = make_bug(case, "dx", path="theirs.yaml", known=True, triggers=())
    attribution(layernorm, lambda case: (), old).merge(old, make_bug(few_rows(case), "dx"), replaces=True)
    assert old.path == ""


def test_an_output_whose_name_holds_a_space_is_read_from_what_else_fires(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    """A write over a cotangent is of the output ``grad y``; an entry with it must not end every later run."""
    also = (Finding("mutation", ("grad y", "x"), "written", "w"), Finding("layout", ("dx",), "bits", "b"))
    corpus.save_entry(tmp_path, make_bug(two_cases[0], "dx", also=also).to_entry())
    (known,) = read_known_bugs(tmp_path, layernorm, None)
    assert [(found.oracle, found.outputs, found.symptom) for found in known.least.also] == [
        ("mutation", ("grad y", "x"), "written"),
        ("layout", ("dx",), "bits"),
    ]


def test_entries_that_are_older_than_the_declaration_or_cannot_be_read_are_left_out(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    (call,) = two_cases[0].calls
    renamed = replace(call, arguments={("input" if name == "x" else name): one for name, one in call.arguments.items()})
    for case in (two_cases[0], replace(two_cases[0], calls=(renamed,))):
        corpus.save_entry(tmp_path, make_bug(case, "dx").to_entry())
    (tmp_path / layernorm.name / "torn.yaml").write_text("format: 1\ncase: [")
    reasons: list[str] = []
    (known,) = read_known_bugs(tmp_path, layernorm, None, on_left_out=reasons.append)
    assert known.case.key == two_cases[0].key
    assert len(reasons) == 2 and any("its arguments are" in one and "input" in one for one in reasons)
    assert any("torn.yaml" in one for one in reasons)


def test_an_entry_of_a_write_explains_that_an_output_shares_the_memory(
    layernorm: Target, case: Case, tmp_path: Path
) -> None:
    kinds = (("dy", "written"), ("dy", "aliased"))
    bug = make_bug(case, finding=Finding("mutation", ("dy",), "written", "dy was overwritten", kinds=kinds))
    corpus.save_entry(tmp_path, bug.to_entry())
    (known,) = read_known_bugs(tmp_path, layernorm, None)
    assert known.subjects == bug.subjects == {("mutation", "written", "dy"), ("mutation", "aliased", "dy")}
    assert known.sought.subjects == bug.sought.subjects


@pytest.mark.parametrize(("limit", "have"), [(3.4e38, True), (2.0**40, False)])
def test_wrong_values_have_the_cause_of_their_overflow_in_whichever_order_they_are_found(
    layernorm: Target, case: Case, limit: float, have: bool
) -> None:
    """NaN above a limit that the wrong value is far below is a mistake of its own."""

    def show(case: Case) -> tuple[Finding, ...]:
        value = case.last.tensors["dy"]
        bits = value.bits(case.last.dims)
        size = 1e4 * float(np.abs(from_bits(bits, named_dtype(value.dtype)).astype(np.float64)).max())
        return (replace(wrong_value("dx"), largest=(("dx", size),)) if size < limit else NAN,)

    for name, value in case.last.tensors.items():
        case = case.with_call(0, case.last.with_argument(name, replace(value, dtype="float32", layout=CONTIGUOUS)))
    huge = with_values(case, 0, "dy", recipe("huge", 1, binades=3))
    small = with_values(case, 0, "dy", recipe("normal", 1))
    numbers, overflow = make_bug(small, "dx"), make_bug(huge, finding=NAN)
    found = attribution(layernorm, show, numbers, overflow)
    assert found.have_same_cause(numbers, overflow) == found.have_same_cause(overflow, numbers) == have
    if have:
        assert found.is_better(numbers, overflow) and not found.is_better(overflow, numbers)
        found.merge(overflow, numbers, replaces=True)
        assert overflow.subjects == wrong_value("dx").subjects and overflow.finding.symptom == "value"


def number_of(case: Case, name: str) -> float:
    """The first element of an argument."""
    value = case.last.tensors[name]
    return float(from_bits(value.bits(case.last.dims), named_dtype(value.dtype)).flat[0])


def pair_of_numbers(case: Case, x: float, dy: float) -> Case:
    """A case of one row and column, with these two numbers."""
    plain = case.last
    for name, value in plain.tensors.items():
        plain = plain.with_argument(
            name, replace(value, dtype="float32", layout=CONTIGUOUS, values=recipe("normal", 1))
        )
    case = case.with_call(0, replace(plain, dims={"M": 1, "N": 1}))
    kind = named_dtype("float32")
    for name, number in (("x", x), ("dy", dy)):
        case = with_values(case, 0, name, exact(to_bits(np.array([[number]]), kind), kind))
    return case


PRODUCT_BELOW = 1e-8


@pytest.mark.parametrize(
    ("is_wrong", "same"),
    [
        (lambda x, dy: x * dy < PRODUCT_BELOW, True),
        (lambda x, dy: x * dy < PRODUCT_BELOW and not 2e-7 < dy < 2e-6, False),  # two regions
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_two_bugs_are_one_where_all_cases_between_them_show_it_and_one_edit_of_values_rids_both(
    layernorm: Target, case: Case, is_wrong: Callable[[float, float], bool], same: bool, swapped: bool
) -> None:
    """A product below a limit: how far one factor must be raised depends on the other one."""

    def launcher(case: Case) -> tuple[Finding, ...]:
        return (wrong_value("dx"),) if is_wrong(number_of(case, "x"), number_of(case, "dy")) else ()

    bugs = [make_bug(pair_of_numbers(case, x, dy), "dx") for x, dy in ((0.5, 1.5e-8), (2.0**-13, 2.0**-14))]
    old, new = reversed(bugs) if swapped else bugs
    found = attribution(layernorm, launcher, old)
    assert found.have_same_cause(old, new) is same
    names = [{trigger.name for trigger in bug.triggers or ()} for bug in bugs]
    assert names == [{"dy small"}, {"dy small", "x small"}]
    if same:
        found.merge(old, new, replaces=swapped)
        assert [trigger.name for trigger in old.triggers or ()] == ["dy small"]
        assert all(
            trigger.is_needed(bug.case, lambda one: not launcher(one)) for bug in bugs for trigger in old.triggers or ()
        )
