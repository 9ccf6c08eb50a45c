"""What is to be written waits while the store does not answer, in its order, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuzz.campaign.recorder import LONGEST_PAUSE, Recorder
from fuzz.clock import Clock
from fuzz.errors import RefusedWrite, StoreError


@dataclass(frozen=True)
class ManualClock(Clock):
    """A clock that is set by hand."""

    now: list[float] = field(default_factory=lambda: [0.0])

    def monotonic(self) -> float:
        return self.now[0]


@dataclass
class FakeStore:
    """A store that answers or does not."""

    name: str = "postgresql://host/db"
    lost: bool = False
    written: list[object] = field(default_factory=list)

    def write(self, value: object) -> Callable[[], None]:
        def write() -> None:
            if self.lost:
                raise StoreError("store postgresql://host/db: connection refused")
            self.written.append(value)

        return write


def test_writes_wait_while_the_store_does_not_answer() -> None:
    store: Any = FakeStore()
    clock, lines = ManualClock(), []
    recorder = Recorder(store, clock, lines.append)
    recorder.put("a", store.write(1))
    store.lost = True
    recorder.put("b", store.write(2))
    recorder.put("c", store.write(3))
    recorder.put("b", store.write(4))
    assert store.written == [1] and not recorder.flush()
    store.lost = False
    assert not recorder.flush()
    clock.now[0] = 1.5
    recorder.put("d", store.write(5))
    assert store.written == [1, 3, 4, 5]
    assert lines == [
        "store postgresql://host/db: connection refused; going on, what is to be written waits",
        "store postgresql://host/db is back",
    ]


def test_a_write_that_the_store_refuses_is_left_out_and_no_other_waits_behind_it() -> None:
    def refuse() -> None:
        raise RefusedWrite("store postgresql://host/db: value out of range")

    store: Any = FakeStore(lost=True)
    lines: list[str] = []
    recorder = Recorder(store, ManualClock(), lines.append)
    for key, write in ("a", store.write(1)), ("b", refuse), ("c", store.write(2)):
        recorder.put(key, write)
    store.lost = False
    assert recorder.flush(now=True) and store.written == [1, 2]
    recorder.put("b", refuse)
    assert [line for line in lines if "out of range" in line] == [
        "store postgresql://host/db: value out of range; what cannot be stored is left out: b"
    ]


def test_the_pause_between_tries_grows_and_the_end_does_not_wait_for_it() -> None:
    store: Any = FakeStore(lost=True)
    clock = ManualClock()
    recorder = Recorder(store, clock, lambda text: None)
    for _ in range(10):
        recorder.put("a", store.write(1))
        clock.now[0] += 31.0
    assert recorder.pause == LONGEST_PAUSE
    store.lost = False
    assert recorder.flush(now=True) and store.written == [1]


def test_only_statistics_are_dropped_where_too_much_waits(monkeypatch: Any) -> None:
    monkeypatch.setattr("fuzz.campaign.recorder.LONGEST_QUEUE", 3)
    store: Any = FakeStore(lost=True)
    recorder = Recorder(store, ManualClock(), lambda text: None)
    for number in range(5):
        recorder.put(("statistic", number), store.write(f"s{number}"))
        recorder.put(("finding", number), store.write(f"f{number}"))
    store.lost = False
    assert recorder.flush(now=True)
    assert store.written == ["f0", "f1", "f2", "f3", "f4"]
