"""How long the slices of a job are, and which of them measure coverage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fuzz.campaign.config import MAX_COVERAGE_CASES
from fuzz.campaign.protocol import Slice
from fuzz.campaign.request_scheduler import MOST_DOUBLINGS, RequestScheduler, WorkerSlot, coverage_cases
from fuzz.campaign.store import Job
from fuzz.corpus import codec
from fuzz.model.entry import Entry


def test_a_slice_after_one_that_left_something_unconfirmed_is_twice_as_long() -> None:
    urgent: set[int] = set()
    state = SimpleNamespace(
        jobs=[Job(1, "t", "", "cpu", "auto", 0)], elapsed=0.0, corpus=Path("corpus"), urgent_jobs=lambda: urgent,
        end_slice=lambda *_, **how: None,
        journal=lambda index: Path("journal"), saved=lambda index: Path("saved"),
        suspects=SimpleNamespace(select=lambda tag: ("suspect",) if urgent else ()),
    )  # fmt: skip
    budget = SimpleNamespace(time=None, cases=None)
    config = SimpleNamespace(slice=2.0, budget=budget, memory=1, workers=1, coverage=0)
    scheduler, slot = RequestScheduler(cast(Any, config), cast(Any, state)), WorkerSlot(0)

    def seconds(*, unconfirmed: bool) -> float:
        """The length of the next slice, which leaves something unconfirmed or not."""
        request = scheduler.assign(slot, [slot])
        assert isinstance(request, Slice)
        state.jobs[0] = replace(state.jobs[0], cases=state.jobs[0].cases + 5)
        urgent.clear()
        urgent.update({0} if unconfirmed else ())
        scheduler.end_slice(slot)
        return request.seconds

    assert [seconds(unconfirmed=True) for _ in range(3)] == [2.0, 4.0, 8.0]
    assert [seconds(unconfirmed=False) for _ in range(2)] == [16.0, 2.0]
    assert max(seconds(unconfirmed=True) for _ in range(20)) == 2.0 * 2**MOST_DOUBLINGS


def test_coverage_is_measured_after_twice_as_many_slices_each_time() -> None:
    measured = {number: cases for number in range(1, 40) if (cases := coverage_cases(50, number))}
    assert measured == {1: 50, 2: 100, 4: 200, 8: 400, 16: 800, 32: MAX_COVERAGE_CASES}
    assert not any(coverage_cases(0, number) for number in range(1, 40))


def test_at_the_end_what_was_not_shrunk_to_the_end_gets_one_more_slice(entry: Entry, tmp_path: Path) -> None:
    for target, step in (
        ("a", "shrinking"),
        ("b", "grading"),
        ("c", ""),
        ("d", "shrinking"),
        ("e", "shrinking"),
        ("f", "shrinking"),
    ):
        provenance, status = replace(entry.provenance, cut_off=step), "fixed" if target == "f" else "open"
        kept = replace(entry, planted="", provenance=provenance, status=status, why="")
        (tmp_path / target).mkdir()
        (tmp_path / target / "one.yaml").write_text(codec.dumps(kept))
        (tmp_path / target / "torn.yaml").write_text("format: 1\ncase: [")
    jobs = [Job(1, target, "", "cpu", "auto", seed, cases=1) for target in "abcdf" for seed in range(2)]
    jobs.append(Job(1, "e", "", "cpu", "auto", 0, note="given up"))
    state = SimpleNamespace(
        jobs=jobs, elapsed=0.0, corpus=tmp_path, urgent_jobs=set,
        journal=lambda index: Path("journal"), saved=lambda index: Path("saved"),
        suspects=SimpleNamespace(select=lambda tag: ()),
    )  # fmt: skip
    config = SimpleNamespace(slice=2.0, budget=SimpleNamespace(time=1.0, cases=None), memory=1, workers=2, coverage=0)
    scheduler, slots = RequestScheduler(cast(Any, config), cast(Any, state)), [WorkerSlot(0), WorkerSlot(1)]
    assert not scheduler.unshrunk_jobs(slots)
    scheduler.assign(slots[1], slots)
    slots[1].state, slots[1].job = "busy", 6
    scheduler.queue_replays()
    assert [Path(path).parts[-2:] for _, one in scheduler.replays for path in one.paths] == [
        (target, "one.yaml") for target in "abcdfe"
    ]
    scheduler.replays.clear()
    scheduler.ending = True
    request = scheduler.assign(slots[0], slots)
    assert isinstance(request, Slice) and (request.target, request.cases, request.seconds) == ("a", 1, 2.0)
    assert scheduler.assign(slots[0], slots) is None and not scheduler.unshrunk_jobs(slots)
