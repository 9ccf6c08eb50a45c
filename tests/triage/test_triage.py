"""One cause is one bug and one entry, in whatever order its outputs are seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz import corpus
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.rate import Rate
from fuzz.report.progress import Quiet
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.search.engines import RandomEngine
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug, known_bugs, merge_bug
from fuzz.triage.conditions import non_defaults
from fuzz.triage.triage import Triage, describe_consequences
from fuzz.worker.process import Worker


def wrong(*outputs: str) -> Finding:
    return Finding("accuracy", outputs, "value", "wrong")


@pytest.fixture
def two(layernorm: Target) -> tuple[Case, Case]:
    """A smaller case and a larger one."""
    drawn = [RandomEngine(layernorm, 0).case(number) for number in range(40)]
    small = sorted((case for case in drawn if len(case.calls) == 1), key=Case.elements)
    return small[0], small[5]


def fuzzer(target: Target, folder: Path, **how: bool) -> Fuzzer:
    return Fuzzer(RunOptions(target.name, corpus=folder), target, "cpu", folder, Quiet(), {}, **how)


def bug(case: Case, *outputs: str, path: str = "", known: bool = False) -> Bug:
    made = Bug(wrong(*outputs), case, case, 0, 0.0, path=path, known=known)
    made.outputs = set(outputs)
    return made


def test_a_lesser_case_takes_the_place_of_the_entry_that_the_run_wrote(two: tuple[Case, Case]) -> None:
    small, large = two
    old = bug(large, "dx", path="larger.yaml")
    assert merge_bug([old], bug(small, "dx"), {}) is old
    assert (old.case, old.path, old.hits) == (small, "larger.yaml", 2)


def test_an_entry_that_was_there_before_stays(two: tuple[Case, Case]) -> None:
    small, large = two
    old = bug(large, "dx", path="theirs.yaml", known=True)
    assert merge_bug([old], bug(small, "dx"), {}) is old and old.path == ""


def test_a_larger_case_changes_nothing_but_the_count(two: tuple[Case, Case]) -> None:
    small, large = two
    old = bug(small, "dx", path="least.yaml")
    assert merge_bug([old], bug(large, "dx", "dweight"), {}) is old
    assert (old.case, old.path, old.outputs) == (small, "least.yaml", {"dx", "dweight"})


def test_other_outputs_are_another_cause_until_they_are_seen_together(
    two: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    small, large = two
    campaign = fuzzer(layernorm, tmp_path)
    triage: Any = SimpleNamespace(shrink=lambda bug, budget: None)
    one, other = bug(small, "dbias"), bug(large, "dweight")
    for made in (one, other):
        campaign.add_bug(triage, made, 0, 0.0, made.finding)
    assert campaign.bugs == [one, other] and len(list(corpus.entry_files([tmp_path]))) == 2
    campaign.record_hit(triage, one, 7, 1.0, wrong("dbias", "dweight"))
    assert campaign.bugs == [one] and one.hits == 3 and one.outputs == {"dbias", "dweight"}
    assert [str(path) for path in corpus.entry_files([tmp_path])] == [one.path]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other backend is asked."""
    monkeypatch.setattr("fuzz.run.fuzzer.cross_check", lambda *asked: {})


@pytest.mark.parametrize("beside", [True, False])
def test_a_cause_that_another_run_saves_meanwhile_is_not_saved_twice(
    two: tuple[Case, Case], layernorm: Target, tmp_path: Path, beside: bool, alone: None
) -> None:
    small, large = two
    triage: Any = SimpleNamespace(shrink=lambda bug, budget: None)
    runs = [fuzzer(layernorm, tmp_path, keep_smaller_duplicate=beside) for _ in range(2)]
    for run, case in zip(runs, (large, small), strict=True):
        made = bug(case, "dx")
        run.add_bug(triage, made, 0, 0.0, made.finding)
    assert len(list(corpus.entry_files([tmp_path]))) == 1
    assert [(one.known, one.hits) for run in runs for one in run.bugs] == [(False, 1), (True, 1)]


def test_a_campaign_saves_no_second_entry_of_a_cause_that_it_knows(
    two: tuple[Case, Case], layernorm: Target, tmp_path: Path, alone: None
) -> None:
    small, large = two
    triage: Any = SimpleNamespace(shrink=lambda bug, budget: None)
    for case, beside, count in ((large, True, 1), (small, False, 1), (small, True, 2)):
        run = fuzzer(layernorm, tmp_path, keep_smaller_duplicate=beside)
        run.bugs += known_bugs(tmp_path, layernorm, None)
        made = bug(case, "dx")
        run.add_bug(triage, made, 0, 0.0, made.finding)
        assert len(list(corpus.entry_files([tmp_path]))) == count


