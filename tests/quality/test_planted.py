"""Every planted bug is found by its oracle, as one finding, and shrunk to the least dims; its entry holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from planted_expectations import PLANTED, TESTED, Expected
from runs import run

from fuzz.run.replay import replay_entries
from fuzz.target.loader import load

Runs = Callable[[str, str], dict[str, Any]]
BUGS = [(target, name) for target, bugs in PLANTED.items() for name in TESTED.get(target, bugs)]


LIMITS = {
    # Merged from two: cases 0 and 2 shrink to different layouts.
    "assumes_contiguous_dy": ["--cases", "3"],
    # Most cases show it.
    "tanh_form": ["--engine", "random", "--cases", "60"],
}
"""What ends the runs that one finding does not end."""


def found(target: str, name: str, folder: Path) -> dict[str, Any]:
    limits = LIMITS.get(name, ["--cases", "400", "--max-findings", "1"])
    code, value = run(target, folder, "--planted", name, *limits)
    assert code == 1, value
    return value


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """runs(target, bug): the one run of seed 0 for each bug."""
    folder = tmp_path_factory.mktemp("planted")
    return cache(lambda target, name: found(target, name, folder / name))


@pytest.mark.parametrize(("target", "name"), BUGS)
def test_planted_bug_is_found_and_shrunk_to_the_least_dims(target: str, name: str, runs: Runs) -> None:
    """The dims and their derivation stand in tests/quality/planted_expectations.py."""
    expected, value = PLANTED[target][name], runs(target, name)
    assert len(value["findings"]) == 1
    finding = value["findings"][0]
    assert finding["oracle"] == expected.oracle
    assert set(finding["output"].split("+")) & set(expected.outputs), finding
    assert (finding["dims"], finding["calls"]) == (expected.dims, expected.calls)
    assert finding["verdict"] == ("kernel" if expected.oracle == "accuracy" else "unadjudicated"), finding["reason"]


@pytest.mark.parametrize(("target", "name"), [("layernorm_bw", "swapped_param_grads"), ("gelu_bw", "erf_saturates")])
def test_saved_entry_replays(target: str, name: str, runs: Runs) -> None:
    path = Path(runs(target, name)["findings"][0]["path"])
    assert [one.reproduced for one in replay_entries([path], "cpu")] == [True]


def test_saturating_erf_ends_in_one_element_of_the_wrong_sign(runs: Runs) -> None:
    """The cdf sticks at 2**-9 from x = -2.89 down; -4 is the power of two nearest to 1 there, dy = 1 the plainest."""
    finding = runs("gelu_bw", "erf_saturates")["findings"][0]
    assert finding["symptom"] == "sign"
    text = Path(finding["path"]).read_text(encoding="utf-8")
    assert "# -4.0" in text and "# 1.0" in text


def test_dozens_of_hits_of_one_bug_are_one_finding(runs: Runs) -> None:
    (finding,) = runs("gelu_bw", "tanh_form")["findings"]
    assert finding["hits"] >= 18
    assert len(list(Path(finding["path"]).parent.glob("*.yaml"))) == 1


@pytest.mark.parametrize("target", sorted(PLANTED))
def test_every_planted_bug_is_expected(target: str) -> None:
    plants = load(target).planted_bugs
    assert set(plants) == set(PLANTED[target])
    for name, expected in PLANTED[target].items():
        assert isinstance(expected, Expected) and plants[name].oracle == expected.oracle
