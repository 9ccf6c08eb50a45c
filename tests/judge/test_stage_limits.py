"""How long the stages of a judgement may take, and what is said of those that are cut off."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from fuzz.clock import Clock
from fuzz.judge import stage_limits
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.referee import ORDINARY_STAGES, judge
from fuzz.judge.result.judgement import RIGHT, WRONG
from fuzz.judge.result.report import judgement_json
from fuzz.judge.stage_limits import StageLimits
from fuzz.worker.deadline import Deadline, OutOfTime
from tests.judge.problems import LINEAR, RELU, as_solution, write


@dataclass(frozen=True)
class SteppedClock(Clock):
    """Goes on by what it is told."""

    moments: list[float]

    def monotonic(self) -> float:
        return self.moments[-1]

    def pass_seconds(self, deadline: Deadline, *seconds: float) -> None:
        """Lets time pass, and asks after each part of it whether the deadline has passed."""
        for each in seconds:
            self.moments.append(self.moments[-1] + each)
            deadline.check()


def make_limits(**seconds: float) -> tuple[StageLimits, SteppedClock, list[str]]:
    clock, renewed = SteppedClock([5.0]), list[str]()
    return StageLimits(Deadline(clock=clock), lambda: renewed.append("renewed"), **seconds), clock, renewed


def test_a_stage_takes_no_more_than_a_share_and_the_others_still_run() -> None:
    limits, clock, renewed = make_limits(seconds=80.0)
    reached = []
    with limits.stage("slow", 8):
        clock.pass_seconds(limits.deadline, 29.0, 1.0)
        reached.append("the rest of it")
    assert limits.cut_off == ["slow after 30 s"] and not reached and renewed == ["renewed"]
    with limits.stage("last", 1):
        clock.pass_seconds(limits.deadline, 49.0)
    assert limits.cut_off == ["slow after 30 s"] and limits.seconds == 1.0 and limits.deadline.end == float("inf")


def test_what_a_finding_takes_is_not_the_stages_time() -> None:
    limits, clock, renewed = make_limits(seconds=10.0, finding_seconds=50.0)
    with limits.stage("values", 1):
        clock.pass_seconds(limits.deadline, 2.0)
        with limits.finding():
            clock.pass_seconds(limits.deadline, 40.0)
        clock.pass_seconds(limits.deadline, 7.0)
    assert not limits.cut_off and not renewed and limits.seconds == 1.0 and limits.finding_seconds == 10.0


def test_what_loading_takes_is_nobodys_time() -> None:
    limits, clock, renewed = make_limits(seconds=10.0, finding_seconds=50.0)
    with limits.stage("values", 1):
        with limits.deadline.pause(240.0):
            clock.pass_seconds(limits.deadline, 100.0, 100.0)
        clock.pass_seconds(limits.deadline, 2.0)
        with limits.finding():
            with limits.deadline.pause(240.0):
                clock.pass_seconds(limits.deadline, 200.0)
            clock.pass_seconds(limits.deadline, 40.0)
        clock.pass_seconds(limits.deadline, 7.0)
        with limits.deadline.pause(240.0):
            clock.pass_seconds(limits.deadline, 200.0)
    assert not limits.cut_off and not renewed and limits.seconds == 1.0 and limits.finding_seconds == 10.0


def test_processes_are_new_after_the_time_for_findings_has_ended() -> None:
    limits, clock, renewed = make_limits(seconds=10.0, finding_seconds=5.0)
    with limits.stage("values", 1):
        with limits.finding(), pytest.raises(OutOfTime):
            clock.pass_seconds(limits.deadline, 6.0)
        assert renewed == ["renewed"]
        with limits.finding():
            pytest.fail("there is no time left for another one")
    assert limits.cut_off == ["a disagreement", "values after 6 s"]


def test_a_disagreement_that_there_is_no_time_for_is_said_among_odd_values_too() -> None:
    limits, _, _ = make_limits(finding_seconds=0.0)
    with limits.last_stage(3.0), limits.finding():
        pytest.fail("there is no time")
    assert limits.cut_off == ["a disagreement"]


def test_odd_values_end_with_their_time_and_are_not_cut_off() -> None:
    limits, clock, renewed = make_limits()
    with limits.last_stage(3.0):
        clock.pass_seconds(limits.deadline, *[1.0] * 100)
    assert not limits.cut_off and clock.monotonic() == 8.0


def test_a_right_solution_of_which_stages_are_cut_off_has_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_limits, "STAGE_SECONDS", 0.0)
    paths = write(tmp_path, "problem", LINEAR), write(tmp_path, "solution", as_solution(LINEAR))
    found = judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))
    document = judgement_json(found)
    assert (found.verdict, document["score"]) == (RIGHT, None)
    assert document["codes"] == ["incomplete/odd-values", "incomplete/cut-off"]
    note = next(note for note in found.notes if note.startswith("not finished in time"))
    assert all(f"{name} after 0 s" in note for name in ORDINARY_STAGES)


def test_what_is_wrong_after_a_stage_that_is_cut_off_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = StageLimits.stage

    def cut_first(limits: StageLimits, name: str, stages_left: int) -> object:
        limits.seconds = 0.0 if name == "other dims" else 1e6
        return stage(limits, name, stages_left)

    monkeypatch.setattr(StageLimits, "stage", cut_first)
    solution = as_solution(RELU).replace("torch.relu(x)", "torch.where(x < 100, torch.relu(x), 0)")
    paths = write(tmp_path, "problem", RELU), write(tmp_path, "solution", solution)
    found = judge(JudgeOptions(*paths, backend="cpu", seconds=0.0))
    assert (found.verdict, found.cut_off) == (WRONG, ["other dims after 0 s"])