@pytest.mark.parametrize(
    ("signal", "shown", "is_found"), [("SIGKILL", 1, False), ("SIGKILL", 10, True), ("SIGSEGV", 1, True)]
)
def test_a_worker_that_somebody_kills_is_no_finding(
    two: tuple[Case, Case], layernorm: Target, monkeypatch: pytest.MonkeyPatch, signal: str, shown: int, is_found: bool
) -> None:
    made = Triage(layernorm, Worker("nowhere", None, 1 << 30, 1.0), ())
    monkeypatch.setattr(made, "measure_rate", lambda case, finding: Rate(shown, 10))
    died = Finding("fault", ("launcher",), "died", f"the worker process died of {signal}")
    assert (made.confirm(two[0], died, ()) is not None) == is_found


def test_a_case_that_lacks_what_a_cause_needs_has_another_cause(two: tuple[Case, Case]) -> None:
    old, new = bug(two[0], "dx"), bug(two[1], "dx")
    old.needs, new.needs = frozenset({"x layout"}), frozenset({"eps"})
    assert old.covers(wrong("dx"), frozenset({"x layout", "eps"})) and not old.covers(wrong("dx"), frozenset({"eps"}))
    assert merge_bug([old], new, {}) is None
    new.needs = frozenset({"x layout", "eps"})
    assert merge_bug([old], new, {}) is old and old.needs == {"x layout"}


def test_what_a_case_has_off_its_default_is_what_its_cause_may_need(layernorm: Target, two: tuple[Case, Case]) -> None:
    call = two[0].last
    plain = {name: replace(value, dtype="float32", layout=CONTIGUOUS) for name, value in call.arguments.items()}
    plain["x"] = replace(plain["x"], dtype="bfloat16", layout=Layout(pad=2))
    case = replace(two[0], calls=(replace(call, arguments=plain, options={**call.options, "eps": 1e-12}),))
    assert non_defaults(case, layernorm) == {"x dtype", "x layout", "eps"}


def test_a_cause_of_nan_hides_no_wrong_number_that_needs_more_than_it_does(two: tuple[Case, Case]) -> None:
    small, large = two
    nan, number = Finding("accuracy", ("dx",), "nonfinite", "NaN"), bug(large, "dx")
    old, number.needs = replace(bug(small, "dx"), finding=nan), frozenset({"reduction"})
    assert old.covers(nan, frozenset()) and not old.covers(number.finding, number.needs)
    assert merge_bug([old], number, {}) is None and number.covers(nan, number.needs)


def test_a_wrong_number_that_needs_nothing_else_is_of_the_cause_of_nan(two: tuple[Case, Case]) -> None:
    nan, number = Finding("accuracy", ("dx",), "nonfinite", "NaN"), bug(two[1], "dx")
    old = replace(bug(two[0], "dx"), finding=nan)
    assert merge_bug([old], number, {}) is old and old.finding is nan
    assert all(old.covers(replace(nan, symptom=symptom), frozenset()) for symptom in ("value", "sign"))


def test_what_a_write_over_an_input_makes_nan_hides_no_wrong_number_either(two: tuple[Case, Case]) -> None:
    nan, number = Finding("accuracy", ("dx",), "nonfinite", "NaN"), bug(two[1], "dx")
    written = replace(bug(two[0], "x"), finding=Finding("mutation", ("x",), "written", "x"), also=(nan,))
    assert written.covers(nan, frozenset()) and not written.covers(number.finding, frozenset())
    number.needs = frozenset({"reduction"})
    assert merge_bug([written], number, {}) is None
    number.needs = frozenset()
    assert merge_bug([written], number, {}) is written and written.covers(number.finding, frozenset())


@pytest.mark.parametrize(("known", "kept"), [(False, 1), (True, 2)])
def test_a_wrong_number_does_not_shrink_into_a_nan_that_is_known(
    two: tuple[Case, Case], layernorm: Target, known: bool, kept: int
) -> None:
    made = bug(two[1], "dx")
    made.has_nan_cause = known

    class Shown(Triage):
        """Smaller cases are NaN: what has one row; what has more is wrong."""

        def reproduce(self, case: Case, like: Finding, **how: bool) -> Finding | None:
            symptom = "nonfinite" if case.last.dims["M"] < 2 else "value"
            return replace(like, symptom=symptom)

    call = replace(made.case.last, dims={"M": 4, "N": 4})
    made.case = replace(made.case, calls=(call,))
    worker: Any = None
    assert Shown(layernorm, worker, ()).run_shrinker(made, Budget(), clean=False).case.last.dims["M"] == kept


@pytest.mark.parametrize(("appeared", "left", "both"), [("nonfinite", "value", False), ("sign", "value", True)])
def test_what_is_said_of_nan_is_not_said_of_a_case_that_has_none(
    two: tuple[Case, Case], appeared: str, left: str, both: bool
) -> None:
    made = bug(two[1], "dx")
    made.original, made.initial_symptom, made.finding = two[0], appeared, replace(made.finding, symptom=left)
    assert made.diagnosis_cases == ((two[0], made.case) if both else (made.case,))


