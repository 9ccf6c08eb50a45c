"""Waves, single cases and a loop by hand are compared on the same mix of cases."""

from __future__ import annotations

import pytest

from benchmarks import waves


def test_each_plan_counts_by_its_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    now, ran = [0.0], list[float]()
    monkeypatch.setattr(waves.time, "perf_counter", lambda: now[0])

    def step(seconds: float) -> None:
        now[0] += seconds
        ran.append(seconds)

    rates = waves.timed(step, [[0.001, 0.003], [0.016]], [30, 2], 32, 0.15)
    # Two rounds a fifth, of 17 and 19 ms: 30 cases of 2 ms each, and 2 of 16 ms.
    assert rates == [round(32 / 0.092)] * waves.FIFTHS
    assert ran == [0.001, 0.016, 0.003, 0.016] * waves.FIFTHS
