"""Where a process's time goes: each moment counts for the innermost activity."""

import time

import pytest

from fuzz.worker import profile
from fuzz.worker.activity import PROFILE_START, Activity
from fuzz.worker.profile import ACTIVITIES, Profile, add_seconds, measured


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


@pytest.fixture
def shared() -> tuple[Profile, Activity]:
    """A profile, and the activity in whose memory another process reads it."""
    own, activity = Profile(), Activity()
    own.share(activity.cells, PROFILE_START)
    return own, activity


def test_the_innermost_activity_counts(clock: Clock, shared: tuple[Profile, Activity]) -> None:
    own, activity = shared
    with own.measure("oracles"):
        clock.now += 1
        with own.measure("launch"):
            clock.now += 10
            with own.measure("generation"):
                clock.now += 100
            clock.now += 20
        clock.now += 2
    clock.now += 1000
    wanted = dict.fromkeys(ACTIVITIES, 0.0) | {"oracles": 3.0, "launch": 30.0, "generation": 100.0}
    assert activity.profile == wanted


def test_an_error_ends_its_activity(clock: Clock, shared: tuple[Profile, Activity]) -> None:
    own, activity = shared
    with own.measure("oracles"):
        with pytest.raises(ValueError), own.measure("reference"):
            clock.now += 1
            raise ValueError
        clock.now += 5
    assert activity.profile["reference"] == 1.0 and activity.profile["oracles"] == 5.0


def test_what_is_known_afterwards_is_moved(clock: Clock, shared: tuple[Profile, Activity]) -> None:
    own, activity = shared
    with own.measure("launch"):
        clock.now += 7
        own.move("compile", 4.0)
    own.move("compile", 50.0)
    assert activity.profile["launch"] == 3.0 and activity.profile["compile"] == 4.0


def test_functions_are_measured_and_profiles_added(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    own, activity = Profile(), Activity()
    own.share(activity.cells, PROFILE_START)
    monkeypatch.setattr(profile, "PROFILE", own)

    @measured("compile")
    def compile_for(seconds: float) -> str:
        clock.now += seconds
        return "done"

    assert compile_for(seconds=2.5) == "done"
    assert add_seconds([activity.profile, {"compile": 0.5, "waiting": 1.0}])["compile"] == 3.0
    assert add_seconds([]) == dict.fromkeys(ACTIVITIES, 0.0)
