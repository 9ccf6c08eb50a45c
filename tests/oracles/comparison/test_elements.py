"""What the wrong elements of an output have in common."""

from __future__ import annotations

import math

import pytest
import torch
from compiled_loops import compile_loops

from fuzz.model.dtypes import dtype
from fuzz.model.finding import PATTERNS
from fuzz.oracles.comparison import elements
from fuzz.oracles.comparison.elements import compare_elements, half_ulp, shared_patterns
from fuzz.oracles.comparison.reference_error import suspect_reference
from fuzz.reference.envelope import Expected, make_precision

DUE = torch.tensor([1.0, -2.0, 3.5, 0.25, 700.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("got", "shown"),
    [
        (DUE + 1, ["offset"]),
        (DUE * 1.5, ["factor"]),
        (-DUE, ["factor"]),
        (DUE * 0, ["factor", "number"]),
        (torch.full((5,), 9.0), ["number"]),
        (torch.cat([DUE[:3] + 1, DUE[3:]]), ["offset"]),
        (torch.cat([DUE[:3] + 1, DUE[3:] * 0]), []),
        (torch.cat([DUE[:4] * 1.5, DUE[4:] + 1]), []),
        (DUE * DUE + 2, []),
        (torch.cat([DUE[:4], torch.tensor([math.nan])]), list(PATTERNS)),
    ],
)
def test_wrong_elements_are_alike_where_one_number_gives_all_of_them(
    dtype: torch.dtype, got: torch.Tensor, shown: list[str]
) -> None:
    expected = Expected(DUE.double(), torch.zeros(5, dtype=torch.float64), None)
    output = got.to(dtype)
    assert shared_patterns(output, expected, compare_elements(output, expected, make_precision("libm"))) == shown


def test_whole_numbers_have_patterns_too() -> None:
    expected = Expected(torch.tensor([1, 5, 9]), torch.zeros(3, dtype=torch.float64), None)
    output = torch.tensor([3, 7, 11])
    assert shared_patterns(output, expected, compare_elements(output, expected, make_precision("libm"))) == ["offset"]


def test_elements_that_were_rounded_once_more_are_alike() -> None:
    due = torch.linspace(-8, 8, 101, dtype=torch.float64)
    output = due.to(torch.bfloat16) + 0.02
    expected = Expected(due, torch.zeros_like(due), None)
    assert shared_patterns(output, expected, compare_elements(output, expected, make_precision("libm"))) == ["offset"]


@pytest.mark.parametrize("name", ["float64", "float32", "bfloat16", "float16"])
def test_half_a_unit_is_a_power_of_two_in_the_format(name: str) -> None:
    kind = dtype(name)
    exponents = torch.arange(-1080, 1024)
    powers = torch.ldexp(torch.ones(len(exponents), dtype=torch.float64), exponents)
    held = exponents.clamp(round(math.log2(kind.smallest_normal)), kind.bias) - kind.mantissa - 1
    due = torch.ldexp(torch.ones_like(powers), held)
    assert torch.equal(half_ulp(powers, kind), due)
    assert torch.equal(half_ulp(torch.nextafter(powers * 2, powers)[:-1], kind), due[:-1])
    assert torch.isfinite(half_ulp(torch.tensor([torch.inf, torch.nan], dtype=torch.float64), kind)).all()


@pytest.mark.parametrize("beside", [0.0, math.nan])
def test_an_infinity_of_which_rounding_decides_the_sign_is_undecided_whatever_is_beside_it(beside: float) -> None:
    """As a sum that cancels, over zero."""
    value = torch.tensor([-math.inf, beside], dtype=torch.float64)
    for spread, symptom in ((math.inf, 0), (0.0, 1)):
        expected = Expected(value, torch.tensor([spread, 0.0], dtype=torch.float64), None)
        compared = compare_elements(torch.tensor([math.inf, beside]), expected, make_precision("libm"))
        assert compared.symptom.tolist() == [symptom, 0]


def test_finite_elements_compare_as_they_do_beside_an_infinite_one() -> None:
    value = torch.tensor([1.0, -2.0, 0.0, 3.5, 1e-3, 5.0], dtype=torch.float64)
    output = (value + torch.tensor([0.0, 1e-3, 1e-9, -9.0, 1e-3, 1.0])).float()
    spread = torch.tensor([1e-9, 1e-6, 0.0, 1e-6, 1.0, math.inf], dtype=torch.float64)
    more = torch.tensor([math.inf], dtype=torch.float64)
    alone = compare_elements(output, Expected(value, spread, None), make_precision("libm"))
    beside = Expected(torch.cat([value, more]), torch.cat([spread, more * 0]).nan_to_num(0.0, math.inf), None)
    together = compare_elements(torch.cat([output, more.float()]), beside, make_precision("libm"))
    assert alone.symptom.tolist() == [0, 3, 3, 2, 0, 0]
    for name in ("symptom", "bound", "ratio"):
        assert torch.equal(getattr(alone, name), getattr(together, name)[:-1])


@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("accumulate", ["float32", "float16"])
@pytest.mark.parametrize("format", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_loop_in_c_gives_the_bits_of_torch(
    format: torch.dtype, accumulate: str, measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator, precision = torch.Generator().manual_seed(0), make_precision("libm", accumulate)
    value = torch.randn(9, 41, generator=generator, dtype=torch.float64)
    value[1:] *= 2.0 ** torch.randint(-150, 100, (8, 41), generator=generator)
    value[0, :4] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf])
    spread = value.abs().nan_to_num(0.0, 0.0, 0.0) * torch.rand(9, 41, generator=generator) * 2e-7
    spread[:, 5] *= 1e8
    expected = Expected(value, spread, spread / 4 if measured else None)
    loops = compile_loops()
    assert loops is not None
    for change in (0.0, 2.0**-24, 1.0):
        output = (value * (1 + change)).to(format)
        by_loop = compare_elements(output, expected, precision)
        with monkeypatch.context() as patch:
            patch.setattr(elements, "ready_loops", lambda: None)
            by_torch = compare_elements(output, expected, precision)
        for name in ("symptom", "bound", "ratio"):
            assert torch.equal(getattr(by_loop, name), getattr(by_torch, name))
        assert by_torch.may_be_suspect and (change < 1 or by_loop.wrong)
        assert by_loop.may_be_suspect or not bool(suspect_reference(output, expected, precision).any())


def test_a_loop_rules_out_that_a_reference_is_suspect() -> None:
    value = torch.tensor([1.0, -3.0], dtype=torch.float64)
    precise, coarse = Expected(value, value.abs() * 2.0**-24, None), Expected(value, value.abs(), value.abs())
    assert not compare_elements(value.float(), precise, make_precision("libm")).may_be_suspect
    assert compare_elements(value.float(), coarse, make_precision("libm")).may_be_suspect


def test_the_error_of_a_truth_value_is_one_of_a_number() -> None:
    expected = Expected(torch.tensor([True, True, False]), torch.zeros(3, dtype=torch.float64), None)
    assert elements.largest_error(torch.tensor([True, False, False]), expected) == 1.0
    assert elements.largest_error(torch.tensor([True, True, False]), expected) == 0.0
