"""Ragged batches shrink and grow part by part: rows go with the part that held them."""

from __future__ import annotations

import numpy as np
import pytest

from fuzz.api import target
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.finding import Finding
from fuzz.model.layout import Layout
from fuzz.model.recipes import exact, recipe
from fuzz.shrink.passes.parts import fewer_parts, find_ragged, resize_parts, shorter_parts
from fuzz.shrink.shrinker import Budget, Shrinker
from fuzz.target.arguments import size, tensor
from fuzz.target.loader import load
from fuzz.target.prefix_sums import prefix_sums
from fuzz.target.spec import Target

INT32, FLOAT32 = named_dtype("int32"), named_dtype("float32")
T, S = size("T", 1, 200), size("S", 1, 9)


@pytest.fixture(scope="module")
def ragged() -> Target:
    declare = target(x=tensor(T), ends=prefix_sums(S + 1, total=T), dims=(S,), reference=lambda x, ends: {"y": x})
    return declare(lambda x, ends: {"y": x})


def make_case(ends: tuple[int, ...], *, written_out: bool = True) -> Case:
    """Rows that hold their own numbers, in parts that end here."""
    numbers = exact(to_bits(np.arange(ends[-1], dtype=np.float64), FLOAT32), FLOAT32)
    x = Argument(("T",), "float32", numbers if written_out else recipe("normal", 1))
    sums = Argument(("(S + 1)",), "int32", exact(to_bits(np.array((0, *ends)), INT32), INT32))
    return Case("ragged", (Call({"T": ends[-1], "S": len(ends)}, {"x": x, "ends": sums}),))


def parts(case: Case) -> list[list[float]]:
    call = case.last
    x = from_bits(call.tensors["x"].bits(call.dims), FLOAT32)
    ends = from_bits(call.tensors["ends"].bits(call.dims), INT32)
    assert (len(x), len(ends)) == (call.dims["T"], call.dims["S"] + 1) and ends[0] == 0 and ends[-1] == len(x)
    return [list(map(float, x[first:last])) for first, last in zip(ends[:-1], ends[1:], strict=True)]


def test_a_part_is_taken_out_with_its_rows(ragged: Target) -> None:
    proposed = [parts(case) for case in fewer_parts(make_case((2, 3, 3, 5)), ragged)]
    assert proposed == [
        *([[0, 1]], [[2]], [[3, 4]]),
        *([[2], [], [3, 4]], [[0, 1], [], [3, 4]], [[0, 1], [2], [3, 4]], [[0, 1], [2], []]),
    ]


def test_a_part_becomes_shorter_by_its_last_rows(ragged: Target) -> None:
    proposed = [parts(case) for case in shorter_parts(make_case((4, 6)), ragged)]
    assert [[0, 1, 2], [4, 5]] in proposed and [[], [4, 5]] in proposed and [[0, 1, 2, 3], [4]] in proposed
    assert all(len(case) == 2 for case in proposed)


def test_values_of_a_recipe_are_made_anew(ragged: Target) -> None:
    case = next(fewer_parts(make_case((2, 5), written_out=False), ragged))
    assert case.last.tensors["x"].values == recipe("normal", 1) and [len(part) for part in parts(case)] == [2]


def test_parts_get_other_lengths_by_repeated_rows(ragged: Target) -> None:
    (found,) = find_ragged(case := make_case((2, 3, 3)), ragged)
    assert parts(resize_parts(case, ragged, found, (3, 1, 2))) == [[0, 1, 0], [2], [0, 0]]
    assert resize_parts(case, ragged, found, (300, 1, 2)) is case


def test_what_has_the_rows_in_its_shape_grows_with_them() -> None:
    declare = target(x=tensor(T), later=tensor(T + S), ends=prefix_sums(S + 1, total=T), dims=(S,))
    grown = declare(lambda x, later, ends: {"y": x})
    case = make_case((2, 3))
    later = Argument(("(T + S)",), "float32", exact(np.arange(5, dtype=np.uint32), FLOAT32))
    case = case.with_call(0, case.last.with_argument("later", later))
    (found,) = find_ragged(case, grown)
    longer = resize_parts(case, grown, found, (4, 3))
    assert longer.last.dims == {"T": 7, "S": 2}
    assert longer.last.tensors["later"].bits(longer.last.dims).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]


def test_nothing_is_ragged_without_prefix_sums() -> None:
    gelu = load("gelu_bw")
    x = Argument(("N",), "float32", recipe("normal", 1), Layout())
    assert not list(find_ragged(Case("gelu_bw", (Call({"N": 3}, {"x": x, "dy": x}),)), gelu))


@pytest.mark.parametrize("ends", [(14, 63), (5, 9, 26), (49,), (65, 100, 129), (3, 20, 20, 37)])
@pytest.mark.parametrize("written_out", [True, False])
def test_a_row_that_is_left_over_from_blocks_is_found_in_one_least_case(
    ragged: Target, ends: tuple[int, ...], written_out: bool
) -> None:
    found = Finding("accuracy", ("y",), "value", "m")

    def shows(case: Case) -> Finding | None:
        return found if any(len(part) > 1 and len(part) % 16 == 1 for part in parts(case)) else None

    shrinker = Shrinker(ragged, make_case(ends, written_out=written_out), found, shows, Budget())
    assert [len(part) for part in parts(shrinker.run())] == [17]
