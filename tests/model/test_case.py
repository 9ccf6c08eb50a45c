"""Cases as data, and the total order that says which of two is simpler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from fuzz.model.case import Argument, Call, Case, Split, materialise, sort_key
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import Exact, recipe
from fuzz.search.engines import RandomEngine
from fuzz.target.spec import Target

DEFAULTS = {"x": "float32", "eps": 1e-5}


def made(
    n: int = 2,
    bits: tuple[int, ...] = (0, 0),
    dtype: str = "float32",
    layout: Layout = CONTIGUOUS,
    eps: float = 1e-5,
    calls: int = 1,
    split: Split | None = None,
) -> Case:
    x = Argument(("N",), dtype, Exact((bits * n)[:n], dtype), layout)
    return Case("t", (Call({"N": n}, {"x": x}, {"eps": eps}),) * calls, split)


SIMPLER = [
    (made(), made(calls=2)),
    (made(2), made(3)),
    (made(), made(layout=Layout(offset=1))),
    (made(), made(dtype="float16")),
    (made(), made(eps=1e-6)),
    (made(), made(split=Split(0, 1))),
    (made(split=Split(0, 1)), made(split=Split(1, 1))),
    (made(split=Split(3, 1)), made(split=Split(0, 1, 1))),
    (made(bits=(0, 0)), made(bits=(0, 0x3F800000))),
    (made(bits=(0x3F800000,)), made(bits=(0x3FC00000,))),
    (made(bits=(0x3F800000,)), made(bits=(0x40000000,))),
    (made(bits=(0x3F800000,)), made(bits=(0xBF800000,))),
    (made(bits=(0, 0x3F800000)), made(bits=(0x3F800000, 0))),
    # What comes first in the order outweighs all that follows.
    (made(1, eps=1e-6, layout=Layout(step=2), bits=(0x3FABCDEF,)), made(2)),
    (made(bits=(0x3FABCDEF,)), made(layout=Layout(offset=1))),
    (made(layout=Layout(pad=1)), made(layout=Layout(pad=2))),
]


@pytest.mark.parametrize(("simple", "other"), SIMPLER)
def test_the_simpler_case_comes_first(simple: Case, other: Case) -> None:
    assert sort_key(simple, DEFAULTS) < sort_key(other, DEFAULTS)


def test_fewer_expanded_dims_come_first() -> None:
    fewer, more = (Argument(("M", "N"), "float32", recipe("zeros"), Layout(expand=dims)) for dims in ((1,), (0, 1)))
    one, other = (Case("t", (Call({"M": 1, "N": 1}, {"x": x}),)) for x in (fewer, more))
    assert sort_key(one, {}) < sort_key(other, {})


def test_total_elements_come_before_single_dims() -> None:
    wide, tall = ({"M": 1, "N": 6}, {"M": 2, "N": 2})
    cases = [Case("t", (Call(dims, {"x": Argument(("M", "N"), "float32", recipe("zeros"))}),)) for dims in (wide, tall)]
    assert sort_key(cases[1], {}) < sort_key(cases[0], {})


def test_the_order_is_total_over_drawn_cases(built_in: Target) -> None:
    engine = RandomEngine(built_in, 3)
    drawn = {case.key: case for case in (engine.case(index) for index in range(150)) if case.elements() < 3000}
    keys = sorted(sort_key(case, built_in.defaults) for case in drawn.values())
    assert len(drawn) > 80
    # Recipes that make the same bits are the same to the order: only their bits are compared.
    assert sum(a == b for a, b in zip(keys, keys[1:], strict=False)) <= 2


def test_a_case_is_frozen_and_has_a_key(case: Case) -> None:
    with pytest.raises(FrozenInstanceError):
        case.target = "other"  # type: ignore[misc]
    assert replace(case).key == case.key
    assert hash(case.key) == hash(replace(case).key)
    assert replace(case, split=Split(0, 1)).key != case.key


CHANGES: list[Callable[[Call], Call]] = [
    lambda call: replace(call, dims={"N": 3}),
    lambda call: replace(call, options={"eps": 1}),
    lambda call: call.with_argument("x", replace(call.arguments["x"], layout=Layout(offset=1))),
    lambda call: call.with_argument("dy", replace(call.arguments["dy"], values=recipe("normal", 8))),
    lambda call: call.with_argument("grad y", call.arguments["dy"]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_every_part_of_a_call_is_in_the_key(case: Case, change: Callable[[Call], Call]) -> None:
    assert case.with_call(0, change(case.last)).key != case.key


def test_cotangents_are_tensors_under_a_name_of_their_own(case: Case) -> None:
    call = case.last.with_argument("grad y", case.last.arguments["dy"])
    assert list(call.tensors) == ["dy", "x", "grad y"]
    assert list(call.cotangents) == ["y"]
    assert call.elements() == 6


def test_words_have_the_stored_shape_and_are_read_only(case: Case) -> None:
    value = Argument(("N", "4"), "float32", recipe("normal", 1), Layout(expand=(0,)))
    bits = value.bits({"N": 3})
    assert bits.shape == (1, 4)
    with pytest.raises(ValueError, match="read-only"):
        bits[0] = 1


def test_exact_words_must_fill_their_tensor() -> None:
    with pytest.raises(ValueError, match="2 bits for 3 elements"):
        materialise(Exact((1, 2), "float32"), (3,), "float32")
    with pytest.raises(ValueError, match="cannot fill"):
        materialise(Exact((1, 2), "float16"), (2,), "float32")


def test_large_tensors_are_made_as_small_ones_are() -> None:
    large = materialise(recipe("normal", 5), (1 << 13,), "float32")
    assert np.array_equal(large[:64], materialise(recipe("normal", 5), (64,), "float32"))
