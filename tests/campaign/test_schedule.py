"""Which targets patterns name, and whose turn it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.campaign.config import parse_config
from fuzz.campaign.schedule import chosen, create_jobs, earned, next_job
from fuzz.campaign.store import Job
from fuzz.errors import UsageError

FILE = '''"""Two targets; nothing here may run."""
raise SystemExit("executed")
import fuzz

@fuzz.target(x=1)
def one(x): ...

@target(x=1)
def two(x): ...

@other
def helper(x): ...
'''


def test_patterns_name_built_in_targets_libraries_and_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    assert chosen(["gelu_*"]) == ["gelu_bw"]
    assert "liger/softmax" in chosen(["liger/*"]) and chosen(["liger_softmax"]) == ["liger/softmax"]
    everything = chosen(["*"])
    assert {"gelu_bw", "layernorm_bw", "liger/softmax"} <= set(everything) and len(set(everything)) == len(everything)
    assert "gelu_bw" not in chosen(["*", "!gelu*"])
    assert chosen([f"{tmp_path}/*.py"]) == [f"{path}:one", f"{path}:two"]
    assert chosen([f"{path}:tw*"]) == [f"{path}:two"]
    assert chosen([f"{path}:helper"]) == [f"{path}:helper"]


def test_a_file_that_is_no_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def")
    with pytest.raises(UsageError, match=r"targets: cannot read .*bad.py: invalid syntax"):
        chosen([f"{tmp_path}/bad.py"])


def test_there_is_a_lane_for_every_worker_unless_seeds_are_given() -> None:
    keys = {"targets": ["gelu_bw", "silu"], "planted": ["gelu_bw+erf_saturates"], "workers": 7}
    lanes = create_jobs(parse_config(keys), 5)
    assert len(lanes) == 9 and {lane.seed for lane in lanes} == {0, 1, 2} and {lane.campaign for lane in lanes} == {5}
    assert {(lane.target, lane.planted) for lane in lanes} == {
        ("gelu_bw", ""), ("silu", ""), ("gelu_bw", "erf_saturates")
    }  # fmt: skip
    assert {lane.seed for lane in create_jobs(parse_config({**keys, "seeds": [4]}), 5)} == {4}


def lane(name: str) -> Job:
    return Job(1, name, "", "cpu", "random", 0)


def play(worth: list[float], slices: int) -> list[int]:
    """How many slices lanes get whose slices of 10 s make so many discoveries."""
    lanes = [lane(str(index)) for index in range(len(worth))]
    for _ in range(slices):
        index = next_job(lanes, set())
        assert index is not None
        old, seconds = lanes[index], 10.0
        recent = earned(old, int(worth[index]), seconds)
        lanes[index] = replace(old, slices=old.slices + 1, cases=1, seconds=old.seconds + seconds, recent=recent)
    return [one.slices for one in lanes]


def test_lanes_take_turns_where_nothing_is_discovered() -> None:
    assert play([0, 0, 0, 0], 40) == [10, 10, 10, 10]


def test_a_lane_that_discovers_gets_more_and_none_is_forgotten() -> None:
    counts = play([50, 0, 0, 0], 100)
    assert counts[0] > 60 and min(counts) >= 4


def test_the_budget_moves_on_when_discoveries_cease() -> None:
    first, second = (
        replace(lane("a"), slices=20, cases=1, recent=1.0),
        replace(lane("b"), slices=20, cases=1, recent=1.0),
    )
    assert next_job([first, second], set()) == 0
    for _ in range(8):
        first = replace(first, slices=first.slices + 1, recent=earned(first, 0, 60.0))
    assert next_job([first, second], set()) == 1


def test_a_lane_that_is_busy_or_given_up_gets_no_turn() -> None:
    lanes = [lane("a"), replace(lane("b"), note="refused"), lane("c")]
    assert next_job(lanes, {0}) == 2
    assert next_job(lanes, {0, 2}) is None


def test_a_lane_with_suspects_comes_first_and_then_one_that_ran_nothing() -> None:
    lanes = [lane("a"), replace(lane("b"), slices=3, cases=9), replace(lane("c"), slices=1)]
    assert next_job(lanes, set(), {1}) == 1
    assert next_job(lanes, {1}, {1}) == 0
    assert next_job([replace(lanes[0], slices=1, cases=1), *lanes[1:]], set()) == 2
