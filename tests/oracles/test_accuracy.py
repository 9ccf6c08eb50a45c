"""What a finding of accuracy says of several outputs."""

from __future__ import annotations

import math

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
