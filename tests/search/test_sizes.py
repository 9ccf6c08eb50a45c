"""Sizes that are drawn: only those that a declaration allows, all of its range, and no tensor far beyond the budget."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random
from typing import Any

import pytest

from fuzz import size, target, tensor
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import Size, resolve
from fuzz.model.recipes import recipe
from fuzz.search import strategies
from fuzz.search.engines import RandomEngine
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.evolve import MUTATIONS
from fuzz.search.engines.mutations import MutationContext, mutate, set_dim
from fuzz.search.engines.random import GROUP_BUDGETS
from fuzz.search.strategies import BUDGETS, Budgets, draw_dims
from fuzz.shrink.passes import COARSE, FINE
from fuzz.target.legal import make_legal
from fuzz.target.spec import Target

COUNT = 2000
N = size("N", 1, 64)


def made(**declaration: Any) -> Target:
    def launcher(**arguments: Any) -> Any:
        raise NotImplementedError

    found: Target = target(reference=lambda **arguments: {}, name="made", **declaration)(launcher)
    return found


def drawn(declared: Target, budgets: Budgets = BUDGETS) -> list[dict[str, int]]:
    draw = Random(1).randrange
    return [draw_dims(draw, declared, budgets) for _ in range(COUNT)]


def is_legal(case: Case, declared: Target) -> bool:
    """Whether all sizes of a case, and that of the batch in which its split is computed again, are declared."""
    sizes = [(dim, call.dims[dim.name]) for call in case.calls for dim in declared.sizes]
    split, rows = case.split, next(dim for dim in declared.sizes if dim.name == declared.batch)
    again = split.before + split.length + split.after if split else rows.clamp(rows.high)
    return all(dim.clamp(own) == own for dim, own in [*sizes, (rows, again)])


@pytest.mark.parametrize("dim", [size("K", 16, 100, multiple_of=16), size("K", 8, 1000, multiple_of=64)])
@pytest.mark.parametrize("alone", [True, False])
def test_only_multiples_are_drawn_and_the_largest_of_them_is(dim: Size, alone: bool) -> None:
    sizes = {dims["K"] for dims in drawn(made(x=tensor(dim) if alone else tensor(N, dim)))}
    assert {own % dim.multiple for own in sizes} == {0}
    assert (min(sizes), max(sizes)) == (dim.least, dim.clamp(dim.high))


ROWS = [size("M", 16, 100, multiple_of=16), size("M", 5, 60), size("M", 8, 8), size("M", 1, 3)]


@pytest.mark.parametrize("rows", ROWS)
def test_drawn_mutated_and_shrunk_cases_and_their_splits_have_sizes_that_are_declared(rows: Size) -> None:
    declared = made(x=tensor(rows, N), batch=rows)
    cases = [*map(RandomEngine(declared, 0).case, range(200))]
    assert sum(case.split is not None for case in cases) > 20
    context = MutationContext(declared, Dictionary([100.0, 33.0]), Random(0))
    cases += [mutate(case, context, MUTATIONS, 3) for case in cases]
    small = [case for case in cases if case.split and case.elements() < 1000][:10]
    for case in small:
        candidates = (one for step in (*COARSE, *FINE) for one in islice(step(case, declared), 50))
        cases += [make_legal(one, declared) for one in candidates]
    assert [case for case in cases if not is_legal(case, declared)] == []


P = size("P", 1, 4096)
A, B = size("A", 1, 65536), size("B", 1, 65536)


@pytest.mark.parametrize("budgets", [BUDGETS, GROUP_BUDGETS])
def test_a_square_has_no_more_elements_than_another_matrix(budgets: Budgets) -> None:
    """The largest of them would take as long as a thousand cases."""
    declared = made(x=tensor(P, P))
    elements = sorted(dims["P"] ** 2 for dims in drawn(declared, budgets))
    assert elements[COUNT * 9 // 10] <= 1 << 16 and elements[COUNT // 2] <= 1 << 11
    assert 1 << 17 < elements[-1] <= 1 << 20
    assert max(dims["S"] for dims in drawn(made(x=tensor(size("S", 1, 1024), size("S", 1, 1024))))) == 1024


def test_a_cotangent_stays_within_the_budget_too() -> None:
    declared = made(x=tensor(A), y=tensor(B), differentiable=dict(z=tensor(A, B)))
    elements = [dims["A"] * dims["B"] for dims in drawn(declared)]
    assert 1 << 16 <= max(elements) <= 1 << 17


@pytest.mark.parametrize("budgets", [BUDGETS, GROUP_BUDGETS])
@pytest.mark.parametrize("others", [{}, dict(w=tensor(N, A, P), v=tensor(N, P, B))])
def test_an_output_of_two_dims_that_no_argument_has_together_is_not_huge(budgets: Budgets, others: Any) -> None:
    """Which shapes outputs have is known of cotangents alone."""
    seen = drawn(made(x=tensor(A), y=tensor(B), **others), budgets)
    assert 1 << 16 < max(dims["A"] * dims["B"] for dims in seen) <= 1 << 20
    assert (max(dims["A"] for dims in seen), max(dims["B"] for dims in seen)) == (65536, 65536)


def test_an_output_is_not_huge_where_one_of_its_dims_begins_high() -> None:
    seen = drawn(made(x=tensor(A), y=tensor(size("H", 128, 65536, multiple_of=128))))
    assert 1 << 16 < max(dims["A"] * dims["H"] for dims in seen) <= 1 << 20


def test_dims_apart_move_where_their_least_sizes_take_all_room() -> None:
    C, D = size("C", 2048, 8192), size("D", 2048, 8192)
    seen = drawn(made(x=tensor(C), y=tensor(D)))
    assert max(dims["C"] * dims["D"] for dims in seen) <= 16 * 2048**2
    assert min(len({dims[name] for dims in seen}) for name in "CD") > 20


def test_mutations_make_no_huge_output() -> None:
    declared = made(x=tensor(A), y=tensor(B))
    call = Call({"A": 1024, "B": 1024}, {name: Argument((name.upper(),), "float32", recipe("ones")) for name in "ab"})
    context = MutationContext(declared, Dictionary(), Random(0))
    case = Case("made", (call,))
    assert set_dim(case, context, "A", 1025) is None and set_dim(case, context, "A", 1023) is not None


def test_a_dim_that_is_divided_stays_within_the_budget() -> None:
    declared = made(x=tensor(N, P // 8 * 64), dims=(P,))
    assert max(dims["P"] // 8 * 64 for dims in drawn(declared, ((1, 1 << 11),)) if dims["P"] < 4096) <= 1 << 11


GOLDEN = [
    (1, 128), (1, 1), (2985, 2), (6, 1), (1023, 2), (1, 255), (202, 4), (6, 19), (31, 300), (1, 228), (33, 4),
    (311, 4), (64, 180), (3, 85), (11, 16), (17, 17),
]  # fmt: skip


def test_sizes_of_a_dim_that_begins_at_1_or_0_stay_as_they_were() -> None:
    """Entries, planted bugs and benchmarks know plans by their seed."""
    M, E = size("M", 1, 4096), size("E", 0, 300)
    assert [tuple(dims.values()) for dims in drawn(made(x=tensor(M, E)))[:16]] == GOLDEN


def test_each_size_is_drawn_with_few_evaluations_of_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case of a run waits for them."""
    evaluated = 0

    def counted(*arguments: Any) -> tuple[int, ...]:
        nonlocal evaluated
        evaluated += 1
        return resolve(*arguments)

    monkeypatch.setattr(strategies, "resolve", counted)
    drawn(made(x=tensor(A, B), y=tensor(A, B), z=tensor(A), differentiable=dict(dx=tensor(A, B))))
    assert evaluated <= 6 * 2 * COUNT


