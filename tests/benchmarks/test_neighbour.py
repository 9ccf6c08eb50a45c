"""The neighbour takes what the GPU has, and the runs beside it are judged by what they found."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.reliability import neighbour
from benchmarks.reliability.neighbour import FIRST_STEP, LAST_STEP, NeighbourRun


def test_the_neighbour_leaves_less_than_its_smallest_step(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [3 * FIRST_STEP + 5 * LAST_STEP + 7]

    def allocate(size: int) -> bytes | None:
        if size > free[0]:
            return None
        free[0] -= size
        return b"held"

    monkeypatch.setattr(neighbour, "allocate", allocate)
    assert len(neighbour.fill()) == 3 + 2 and free == [7]


def result(planted: str, code: int, *oracles: str) -> NeighbourRun:
    findings: Any = [{"oracle": oracle, "symptom": "value"} for oracle in oracles]
    return NeighbourRun("matmul", planted, code, {"findings": findings, "profile": {"short of memory": 1.5}}, "")


@pytest.mark.parametrize(
    ("run", "is_lost", "invented"),
    [
        (result("", 0), False, 0),
        (result("", 1, "fault"), True, 1),
        (result("", 3), True, 0),
        (result("a_bug", 1, "accuracy"), False, 0),
        (result("a_bug", 1, "fault"), False, 1),
        (result("a_bug", 0), True, 0),
        (NeighbourRun("matmul", "", 0, {}, "Traceback (most recent call last)"), True, 0),
    ],
)
def test_a_run_beside_the_neighbour_finds_the_planted_bug_and_nothing_else(
    run: NeighbourRun, is_lost: bool, invented: int
) -> None:
    assert (run.is_lost, run.invented) == (is_lost, invented)


def test_what_a_run_waited_for_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1.5 s waited for memory" in str(result("", 0))
