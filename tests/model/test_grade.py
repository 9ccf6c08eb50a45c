"""What counts at which threshold, and what eager PyTorch excuses."""

from __future__ import annotations

import pytest

from fuzz.errors import UsageError
from fuzz.model.grade import SEVERITIES, check_severity, describe_eager, is_at_least


@pytest.mark.parametrize(
    ("severity", "counted"),
    [("high", {"low", "medium", "high"}), ("medium", {"low", "medium"}), ("low", {"low"}), (None, {"low", "medium"})],
)
def test_a_severity_counts_up_to_its_own_threshold_and_none_as_medium(severity: str | None, counted: set[str]) -> None:
    assert {threshold for threshold in SEVERITIES if is_at_least(severity, threshold)} == counted


def test_an_unknown_severity_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="low, medium, high, not 'severe'"):
        check_severity("severe")


def test_the_error_of_eager_pytorch_is_told_in_bounds() -> None:
    assert describe_eager(1.31, "float32") == "torch in float32: 1.3 of the bound"
    assert "not finite" in describe_eager(float("inf"), "float32")
