"""Many calls of one shape: what is right for as long as a check takes, and kept from then on, is found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from fuzz.judge.checks import many_calls
from fuzz.judge.checks.many_calls import DIFFERING, MANY, TIMED, draw_order, find_places
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.processes.requests import Outputs, TensorWords
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import CHEAT, RIGHT
from tests.judge.problems import RELU, as_solution, write


@pytest.fixture(autouse=True)
def all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as without tests, and as much time as a busy machine takes for those of small dims."""
    monkeypatch.setattr(many_calls, "TIMED", TIMED)
    monkeypatch.setattr(many_calls, "MANY", MANY)
    monkeypatch.setattr(many_calls, "SECONDS", {False: 200.0, True: 1.0})


COUNTED = """
        counts[x.shape] = counts.get(x.shape, 0) + 1
        if counts[x.shape] > LIMIT:
            return kept[x.shape].clone()
        kept[x.shape] = torch.relu(x)
        return kept[x.shape]
"""


@pytest.mark.parametrize(("limit", "verdict"), [(64, CHEAT), (110, CHEAT), (10_000, RIGHT)])
def test_results_kept_after_many_calls_of_a_shape_are_a_cheat(tmp_path: Path, limit: int, verdict: str) -> None:
    body = COUNTED.strip().replace("LIMIT", str(limit))
    solution = "counts, kept = {}, {}\n\n" + as_solution(RELU).replace("return torch.relu(x)", body)
    paths = write(tmp_path, "problem", RELU), write(tmp_path, "solution", solution)
    found = judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))
    assert found.verdict == verdict, found.reason
    assert verdict == RIGHT or found.evidence[-1].oracle == "history"
    assert f"{MANY} calls at N=8" in found.kinds


def test_values_that_are_new_after_the_timed_calls_are_drawn() -> None:
    order = draw_order(Random(0), 6, 4)
    assert len(order) == MANY >= 130 and max(order[:TIMED]) < 6 and set(range(6, 10)) <= set(order[TIMED:])


def outputs(number: int) -> Outputs:
    return {"out": TensorWords(np.full(3, number, np.uint32), "float32")}


def test_equal_words_are_compared_once_and_of_many_others_some() -> None:
    order = draw_order(Random(0), 2, 1)
    right = [outputs(number) for number in order]
    first = sorted({order.index(number) for number in order})
    assert find_places(Random(0), order, right) == first
    late = [*right[:-1], outputs(99)]
    assert find_places(Random(0), order, late) == [*first, MANY - 1]
    varying = find_places(Random(0), order, [outputs(100 + index) for index in range(MANY)])
    assert set(first) <= set(varying) and DIFFERING <= len(varying) <= DIFFERING + len(first) + 1
