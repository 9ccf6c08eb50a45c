"""Where many plans fail, those of sizes that run are drawn: soon nearly all, and a few as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random
from typing import Any

import pytest

from fuzz import size, target, tensor
from fuzz.model.case import Argument, Call, Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import FAULT
from fuzz.model.recipes import recipe
from fuzz.search.engines import make_scheduler
from fuzz.search.engines.random import RandomEngine
from fuzz.search.engines.runnable_sizes import RunnableSizes, sizes_of
from fuzz.target.loader import load
from fuzz.worker.protocol import Report

RAN = Report("returned", False, (), ("accuracy",))
FAILED = Report("does not compile: ..", False, (Finding(FAULT.name, ("launcher",), "compile-error", ".."),), ())
REFUSED = Report("rejected: ..", True, (), ())
NOT_RUN = Report("not run: ..", False, (), (), not_run=True)


def plan(**sizes: int) -> Case:
    return plan_of(sizes)


def plan_of(*calls: dict[str, int]) -> Case:
    x = Argument(tuple(calls[0]), "float32", recipe("normal", 0))
    return Case("t", tuple(Call(sizes, {"x": x}) for sizes in calls))


def plans(seed: int) -> Iterator[Case]:
    """Sizes that are small as often as large, of dims of a product of matrices and two others."""
    random = Random(seed)
    while True:
        sizes = dict(T=2 ** random.uniform(0, 11), K=2 ** random.uniform(0, 7), V=2 ** random.uniform(0, 7))
        yield plan(B=random.randint(1, 8), **{dim: round(size) for dim, size in sizes.items()})


def choose(sizes: RunnableSizes, drawn: Iterator[Case]) -> Case:
    """The plan that is chosen, at its sizes."""
    chosen = sizes.choose(drawn)
    assert chosen is not None
    return plan_of(*map(dict, chosen[1]))


def share_that_runs(runs: Callable[..., bool], seed: int, with_sizes: bool = True, refusal: Report = FAILED) -> float:
    """The share of 100 plans that run."""
    sizes, drawn, ran = RunnableSizes(), plans(seed), 0
    for _ in range(100):
        chosen = choose(sizes, drawn) if with_sizes else next(drawn)
        works = runs(**chosen.last.dims)
        ran += works
        sizes.learn(chosen, [RAN if works else refusal])
    return ran / 100


CONDITIONS = {
    "products": lambda B, T, K, V: K >= 16 and V >= 16,
    "shared memory": lambda B, T, K, V: K * V <= 64,
    "one dim": lambda B, T, K, V: T >= 300,
    "four dims": lambda B, T, K, V: B >= 4 and T >= 512 and K >= 64 and V >= 64,
    "both ends": lambda B, T, K, V: 8 <= K <= 32 and V >= 8,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_most_plans_run_where_few_sizes_do(name: str) -> None:
    shares = [share_that_runs(CONDITIONS[name], seed, refusal=(FAILED, REFUSED)[seed % 2]) for seed in range(5)]
    drawn = [share_that_runs(CONDITIONS[name], seed, with_sizes=False) for seed in range(5)]
    assert sum(shares) / 5 > 0.6
    assert min(shares) > max(drawn)


def test_bounds_name_the_dims_that_plans_fail_by() -> None:
    sizes = RunnableSizes()
    for k, b in ((2, 1), (4, 3), (8, 2), (9, 7), (15, 8)):
        sizes.learn(plan(K=k, B=b), [FAILED])
    for k, b in ((16, 4), (40, 1)):
        sizes.learn(plan(K=k, B=b), [RAN])
    assert [(bound.dim, bound.sign, bound.size) for bound in sizes.bounds] == [("K", 1, 16)]


def test_every_call_of_a_plan_that_ran_says_what_runs() -> None:
    sizes = RunnableSizes()
    sizes.learn(plan_of({"K": 16}, {"K": 64}), [RAN])
    for k in (2, 4, 8):
        sizes.learn(plan(K=k), [FAILED])
    assert [(bound.dim, bound.sign, bound.size) for bound in sizes.bounds] == [("K", 1, 16)]


def test_a_plan_that_failed_is_explained_by_any_of_its_calls() -> None:
    sizes = RunnableSizes()
    sizes.learn(plan(K=16, B=2), [RAN])
    for k in (2, 4, 8):
        sizes.learn(plan_of({"K": k, "B": 2}, {"K": 64, "B": 2}), [FAILED])
    assert [(bound.dim, bound.sign, bound.size) for bound in sizes.bounds] == [("K", 1, 16)]


def test_each_call_is_brought_to_sizes_that_run() -> None:
    sizes = RunnableSizes()
    sizes.learn(plan(K=16), [RAN])
    sizes.learn(plan(K=2), [FAILED])
    assert sizes_of(choose(sizes, iter([plan_of({"K": 4}, {"K": 64}, {"K": 8})]))) == ({"K": 16}, {"K": 64}, {"K": 16})


def test_plans_of_several_calls_run_as_well() -> None:
    """The launcher refuses a call of fewer than 16 rows or columns."""

    @target(x=tensor(size("M", 1, 64), size("N", 1, 64)), reference=lambda x: {})
    def refuses(x: Any) -> Any:
        if min(x.values()) < 16:
            raise ValueError("fewer than 16 rows or columns")

    refused = 0
    for seed in range(2):
        sizes = RunnableSizes()
        engine = RandomEngine(refuses, seed, sizes=sizes)
        for number in range(200):
            plan = engine.case(number)
            try:
                for call in plan.calls:
                    refuses(call.dims)
                sizes.learn(plan, [RAN])
            except ValueError:
                sizes.learn(plan, [REFUSED])
                refused += len(plan.calls) > 1
    assert refused <= 8


def test_where_nothing_fails_plans_come_as_they_are_drawn() -> None:
    sizes, drawn = RunnableSizes(), plans(0)
    for number, expected in enumerate(islice(plans(0), 20)):
        chosen = choose(sizes, drawn)
        assert chosen.last.dims == expected.last.dims
        sizes.learn(chosen, [NOT_RUN if number % 2 else RAN])


def test_plans_without_bounds_are_still_drawn() -> None:
    sizes, drawn = RunnableSizes(), plans(1)
    sizes.learn(plan(B=4, T=64, K=64, V=64), [RAN])
    for _ in range(9):
        sizes.learn(plan(B=4, T=64, K=2, V=64), [FAILED])
    small = [choose(sizes, drawn).last.dims["K"] < 64 for _ in range(80)]
    assert 5 <= sum(small) <= 16


@pytest.mark.parametrize(
    ("backend", "is_timed", "learns"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)]
)
def test_runs_that_can_be_repeated_leave_nothing_out(backend: str, is_timed: bool, learns: bool) -> None:
    scheduler = make_scheduler("random", load("softmax"), backend, 0, (), pytest.fail, is_timed=is_timed)
    assert (scheduler.sizes is not None) == learns
    first, _ = next(scheduler.plans())
    scheduler.learn(first, [FAILED])
    assert not learns or list(scheduler.sizes.failed) == [sizes_of(first)]  # type: ignore[union-attr]


def test_the_engine_draws_plans_at_sizes_that_run() -> None:
    target = load("matmul")
    sizes = RunnableSizes()
    engine, ran = RandomEngine(target, 0, sizes=sizes), 0
    for number in range(60):
        chosen = engine.case(number)
        works = all(min(call.dims.values()) >= 16 for call in chosen.calls)
        ran += works
        for call in chosen.calls:
            for name, value in call.tensors.items():
                assert value.bits(call.dims).shape == value.stored_shape(call.dims), name
        sizes.learn(chosen, [RAN if works else FAILED])
    assert ran > 30
    assert sum(min(RandomEngine(target, 0).case(number).last.dims.values()) >= 16 for number in range(60)) < 10
