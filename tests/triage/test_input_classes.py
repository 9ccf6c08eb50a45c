"""The inputs of each class: what stays of a case, which values and layouts are drawn, and which class a case is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuzz import option, size, target, tensor
from fuzz.model.case import Argument, Call, Case, LaunchOptions
from fuzz.model.dtypes import dtype, from_bits
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import exact, recipe
from fuzz.target.spec import Target
from fuzz.triage.input_classes import classify, classify_drawn, plans, realistic_dims

M, N = size("M", 1, 4096), size("N", 1, 8192)
CLASSES = ("ordinary", "special", "layout", "extreme")


@target(x=tensor(M, N), w=tensor(N), eps=option(1e-5, 1e-6), reference=lambda x, w, eps: dict(y=x * w))
def scale(x: Any, w: Any, eps: float) -> Mapping[str, Any]:
    return dict(y=x * w)


TARGET: Target = scale


def case_of(dtype_name: str = "float32", layout: Layout = CONTIGUOUS, **dims: int) -> Case:
    arguments = {
        "x": Argument(("M", "N"), dtype_name, recipe("ones"), layout),
        "w": Argument(("N",), dtype_name, recipe("ones")),
    }
    call = Call({"M": 2, "N": 3, **dims}, arguments, {"eps": 1e-6}, launch=LaunchOptions(config=1))
    return Case("scale", (call,))


def numbers(case: Case) -> np.ndarray:
    """All values of a case."""
    call = case.last
    found = [from_bits(value.bits(call.dims), dtype(value.dtype)).reshape(-1) for value in call.tensors.values()]
    return np.abs(np.concatenate(found).astype(np.float64))


@pytest.mark.parametrize("input_class", CLASSES)
def test_dtypes_options_and_launch_options_stay_and_every_draw_is_the_same_again(input_class: str) -> None:
    case = case_of("float16")
    drawn = list(plans(case, TARGET, input_class))
    assert 15 < len(drawn) <= 100 and [plan.key for plan in plans(case, TARGET, input_class)] == [p.key for p in drawn]
    for plan in drawn:
        assert (plan.last.options, plan.last.launch) == (case.last.options, case.last.launch)
        assert {value.dtype for value in plan.last.tensors.values()} == {"float16"}
        plain = all(value.layout == CONTIGUOUS for value in plan.last.tensors.values())
        assert plain or input_class in ("layout", "extreme")


@pytest.mark.parametrize("dtype_name", ["float32", "bfloat16", "float16"])
def test_ordinary_values_are_finite_and_far_from_the_limits_of_their_dtype(dtype_name: str) -> None:
    drawn = list(plans(case_of(dtype_name), TARGET, "ordinary"))
    largest = max(numbers(plan).max() for plan in drawn)
    assert 89 < largest <= min(2.0**16, dtype(dtype_name).largest / 8)
    assert [value.values.text().split()[2] for value in drawn[0].last.tensors.values()] == ["exponent=0"] * 2  # type: ignore[union-attr]


def test_special_values_stay_within_2_to_the_32_and_extreme_ones_go_beyond() -> None:
    special, extreme = (max(numbers(plan).max() for plan in plans(case_of(), TARGET, name)) for name in CLASSES[1::2])
    assert 2.0**16 < special < 2.0**34 and extreme > 2.0**100


def test_sizes_are_realistic_first_and_hold_what_the_case_needs() -> None:
    assert realistic_dims(TARGET) == {"M": 4, "N": 512}
    sizes = [dict(plan.last.dims) for plan in plans(case_of(M=2, N=1500), TARGET, "ordinary")][:5]
    assert sizes[:2] == [{"M": 4, "N": 512}, {"M": 4, "N": 1500}] and sizes[4] == {"M": 2, "N": 1500}
    assert any(plan.elements() > 1 << 20 for plan in plans(case_of(M=4096, N=512), TARGET, "extreme"))
    assert all(plan.elements() <= 1 << 20 for plan in plans(case_of(M=4096, N=512), TARGET, "layout"))


def test_the_layouts_of_a_case_are_drawn_again_but_for_huge_ones() -> None:
    case = case_of(layout=Layout(order=(1, 0), reach=30))
    layouts = [plan.last.arguments["x"].layout for plan in plans(case, TARGET, "layout")]
    assert Layout(order=(1, 0)) in layouts and not any(layout.reach for layout in layouts)
    assert any(plan.last.arguments["x"].layout.reach for plan in plans(case, TARGET, "extreme"))


@pytest.mark.parametrize(
    ("value", "layout", "input_class"),
    [
        (3.0, CONTIGUOUS, "special"),
        (0.0, CONTIGUOUS, "special"),
        (2.0**-30, CONTIGUOUS, "special"),
        (1.7e38, CONTIGUOUS, "extreme"),
        (2.0**-130, CONTIGUOUS, "extreme"),
        (float("nan"), CONTIGUOUS, "extreme"),
        (3.0, Layout(offset=1), "layout"),
        (3.0, Layout(reach=30), "extreme"),
    ],
)
def test_a_case_that_no_draw_is_like_has_the_class_of_its_values_and_layouts(
    value: float, layout: Layout, input_class: str
) -> None:
    case = case_of(layout=layout, M=1, N=1)
    bits = exact(np.array([np.float32(value).view(np.uint32)]), dtype("float32"))
    argument = replace(case.last.arguments["x"], values=bits)
    assert classify(case.with_call(0, case.last.with_argument("x", argument)), TARGET) == input_class


@pytest.mark.parametrize("input_class", CLASSES)
def test_a_drawn_case_is_ordinary_only_if_its_values_are(input_class: str) -> None:
    """Plans of the other classes may have ordinary values by chance, and no plan of this class has others."""
    found = [classify_drawn(plan, TARGET) for plan in plans(case_of(), TARGET, input_class)]
    assert set(found) == {"ordinary"} if input_class == "ordinary" else found.count("ordinary") < len(found)


def test_one_value_beyond_ordinary_sizes_makes_a_case_special() -> None:
    for value, input_class in ((3.0, "ordinary"), (2.0**17, "special"), (2.0**-20, "special"), (0.0, "ordinary")):
        case = case_of(M=1, N=1)
        bits = exact(np.array([np.float32(value).view(np.uint32)]), dtype("float32"))
        argument = replace(case.last.arguments["x"], values=bits)
        assert classify_drawn(case.with_call(0, case.last.with_argument("x", argument)), TARGET) == input_class
