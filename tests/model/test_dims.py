"""Named sizes and arithmetic over them."""

from __future__ import annotations

import pytest

from fuzz.errors import TargetError
from fuzz.model.dims import Size, evaluate, names, resolve

M, N = Size("M", 1, 64), Size("N", 0, 100, 8)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (M, 3), (2 * M, 6), (M * 2, 6), (M + 1, 4), (M - 1, 2), (M // 2, 1), (M * N, 48), (M + N, 19),
        ((M + 1) * 2, 8), (2 * (M - N), -26), ((M + 1) // 2, 2), (M * (N + 1) - 1, 50), ((M * N) // 7 * 7, 42),
        (2 * (M // 2), 2), (N * (M // 2), 16), (N // (2 * M), 2), (N // (M // 2), 16), (M // 2 * 4, 4), (1 + M, 4),
        (8 - M, 5), (2 * (M * N), 96), (N * (N // 5 * 2), 96),
    ],
)  # fmt: skip
def test_expressions_mean_what_python_means_by_them(expression: Size, value: int) -> None:
    assert evaluate(expression.text, {"M": 3, "N": 16}) == value


def test_a_shape_is_resolved_dim_by_dim() -> None:
    assert resolve(("M", "2*N + 1", "5"), {"M": 3, "N": 8}) == (3, 17, 5)
    assert resolve((), {}) == ()


def test_names_are_those_that_an_expression_uses() -> None:
    assert set(names("2*M + N//3")) == {"M", "N"}


@pytest.mark.parametrize(
    ("size", "value", "clamped"), [(M, 0, 1), (M, 99, 64), (M, 7, 7), (N, 15, 8), (N, 500, 96), (N, 3, 0)]
)
def test_a_size_is_clamped_to_what_is_allowed(size: Size, value: int, clamped: int) -> None:
    assert size.clamp(value) == clamped


def test_a_lowest_size_is_rounded_up_to_a_multiple() -> None:
    assert Size("K", 5, 64, 16).clamp(1) == 16


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M +",
        "__import__('os')",
        "M.real",
        "M ** 2",
        "M / 2",
        "-M",
        "1.5",
        "M if M else 2",
        "[M]",
        "M; N",
        "(" * 150 + "1",
    ],
)
def test_anything_but_arithmetic_over_names_is_refused(text: str) -> None:
    with pytest.raises(TargetError, match="size expression"):
        evaluate(text, {"M": 2})


def test_a_name_that_is_no_dim_is_named() -> None:
    with pytest.raises(TargetError, match="'K', which is not a dim"):
        evaluate("2*K", {"M": 2})


def test_a_division_by_zero_is_a_targets_error() -> None:
    with pytest.raises(TargetError, match="divides by 0"):
        evaluate("4//(M - 2)", {"M": 2})
