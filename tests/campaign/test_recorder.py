"""What is to be written waits while the store is away, in its order, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuzz.campaign import recorder
from fuzz.campaign.recorder import Recorder
from fuzz.errors import StoreError
from fuzz.worker.clock import Clock


@dataclass(frozen=True)
class Hand(Clock):
    """A clock that is set by hand."""

    now: list[float] = field(default_factory=lambda: [0.0])

    def monotonic(self) -> float:
        return self.now[0]


@dataclass
class Away:
    """A store that is away or there."""

    name: str = "postgresql://host/db"
    away: bool = False
    written: list[object] = field(default_factory=list)

    def write(self, value: object) -> Callable[[], None]:
        def made() -> None:
            if self.away:
                raise StoreError("store postgresql://host/db: connection refused")
            self.written.append(value)

        return made


def test_writes_wait_while_the_store_is_away() -> None:
    store: Any = Away()
    clock, said = Hand(), []
    made = Recorder(store, clock, said.append)
    made.put("a", store.write(1))
    store.away = True
    made.put("b", store.write(2))
    made.put("c", store.write(3))
    made.put("b", store.write(4))
    assert store.written == [1] and not made.flush()
    store.away = False
    assert not made.flush()
    clock.now[0] = 1.5
    made.put("d", store.write(5))
    assert store.written == [1, 3, 4, 5]
    assert said == [
        "store postgresql://host/db: connection refused; going on, what is to be written waits",
        "store postgresql://host/db is back",
    ]


def test_the_pause_between_tries_grows_and_the_end_does_not_wait_for_it() -> None:
    store: Any = Away(away=True)
    clock = Hand()
    made = Recorder(store, clock, lambda text: None)
    for _ in range(10):
        made.put("a", store.write(1))
        clock.now[0] += 31.0
    assert made.pause == recorder.LONGEST_PAUSE
    store.away = False
    assert made.flush(now=True) and store.written == [1]


def test_only_statistics_are_dropped_where_too_much_waits(monkeypatch: Any) -> None:
    monkeypatch.setattr(recorder, "LONGEST_QUEUE", 3)
    store: Any = Away(away=True)
    made = Recorder(store, Hand(), lambda text: None)
    for number in range(5):
        made.put(("statistic", number), store.write(f"s{number}"))
        made.put(("finding", number), store.write(f"f{number}"))
    store.away = False
    assert made.flush(now=True)
    assert [value for value in store.written if value[0] == "f"] == ["f0", "f1", "f2", "f3", "f4"]
    assert made.dropped == 5
