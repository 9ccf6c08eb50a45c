"""One cause is one bug, in whatever order its outputs are seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bugs import make_bug, wrong_value

from fuzz import corpus
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.run.deduplicate import known_bugs, merge_bug
from fuzz.target.spec import Target


def test_a_case_that_lacks_what_a_cause_needs_has_another_cause(two_cases: tuple[Case, Case]) -> None:
    old, new = make_bug(two_cases[0], "dx"), make_bug(two_cases[1], "dx")
    old.needs, new.needs = frozenset({"x layout"}), frozenset({"eps"})
    assert old.covers(wrong_value("dx"), frozenset({"x layout", "eps"}))
    assert not old.covers(wrong_value("dx"), frozenset({"eps"}))
    assert merge_bug([old], new, {}) is None
    new.needs = frozenset({"x layout", "eps"})
    assert merge_bug([old], new, {}) is old and old.needs == {"x layout"}


def test_a_lesser_case_takes_the_place_of_the_entry_that_the_run_wrote(two_cases: tuple[Case, Case]) -> None:
    small, large = two_cases
    old = make_bug(large, "dx", path="larger.yaml")
    assert merge_bug([old], make_bug(small, "dx"), {}) is old
    assert (old.case, old.path, old.hits) == (small, "larger.yaml", 2)


def test_an_entry_that_was_there_before_stays(two_cases: tuple[Case, Case]) -> None:
    small, large = two_cases
    old = make_bug(large, "dx", path="theirs.yaml", known=True)
    assert merge_bug([old], make_bug(small, "dx"), {}) is old and old.path == ""


def test_a_larger_case_changes_nothing_but_the_count(two_cases: tuple[Case, Case]) -> None:
    small, large = two_cases
    old = make_bug(small, "dx", path="least.yaml")
    assert merge_bug([old], make_bug(large, "dx", "dweight"), {}) is old
    assert (old.case, old.path, old.outputs) == (small, "least.yaml", {"dx", "dweight"})


def test_a_cause_of_nan_hides_no_wrong_number_that_needs_more_than_it_does(two_cases: tuple[Case, Case]) -> None:
    small, large = two_cases
    nan, number = Finding("accuracy", ("dx",), "nonfinite", "NaN"), make_bug(large, "dx")
    old, number.needs = make_bug(small, "dx", finding=nan), frozenset({"reduction"})
    assert old.covers(nan, frozenset()) and not old.covers(number.finding, number.needs)
    assert merge_bug([old], number, {}) is None and number.covers(nan, number.needs)


def test_a_wrong_number_that_needs_nothing_else_is_of_the_cause_of_nan(two_cases: tuple[Case, Case]) -> None:
    nan, number = Finding("accuracy", ("dx",), "nonfinite", "NaN"), make_bug(two_cases[1], "dx")
    old = make_bug(two_cases[0], "dx", finding=nan)
    assert merge_bug([old], number, {}) is old and old.finding is nan
    assert all(old.covers(replace(nan, symptom=symptom), frozenset()) for symptom in ("value", "sign"))


def test_what_a_write_over_an_input_makes_nan_hides_no_wrong_number_either(two_cases: tuple[Case, Case]) -> None:
    nan, number = Finding("accuracy", ("dx",), "nonfinite", "NaN"), make_bug(two_cases[1], "dx")
    written = make_bug(two_cases[0], "x", finding=Finding("mutation", ("x",), "written", "x"), also=(nan,))
    assert written.covers(nan, frozenset()) and not written.covers(number.finding, frozenset())
    number.needs = frozenset({"reduction"})
    assert merge_bug([written], number, {}) is None
    number.needs = frozenset()
    assert merge_bug([written], number, {}) is written and written.covers(number.finding, frozenset())


def test_a_stray_access_does_not_explain_a_write_over_an_input(two_cases: tuple[Case, Case]) -> None:
    stray, written = Finding("bounds", ("out",), "stray-write", "s"), Finding("mutation", ("x",), "written", "w")
    both = make_bug(two_cases[1], "out", finding=stray, also=(written, wrong_value("dx")))
    alone = make_bug(two_cases[0], "x", finding=written)
    assert both.covers(wrong_value("dx"), frozenset()) and not both.covers(written, frozenset())
    assert merge_bug([alone], both, {}) is None and merge_bug([both], alone, {}) is None


def test_a_stray_access_of_long_rows_does_not_explain_what_is_wrong_in_short_ones(two_cases: tuple[Case, Case]) -> None:
    def sized(columns: int) -> Case:
        return replace(two_cases[0], calls=(replace(two_cases[0].last, dims={"M": 1, "N": columns}),))

    written = Finding("bounds", ("out",), "stray-write", "s")
    stray = make_bug(sized(64), "out", finding=written, also=(wrong_value("dx"),))
    assert stray.covers(wrong_value("dx"), frozenset(), sized(65))
    assert not stray.covers(wrong_value("dx"), frozenset(), sized(2))
    assert merge_bug([stray], make_bug(sized(2), "dx"), {}) is None


def test_an_output_whose_name_holds_a_space_is_read_from_what_else_fires(
    two_cases: tuple[Case, Case], layernorm: Target, tmp_path: Path
) -> None:
    """A write over a cotangent is of the output ``grad y``; an entry with it must not end every later run."""
    also = (Finding("mutation", ("grad y", "x"), "written", "w"), Finding("layout", ("dx",), "bits", "b"))
    corpus.save_entry(tmp_path, make_bug(two_cases[0], "dx", also=also).to_entry())
    (known,) = known_bugs(tmp_path, layernorm, None)
    assert [(found.oracle, found.outputs, found.symptom) for found in known.least.also] == [
        ("mutation", ("grad y", "x"), "written"),
        ("layout", ("dx",), "bits"),
    ]
