"""The neighbour takes what the GPU has, and the runs beside it are judged by what they found."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from benchmarks.reliability import neighbour
from benchmarks.reliability.neighbour import FIRST_STEP, LAST_STEP, Neighbour, NeighbourRun


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


SAYS = "import time; print('neighbour: holds {} MiB', flush=True)"
"""A program that tells what it holds, as the neighbour does."""


def process(program: str) -> Neighbour:
    return Neighbour([sys.executable, "-S", "-c", program])


def test_the_runs_begin_when_the_neighbour_holds_the_gpu() -> None:
    beside = process(SAYS.format(79000) + "; time.sleep(1000)")
    beside.wait(60)
    beside.check()
    beside.end()
    assert beside.held == [79000]


def test_a_neighbour_that_ends_ends_the_trial() -> None:
    beside = process("raise SystemExit(7)")
    with pytest.raises(RuntimeError, match="exit code 7"):
        beside.wait(60)
    beside.end()


def test_a_neighbour_that_ends_during_the_runs_ends_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "run_beside", lambda *_: result("", 0))
    beside = process(SAYS.format(5))
    beside.wait(60)
    beside.process.wait()
    with pytest.raises(RuntimeError, match="has ended"):
        list(neighbour.run_all(6, 2, 0, beside))
    beside.end()


def test_the_neighbour_says_how_often_it_held_how_much() -> None:
    beside = process("; ".join(SAYS.format(held) for held in (0, 79000, 78800)))
    beside.process.wait()
    beside.end()
    assert str(beside) == "the neighbour filled the GPU 3 times, with 0 to 79000 MiB, in the median 78800 MiB"


@pytest.mark.parametrize("text", ["CUDA error: out of memory", "CUDA out of memory. Tried to allocate 4.00 GiB"])
def test_no_room_for_an_allocation_or_a_context_is_no_error_of_the_neighbour(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def empty(*_: Any, **__: Any) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(torch, "empty", empty)
    assert neighbour.allocate(FIRST_STEP) is None and neighbour.fill() == []


def test_what_a_run_waited_for_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "1.5 s waited for memory" in str(result("", 0))
