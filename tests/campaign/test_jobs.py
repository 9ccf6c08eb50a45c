"""Which targets patterns name, and which job gets the next slice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.campaign.config import parse_config
from fuzz.campaign.jobs import average_discoveries, create_jobs, next_job, select_targets
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
    assert select_targets(["gelu_*"]) == ["gelu_bw"]
    assert "liger/softmax" in select_targets(["liger/*"]) and select_targets(["liger_softmax"]) == ["liger/softmax"]
    everything = select_targets(["*"])
    assert {"gelu_bw", "layernorm_bw", "liger/softmax"} <= set(everything) and len(set(everything)) == len(everything)
    assert "gelu_bw" not in select_targets(["*", "!gelu*"])
    assert select_targets([f"{tmp_path}/*.py"]) == [f"{path}:one", f"{path}:two"]
    assert select_targets([f"{path}:tw*"]) == [f"{path}:two"]
    assert select_targets([f"{path}:helper"]) == [f"{path}:helper"]


def test_a_file_that_is_no_python_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def")
    with pytest.raises(UsageError, match=r"targets: cannot read .*bad.py: invalid syntax"):
        select_targets([f"{tmp_path}/bad.py"])


def test_there_is_a_job_for_every_worker_unless_seeds_are_given() -> None:
    keys = {"targets": ["gelu_bw", "silu"], "planted": ["gelu_bw+erf_saturates"], "workers": 7}
    jobs = create_jobs(parse_config(keys), 5)
    assert len(jobs) == 9 and {job.seed for job in jobs} == {0, 1, 2} and {job.campaign for job in jobs} == {5}
    assert {(job.target, job.planted) for job in jobs} == {
        ("gelu_bw", ""), ("silu", ""), ("gelu_bw", "erf_saturates")
    }  # fmt: skip
    assert {job.seed for job in create_jobs(parse_config({**keys, "seeds": [4]}), 5)} == {4}


BUGS = """from fuzz import target

@target()
def one(x): ...

@target()
def two(x): ...

@one.planted("first", oracle="accuracy", outputs=("y",))
def first(x): ...

two.planted("second", oracle="accuracy", outputs=("y",), change=("a", "b"))
"""


def test_a_planted_bug_that_a_target_has_not_is_refused_as_fuzz_run_does(tmp_path: Path) -> None:
    def create(planted: str) -> list[Job]:
        return create_jobs(parse_config({"targets": ["silu"], "planted": [planted]}), 5)

    with pytest.raises(
        UsageError, match="^planted: target 'gelu_bw' has no planted bug 'nope'; known: .*erf_saturates"
    ):
        create("gelu_bw+nope")
    with pytest.raises(UsageError, match="unknown target 'gelu'"):
        create("gelu+erf_saturates")
    path = tmp_path / "fuzz_bugs.py"
    path.write_text(BUGS)
    assert create(f"{path}:one+first")[-1].planted == "first"
    with pytest.raises(UsageError, match="has no planted bug 'second'; known: first$"):
        create(f"{path}:one+second")
    # Whose names are computed only the target itself knows.
    path.write_text(
        BUGS + 'for name in ("third", "fourth"):\n    one.planted(name, oracle="accuracy", outputs=("y",))\n'
    )
    assert create(f"{path}:one+fourth")[-1].planted == "fourth"


def job(name: str) -> Job:
    return Job(1, name, "", "cpu", "random", 0)


def play(worth: list[float], slices: int) -> list[int]:
    """How many slices jobs get whose slices of 10 s make so many discoveries."""
    jobs = [job(str(index)) for index in range(len(worth))]
    for _ in range(slices):
        index = next_job(jobs, set())
        assert index is not None
        old, seconds = jobs[index], 10.0
        recent = average_discoveries(old, int(worth[index]), seconds)
        jobs[index] = replace(old, slices=old.slices + 1, cases=1, seconds=old.seconds + seconds, recent=recent)
    return [one.slices for one in jobs]


def test_jobs_take_turns_where_nothing_is_discovered() -> None:
    assert play([0, 0, 0, 0], 40) == [10, 10, 10, 10]


def test_a_job_that_discovers_gets_more_and_none_is_forgotten() -> None:
    counts = play([50, 0, 0, 0], 100)
    assert counts[0] > 60 and min(counts) >= 4


def test_the_budget_moves_on_when_discoveries_cease() -> None:
    first, second = (
        replace(job("a"), slices=20, cases=1, recent=1.0),
        replace(job("b"), slices=20, cases=1, recent=1.0),
    )
    assert next_job([first, second], set()) == 0
    for _ in range(8):
        first = replace(first, slices=first.slices + 1, recent=average_discoveries(first, 0, 60.0))
    assert next_job([first, second], set()) == 1


def test_a_job_that_is_busy_or_given_up_gets_no_turn() -> None:
    jobs = [job("a"), replace(job("b"), note="refused"), job("c")]
    assert next_job(jobs, {0}) == 2
    assert next_job(jobs, {0, 2}) is None


def test_a_job_with_suspects_comes_first_and_then_one_that_ran_nothing() -> None:
    jobs = [job("a"), replace(job("b"), slices=3, cases=9), replace(job("c"), slices=1)]
    assert next_job(jobs, set(), {1}) == 1
    assert next_job(jobs, {1}, {1}) == 0
    assert next_job([replace(jobs[0], slices=1, cases=1), *jobs[1:]], set()) == 2