FAR = [
    size("F", 1000, 1100), size("F", 65, 127), size("F", 100, 120), size("F", 4000, 4096), size("F", 2, 9),
    size("F", 128, 2560, multiple_of=128), size("F", 0, 256, multiple_of=16), size("F", 16, 64, multiple_of=16),
]  # fmt: skip


@pytest.mark.parametrize("dim", FAR)
@pytest.mark.parametrize("budgets", [BUDGETS, GROUP_BUDGETS])
def test_every_size_of_a_dim_that_begins_far_from_1_is_drawn(dim: Size, budgets: Budgets) -> None:
    seen = Counter(dims["F"] for dims in drawn(made(x=tensor(N, dim)), budgets))
    allowed = range(dim.least, dim.high + 1, dim.multiple)
    assert set(seen) <= set(allowed) and len(seen) >= 0.9 * len(allowed)
    assert seen[allowed[0]] < 0.4 * COUNT
    assert all(seen[size] for size in (*allowed[:6], *allowed[-2:], *(size for size in (128, 1024) if size in allowed)))


def test_a_wide_range_that_begins_far_from_1_has_sizes_of_every_octave() -> None:
    seen = {dims["F"].bit_length() for dims in drawn(made(x=tensor(N, size("F", 1000, 60000))))}
    assert seen == {*range(10, 17)}


def test_every_dim_moves_where_the_least_sizes_take_the_whole_budget() -> None:
    D = size("D", 1024, 4096, multiple_of=128)
    seen = drawn(made(x=tensor(N, D), y=tensor(D, D)))
    assert len({dims["D"] for dims in seen}) > 8 and max(dims["D"] for dims in seen) == 4096
    assert sum(dims["N"] > 1 for dims in seen) > COUNT // 2
