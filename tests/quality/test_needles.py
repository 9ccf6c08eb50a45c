"""Needles: rare situations that drawing alone hardly meets are found in a few thousand cases, and again the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import run

NEEDLES = Path(__file__).parents[2] / "benchmarks" / "needles"


@pytest.mark.parametrize(
    ("needle", "engine"),
    [
        ("values.py:one_pattern", "evolve"),
        ("values.py:solved", "auto"),
    ],
)
def test_needles_are_found_in_a_few_thousand_cases(needle: str, engine: str, tmp_path: Path) -> None:
    _, value = run(f"{NEEDLES}/{needle}", tmp_path, "--engine", engine, "--cases", "4000", "--max-findings", "1")
    assert [found["oracle"] for found in value["findings"]] == ["accuracy"]
    assert value["engine"] == engine
    counted = value["engines"]
    assert sum(one["cases"] for one in counted.values()) == value["cases"]
    assert sum(one["share"] for one in counted.values()) == pytest.approx(1.0, abs=0.01)
    assert set(counted) >= ({"random", "evolve"} if engine == "auto" else {engine})


def test_evolve_proposes_the_same_cases_again(tmp_path: Path) -> None:
    """Among some hundred cases, so that much was learnt from reports."""
    more = ("--engine", "evolve", "--cases", "300", "--seed", "3", "--max-findings", "1")
    first, again = (run(f"{NEEDLES}/sizes.py:padded_rows", tmp_path / str(number), *more)[1] for number in range(2))
    for key in ("distribution", "oracles", "worst_ratio", "cases"):
        assert first[key] == again[key]
    assert first["engines"]["evolve"]["discoveries"] == again["engines"]["evolve"]["discoveries"] > 5
