"""Shares time among targets: who has had the fewest runs is next, as long as it lacks cases.

Targets of a set with equally many runs come in an order that is drawn, and sets take turns, so that a run that ends
early is a sample of each set.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.honest.store import judged
from fuzz.backends.cuda.backend import FATAL

LEAST = 8.0
"""Seconds without which no run is begun."""
LONGER = 3.0
"""How much longer a run may be after one that had no time to confirm what disagreed, or for its first case."""
MOST_LONGER = 2
"""Such runs of a target, one after the other."""
MOST_RUNS = 1_000_000
"""Seeds that are one order's."""
MOST_EMPTY = 2
"""Runs one after the other without a judged case, after which a target is left out: that all were refused may be
chance."""
MOST_ASKED = 50.0
"""How many cases are asked for each that is missing, at most, where most of a target's cases were not judged."""
EMPTY: Mapping[str, int] = {}
MOST_LOST = 8
"""Times that a target had no chance to run, after which it is left out."""


@dataclass
class Share:
    """What a target has had so far, and its place in the drawn order of its set, its turn: judged `cases`, of those
    that it has `tried`; `elsewhere` counts those that other machines judged. Of its last runs `waits` counts those that
    left disagreements which nobody confirmed and found nothing, and `empty` those that had no case; `lost` counts how
    often it had no chance to run. It is `alone` on the GPU where a fault of its kernel, which would take a shared one
    from all others, is known or may have been.
    """

    set: str
    target: str
    turn: int = 0
    elsewhere: int = 0
    runs: int = 0
    cases: int = 0
    tried: int = 0
    waits: int = 0
    empty: int = 0
    lost: int = 0
    alone: bool = False
    busy: bool = False

    def add(self, run: Mapping[str, Any]) -> None:
        """Counts a run as it was kept."""
        self.runs += 1
        self.cases += judged(run)
        self.tried += run.get("cases", 0)
        self.empty = 0 if judged(run) else self.empty + 1
        unknown = run.get("cut_off", {}).get("disagreements") and not run.get("findings")
        self.waits = self.waits + 1 if unknown else 0
        self.alone |= any(error in one.get("message", "") for one in run.get("findings", ()) for error in FATAL)

    @property
    def is_urgent(self) -> bool:
        return 0 < self.waits <= MOST_LONGER

    @property
    def tried_for_one(self) -> float:
        """How many cases were tried for each that was judged."""
        return min(max(self.tried / max(self.cases, 1), 1.0), MOST_ASKED)


class Shares:
    """The targets of several sets, each of which needs `cases` judged cases, in runs of at most `seconds`, until `end`.

    `end` is a time of time.monotonic, and `order` seeds the order of targets and what they are given. Threads may take
    and give back at the same time.
    """

    def __init__(self, cases: int, seconds: float, end: float, order: int = 0) -> None:
        self.cases, self.seconds, self.end, self.order = cases, seconds, end, order
        self._shares: list[Share] = []
        self._lock = threading.Lock()

    def add(
        self, name: str, targets: Sequence[str], runs: Sequence[Mapping[str, Any]], elsewhere: Mapping[str, int] = EMPTY
    ) -> None:
        """Adds the targets of a set, with the runs that each has had, and cases of each that are judged `elsewhere`."""
        drawn = Random(f"{self.order} {name}").sample(targets, len(targets))
        added = {target: Share(name, target, turn, elsewhere.get(target, 0)) for turn, target in enumerate(drawn)}
        for run in runs:
            if run["target"] in added:
                added[run["target"]].add(run)
        self._shares += added.values()

    def seconds_left(self) -> float:
        return max(self.end - time.monotonic(), 0.0)

    def take(self) -> Share | None:
        """The next target, which no other thread gets before it is given back; None where all is done."""
        with self._lock:
            free = [share for share in self._shares if not share.busy and self._lacks(share)]
            if not free or self.seconds_left() < LEAST:
                return None
            share = min(free, key=lambda share: (not share.is_urgent, share.runs, share.turn))
            share.busy = True
            return share

    def give_back(self, share: Share, run: Mapping[str, Any]) -> None:
        """Ends a run of a target that was taken."""
        with self._lock:
            share.add(run)
            share.busy = False

    def put_back(self, share: Share) -> None:
        """Gives back a target that was taken and had no chance to run."""
        with self._lock:
            share.lost += 1
            share.busy = False

    def request(self, share: Share) -> dict[str, Any]:
        """What a process is asked for. The seed is the number of earlier runs and the order's; each set has a corpus,
        since targets of two sets may have one name."""
        longer = LONGER if share.is_urgent or share.empty else 1.0
        seconds = min(self.seconds * longer, self.seconds_left())
        missing = self.cases if share.is_urgent else self._missing(share)
        cases = math.ceil(missing * share.tried_for_one)
        asked = {"target": share.target, "seed": self.order * MOST_RUNS + share.runs, "cases": cases}
        return asked | {"seconds": max(round(seconds, 1), 1.0), "corpus": share.set}

    def _lacks(self, share: Share) -> bool:
        is_hopeless = share.empty >= MOST_EMPTY or share.lost >= MOST_LOST
        return not is_hopeless and (self._missing(share) > 0 or share.is_urgent)

    def _missing(self, share: Share) -> int:
        return self.cases - share.elsewhere - share.cases
