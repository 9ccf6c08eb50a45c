"""Shrinking by predicates whose least case is known: the same end from every start, and within the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest

from fuzz.model.case import Case, Split, sort_key
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits
from fuzz.model.finding import Finding
from fuzz.search.engines import RandomEngine
from fuzz.shrink import shrinker
from fuzz.shrink.passes.dims import BATTERY, USUAL, all_contiguous, fill
from fuzz.shrink.passes.values import write_out_small
from fuzz.shrink.shrinker import MOST_TOGETHER, Budget, Shrinker, are_variants
from fuzz.target.loader import load
from fuzz.target.spec import Target

FOUND = Finding("accuracy", ("dx",), "value", "m")


def numbers(case: Case, name: str) -> np.ndarray:
    call = case.last
    value = call.tensors[name]
    return np.broadcast_to(from_bits(value.bits(call.dims), named_dtype(value.dtype)), call.shape(name))


def shrunk(target: Target, case: Case, predicate: Callable[[Case], bool], budget: Budget | None = None) -> Shrinker:
    shrinker = Shrinker(target, case, FOUND, lambda one: FOUND if predicate(one) else None, budget or Budget())
    shrinker.run()
    return shrinker


def starting(target: Target, predicate: Callable[[Case], bool], count: int = 4) -> list[Case]:
    engine = RandomEngine(target, 9)
    drawn = (engine.case(index) for index in range(3000))
    small = (case for case in drawn if case.elements() < 3000 and predicate(case))
    return [case for case, _ in zip(small, range(count), strict=False)]


def deep_negative(case: Case) -> bool:
    x = numbers(case, "x")
    return bool(((x < -3.7) & np.isfinite(x)).any())


def wide(case: Case) -> bool:
    return case.last.dims["N"] >= 5


def two_rows(case: Case) -> bool:
    return case.last.dims["M"] >= 2 and case.last.dims["N"] >= 3


def half_precision(case: Case) -> bool:
    return case.last.arguments["x"].dtype == "float16"


def strided(case: Case) -> bool:
    return case.last.arguments["dy"].layout.kind != "contiguous"


def several_calls(case: Case) -> bool:
    return len(case.calls) >= 2


PREDICATES = [
    ("gelu_bw", deep_negative, {"N": 1}),
    ("gelu_bw", wide, {"N": 5}),
    ("gelu_bw", half_precision, {"N": 1}),
    ("gelu_bw", strided, {"N": 1}),
    ("gelu_bw", several_calls, {"N": 1}),
    ("layernorm_bw", two_rows, {"M": 2, "N": 3}),
    ("layernorm_bw", half_precision, {"M": 1, "N": 1}),
]


SEVERAL_STRUCTURES = (wide, strided, two_rows)
"""Those of which passes have several candidates of other structures that agree, one after the other."""


@pytest.mark.parametrize(("name", "predicate", "dims"), PREDICATES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_start_ends_in_the_same_case(name: str, predicate: Callable[[Case], bool], dims: dict[str, int]) -> None:
    target = load(name)
    begun = starting(target, predicate)
    ends = [shrunk(target, case, predicate).case for case in begun]
    assert len(ends) == 4
    assert [dict(case.last.dims) for case in ends] == [dims] * 4
    assert len({case.key for case in ends}) == 1
    for start, end in zip(begun, ends, strict=True):
        assert predicate(end) and sort_key(end, target.defaults) <= sort_key(start, target.defaults)


@pytest.mark.parametrize(("name", "predicate", "dims"), PREDICATES, ids=lambda value: getattr(value, "__name__", ""))
def test_candidates_that_are_tried_together_lead_where_they_lead_one_by_one(
    name: str, predicate: Callable[[Case], bool], dims: dict[str, int]
) -> None:
    """By as many executions, in fewer requests, each of cases that differ in their values alone."""
    target, requests = load(name), list[int]()

    def shows_first(cases: Sequence[Case]) -> tuple[int, Finding | None]:
        # What is listed may be answered in part only.
        some = cases[: max(len(cases) // 2, 2)]
        assert len({(case.last.structure, repr(case.last.options)) for case in cases}) == 1
        requests.append(len(some))
        number = next((number for number, case in enumerate(some, 1) if predicate(case)), None)
        return (len(some), None) if number is None else (number, FOUND)

    for start in starting(target, predicate, 2):
        alone = shrunk(target, start, predicate)
        requests.clear()
        together = Shrinker(target, start, FOUND, lambda one: FOUND if predicate(one) else None, Budget(), shows_first)
        assert together.run().key == alone.case.key
        assert together.budget.used == alone.budget.used
        assert together.seen == alone.seen
        assert requests or predicate is not deep_negative


@pytest.mark.parametrize("together", [1, MOST_TOGETHER])
@pytest.mark.parametrize(("name", "predicate", "dims"), PREDICATES, ids=lambda value: getattr(value, "__name__", ""))
def test_candidates_that_are_tried_in_parallel_lead_where_they_lead_one_by_one(
    name: str, predicate: Callable[[Case], bool], dims: dict[str, int], together: int
) -> None:
    """By as many executions, whatever they differ in; more than there is room for only where their values alone do."""
    target, requests = load(name), list[tuple[int, bool]]()

    def shows_first(cases: Sequence[Case]) -> tuple[int, Finding | None]:
        requests.append((len(cases), all(are_variants(cases[0], case) for case in cases)))
        number = next((number for number, case in enumerate(cases, 1) if predicate(case)), None)
        return (len(cases), None) if number is None else (number, FOUND)

    for start in starting(target, predicate, 2):
        alone, beside = shrunk(target, start, predicate), Budget()
        how = Shrinker(
            target, start, FOUND, lambda one: FOUND if predicate(one) else None, beside, shows_first,
            together=together, parallel=3,
        )  # fmt: skip
        assert how.run().key == alone.case.key
        assert beside.used == alone.budget.used and how.seen == alone.seen
    assert any(count > 1 and not variants for count, variants in requests) or predicate not in SEVERAL_STRUCTURES
    assert all(count <= 3 for count, variants in requests if together == 1 or not variants)


def test_what_could_not_be_tried_together_is_tried_one_by_one() -> None:
    """A candidate that ends the process is met once more by itself, not once for each candidate before it."""
    target, rounds = load("gelu_bw"), list[tuple[str, int]]()

    def shows_first(cases: Sequence[Case]) -> tuple[int, Finding | None]:
        rounds.append(("together", len(cases)))
        return 1, None

    def shows(case: Case) -> None:
        rounds.append(("alone", 1))

    start = write_out_small(next(case for case in starting(target, wide, 9) if case.last.dims["N"] < 9))
    shrinker = Shrinker(target, start, FOUND, shows, Budget(), shows_first)
    shrinker.run()
    for number, (how, count) in enumerate(rounds):
        if how == "together":
            assert rounds[number + 1 : number + count] == [("alone", 1)] * (count - 1)
    assert max(count for _, count in rounds) > 8 and shrinker.budget.used == len(rounds)


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 64), (0.1, 10), (3.0, 1)])
def test_no_more_are_tried_together_than_a_second_allows(
    monkeypatch: pytest.MonkeyPatch, seconds: float, most: int
) -> None:
    target, now, requests = load("gelu_bw"), 0.0, list[int]()
    monkeypatch.setattr(shrinker, "time", SimpleNamespace(monotonic=lambda: now))

    def shows_first(cases: Sequence[Case]) -> tuple[int, Finding | None]:
        nonlocal now
        now += seconds * len(cases)
        requests.append(len(cases))
        return len(cases), None

    def shows(case: Case) -> None:
        shows_first([case])

    start = write_out_small(next(case for case in starting(target, wide, 9) if case.last.dims["N"] < 9))
    Shrinker(target, start, FOUND, shows, Budget(seconds=1e9), shows_first).run()
    assert max(requests[2:]) == most or most == 64 and max(requests) > 32


def test_what_takes_long_alone_is_tried_in_parallel_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    target, now, requests = load("gelu_bw"), 0.0, list[int]()
    monkeypatch.setattr(shrinker, "time", SimpleNamespace(monotonic=lambda: now))

    def shows_first(cases: Sequence[Case]) -> tuple[int, Finding | None]:
        nonlocal now
        now += 3.0
        requests.append(len(cases))
        return len(cases), None

    def shows(case: Case) -> None:
        shows_first([case])

    start = next(iter(starting(target, wide, 1)))
    Shrinker(target, start, FOUND, shows, Budget(seconds=1e9), shows_first, together=1, parallel=4).run()
    assert max(requests) == 4


def test_options_that_are_equal_as_numbers_only_are_not_tried_together(two_cases: tuple[Case, Case]) -> None:
    case = two_cases[0]
    others = [replace(case, calls=(replace(case.last, options={"eps": eps}),)) for eps in (0.0, -0.0, False)]
    assert not any(are_variants(one, other) for one, other in combinations(others, 2))
    assert are_variants(case, fill(case, BATTERY[0])) and not are_variants(case, replace(case, split=Split(0, 1)))
    assert not are_variants(case, replace(case, calls=case.calls * 2))


def test_whether_something_urgent_waits_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, asked = 0.0, list[float]()
    monkeypatch.setattr(shrinker, "time", SimpleNamespace(monotonic=lambda: seconds))

    def is_urgent() -> bool:
        asked.append(seconds)
        return seconds > 4

    budget = Budget(started=0.0, is_urgent=is_urgent)
    while budget.left():
        seconds += 0.01
    assert 4 < seconds < 4.2 and budget.postponed
    assert 2 <= asked[0] < 2.02 and 20 <= len(asked) <= 22


def test_what_needs_nothing_ends_at_zeros() -> None:
    target = load("layernorm_bw")
    end = shrunk(target, starting(target, lambda case: True, 1)[0], lambda case: True).case
    assert dict(end.last.dims) == {"M": 1, "N": 1} and end.last.options == {"eps": 1e-5}
    assert all(numbers(end, name).sum() == 0 for name in end.last.tensors)
    assert all(value.dtype == "float32" and value.layout.kind == "contiguous" for value in end.last.tensors.values())


def test_executions_stay_within_the_budget() -> None:
    target = load("gelu_bw")
    asked: list[Case] = []

    def predicate(case: Case) -> bool:
        asked.append(case)
        return deep_negative(case)

    start = starting(target, deep_negative, 1)[0]
    shrinker = shrunk(target, start, predicate, Budget(executions=7))
    assert len(asked) <= 8 and shrinker.budget.used <= 8
    assert deep_negative(shrinker.case)


def test_time_stays_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    target, seconds = load("gelu_bw"), 0.0
    monkeypatch.setattr(shrinker, "time", SimpleNamespace(monotonic=lambda: seconds))

    def slow(case: Case) -> bool:
        nonlocal seconds
        seconds += 0.02
        return deep_negative(case)

    start = starting(target, deep_negative, 1)[0]
    shrunk(target, start, slow, Budget(seconds=0.3, started=0.0))
    assert 0.3 <= seconds < 0.36


def test_shrinking_goes_on_from_where_it_stopped() -> None:
    target = load("gelu_bw")
    start = starting(target, deep_negative, 1)[0]
    whole = shrunk(target, start, deep_negative).case
    part = shrunk(target, start, deep_negative, Budget(executions=10)).case
    assert part.key != whole.key
    assert shrunk(target, part, deep_negative).case.key == whole.key


def test_candidates_are_not_asked_about_again_and_again() -> None:
    target = load("gelu_bw")
    asked: list[tuple[object, ...]] = []

    def predicate(case: Case) -> bool:
        asked.append(case.key)
        return deep_negative(case)

    shrunk(target, starting(target, deep_negative, 1)[0], predicate)
    # The battery is tried once more before the bits are written out, and so are they.
    assert len(asked) - len(set(asked)) <= 1 + len(BATTERY)


def far_from_0(case: Case) -> bool:
    x = numbers(case, "x")
    return bool(((np.abs(x) > 1000) & np.isfinite(x)).any())


def test_what_only_unusual_values_show_is_not_reached_from_a_bug_that_shows_with_usual_ones() -> None:
    """One output is wrong for five columns and more, and where a value is far from 0."""
    target = load("gelu_bw")

    def either(case: Case) -> bool:
        return wide(case) or far_from_0(case)

    both = starting(target, lambda case: wide(case) and far_from_0(case))
    assert both
    for start in both:
        least = shrunk(target, start, either).case
        assert least.last.dims["N"] == 5 and not far_from_0(least)
        assert shrunk(target, start, far_from_0).case.last.dims["N"] == 1


def test_the_finding_is_that_of_the_usual_values_which_are_taken() -> None:
    """Of a case that is too large to be written out, for which the time ends then."""
    target = load("gelu_bw")

    def shows(case: Case) -> Finding | None:
        return Finding("accuracy", ("dx",), "value", str(case.key)) if wide(case) else None

    start = all_contiguous(starting(target, lambda case: wide(case) and case.elements() > 2000, 1)[0])
    shrinker = Shrinker(target, start, FOUND, shows, Budget(executions=len(USUAL)))
    shrinker.run()
    assert shrinker.case.key != start.key and shrinker.finding.message == str(shrinker.case.key)


def test_few_values_are_tried_where_any_show_the_bug() -> None:
    target, tried = load("gelu_bw"), set()

    def predicate(case: Case) -> bool:
        tried.update(value.values for value in case.last.tensors.values())
        return wide(case)

    shrunk(target, starting(target, wide, 1)[0], predicate)
    assert tried & set(BATTERY) == set(USUAL)


def test_the_finding_is_that_of_the_final_case() -> None:
    target = load("gelu_bw")

    def shows(case: Case) -> Finding | None:
        if not deep_negative(case):
            return None
        return Finding("accuracy", ("dx",), "sign" if case.last.dims["N"] == 1 else "value", "m")

    start = starting(target, deep_negative, 1)[0]
    shrinker = Shrinker(target, start, FOUND, shows, Budget())
    shrinker.run()
    assert shrinker.finding.symptom == "sign"