def test_gradients_that_a_write_spoils_are_no_consequence_of_wrong_numbers(two: tuple[Case, Case]) -> None:
    spoilt = Finding("autograd", ("before_x",), "before", "spoilt")
    numbers = replace(bug(two[1], "dx"), also=(spoilt,))
    written = replace(numbers, finding=Finding("mutation", ("x",), "written", "w"))
    assert (describe_consequences(numbers), describe_consequences(written)) == ((), ("spoilt",))


def test_clean_workers_are_asked_only_while_a_case_has_several_calls(two: tuple[Case, Case], layernorm: Target) -> None:
    made = bug(two[1], "dx")
    made.case = replace(made.case, calls=(made.case.last,) * 3, split=None)
    asked: list[tuple[int, bool]] = []

    class Shown(Triage):
        def reproduce(
            self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False
        ) -> Finding | None:
            asked.append((len(case.calls), clean))
            return like

    worker: Any = None
    Shown(layernorm, worker, ()).run_shrinker(made, Budget())
    singles = [clean for calls, clean in asked if calls == 1]
    assert all(clean for calls, clean in asked if calls > 1)
    assert singles[0] and not any(singles[1:]) and len(singles) > 1


def test_a_call_that_shows_it_only_after_others_does_not_take_their_place(
    two: tuple[Case, Case], layernorm: Target
) -> None:
    made = bug(two[1], "dx")
    made.case = replace(made.case, calls=(made.case.last,) * 2, split=None)

    class Shown(Triage):
        def reproduce(
            self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False
        ) -> Finding | None:
            return like if len(case.calls) > 1 or not clean else None

    worker: Any = None
    assert len(Shown(layernorm, worker, ()).run_shrinker(made, Budget()).case.calls) == 2


def test_a_stray_access_does_not_explain_a_write_over_an_input(two: tuple[Case, Case]) -> None:
    stray, written = Finding("bounds", ("out",), "stray-write", "s"), Finding("mutation", ("x",), "written", "w")
    both = replace(bug(two[1], "out"), finding=stray, also=(written, wrong("dx")))
    alone = replace(bug(two[0], "x"), finding=written)
    assert both.covers(wrong("dx"), frozenset()) and not both.covers(written, frozenset())
    assert merge_bug([alone], both, {}) is None and merge_bug([both], alone, {}) is None


def test_a_read_of_what_is_not_ones_own_explains_wrong_numbers_too(two: tuple[Case, Case]) -> None:
    read, nan = Finding("bounds", ("x",), "stray-read", "r"), replace(wrong("dx"), symptom="nonfinite")
    assert replace(bug(two[1], "x"), finding=read, also=(nan,)).covers(wrong("dx"), frozenset())
    assert not replace(bug(two[1], "dx"), finding=nan).covers(wrong("dx"), frozenset())


def test_what_was_shrunk_and_merged_once_is_known_the_next_time(two: tuple[Case, Case]) -> None:
    small, large = two
    one, nan = bug(large, "dx"), replace(wrong("dx"), symptom="nonfinite", oracle="accuracy")
    one = replace(one, finding=Finding("bounds", ("x",), "stray-read", "r"), also=(nan,), needs=frozenset())
    assert not one.covers(nan, frozenset(), small)
    one.aliases.append((nan, small))
    assert one.covers(nan, frozenset(), small) and not one.covers(wrong("dweight"), frozenset(), small)


def test_offsets_of_32_bits_are_one_bug_whichever_tensor_is_huge() -> None:
    first, other = (Finding("bounds", (name,), "offset-overflow", "o", source_line=name) for name in ("x", "dy"))
    assert first.same_bug(other) and not first.same_bug(replace(other, symptom="stray-read"))


def test_what_a_write_over_an_input_does_before_and_beside_it_is_one_bug() -> None:
    def company(symptom: str, *outputs: str) -> Finding:
        return Finding("autograd", outputs, symptom, "a")

    assert company("before", "before_q", "before_k").same_bug(company("beside", "beside_q", "both_q"))
    assert company("twice", "dx").same_bug(company("twice", "first_x"))
    assert not company("before", "before_q").same_bug(company("twice", "first_q"))
    assert not company("before", "before_q").same_bug(company("before", "before_k"))


def test_a_stray_access_of_long_rows_does_not_explain_what_is_wrong_in_short_ones(two: tuple[Case, Case]) -> None:
    def sized(columns: int) -> Case:
        return replace(two[0], calls=(replace(two[0].last, dims={"M": 1, "N": columns}),))

    stray = replace(bug(sized(64), "out"), finding=Finding("bounds", ("out",), "stray-write", "s"))
    stray.also = (wrong("dx"),)
    assert stray.covers(wrong("dx"), frozenset(), sized(65)) and not stray.covers(wrong("dx"), frozenset(), sized(2))
    assert merge_bug([stray], bug(sized(2), "dx"), {}) is None
