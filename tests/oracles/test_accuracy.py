"""What a finding of accuracy says of several outputs."""

from __future__ import annotations

import math

import pytest
import torch

from fuzz.oracles.accuracy import make_finding
from fuzz.oracles.comparison.elements import compare_elements
from fuzz.reference.envelope import Expected, make_precision


def test_the_headline_names_an_output_that_shows_its_symptom() -> None:
    outputs = {"y": torch.tensor([3.0]), "z": torch.tensor([math.nan])}
    zero = torch.zeros(1, dtype=torch.float64)
    expected = {name: Expected(torch.ones(1, dtype=torch.float64), zero, None) for name in outputs}
    compared = {name: compare_elements(outputs[name], one, make_precision("libm")) for name, one in expected.items()}
    finding = make_finding(outputs, expected, compared, 0)
    assert (finding.symptom, finding.outputs) == ("nonfinite", ("y", "z"))
    assert finding.message.endswith("z[0] is nan, should be 1.0")
    assert finding.headline_part.subjects == {("accuracy", "nonfinite", "z")}


@pytest.mark.parametrize(
    ("want", "dtype", "said"),
    [
        (-2.18e-87, torch.float32, "should be -2.18e-87, which is -0.0 in float32"),
        (2 / 3, torch.bfloat16, "should be 0.6666666666666666"),
        (1e39, torch.float32, "should be 1e+39, which is inf in float32"),
        (0.75, torch.float16, "should be 0.75"),
        (math.inf, torch.float32, "should be inf"),
        (math.nan, torch.float32, "should be nan"),
    ],
)
def test_a_value_beyond_the_range_of_the_outputs_dtype_is_shown_in_it_as_well(
    want: float, dtype: torch.dtype, said: str
) -> None:
    due = Expected(torch.tensor([want], dtype=torch.float64), torch.zeros(1, dtype=torch.float64), None)
    output = torch.tensor([3.0], dtype=dtype)
    compared = compare_elements(output, due, make_precision("libm"))
    finding = make_finding({"y": output}, {"y": due}, {"y": compared}, 0)
    assert finding.message.endswith(f"y[0] is 3.0, {said}")
    assert finding.elements[0].want == repr(want)
