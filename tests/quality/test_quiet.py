"""Correct kernels stay silent, and every oracle gets its share."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import run

SAMPLED = ("deterministic", "invariance", "layout", "rejects")


@pytest.mark.parametrize("target", ["layernorm_bw", "gelu_bw"])
def test_good_kernels_are_silent_and_every_oracle_has_its_share(target: str, tmp_path: Path) -> None:
    code, value = run(target, tmp_path, "--cases", "200", "--seed", "77")
    assert (code, value["findings"], value["unconfirmed"]) == (0, [], 0)
    assert 0 < value["worst_ratio"] <= 1
    accepted = value["cases"] - value["rejected"]
    assert all(value["oracles"][name] == accepted for name in ("fault", "accuracy", "mutation", "bounds"))
    assert all(value["oracles"][name] >= accepted / 16 for name in SAMPLED)
