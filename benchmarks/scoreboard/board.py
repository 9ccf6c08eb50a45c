"""What the scoreboard's page is made of: one board for each target, which are added up and kept as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.scoreboard.acceptance import RULES

OURS = "ours"
NAMES = (OURS, *RULES)


@dataclass
class Board:
    """Ratios are error over bound; needs are the least safety at which a case passes.

    `honest` counts the good kernels' cases by a title, and `alarms`, by rule, those that it rejects; `left_out` counts
    by reason. `wrong` holds the planted bugs of values, and whether each is older than the safety factor; `others`, the
    oracle of any other bug and whether it was seen. `rejected` describes honest cases that our rule rejects. `planned`
    counts the cases that were asked for, and `unmeasured` names the targets that gave none.
    """

    caught: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in NAMES})
    alarms: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in NAMES})
    honest: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, bool] = field(default_factory=dict)
    others: dict[str, tuple[str, bool]] = field(default_factory=dict)
    honest_ratios: list[float] = field(default_factory=list)
    honest_needs: list[float] = field(default_factory=list)
    planted_ratios: dict[str, float] = field(default_factory=dict)
    planted_needs: dict[str, float] = field(default_factory=dict)
    pairs: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)
    planned: int = 0
    unmeasured: list[str] = field(default_factory=list)

    def add(self, other: Board) -> None:
        """Takes in what was measured of another target."""
        for name in NAMES:
            self.caught[name] += other.caught[name]
            self.alarms[name].update(other.alarms[name])
        for mine, theirs in ((self.honest, other.honest), (self.left_out, other.left_out), (self.pairs, other.pairs)):
            mine.update(theirs)
        self.wrong |= other.wrong
        self.others |= other.others
        self.planted_ratios |= other.planted_ratios
        self.planted_needs |= other.planted_needs
        self.honest_ratios += other.honest_ratios
        self.honest_needs += other.honest_needs
        self.rejected += other.rejected


def save(board: Board, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(vars(board)), encoding="utf-8")


def read(path: Path) -> Board:
    fields = json.loads(path.read_text(encoding="utf-8"))
    counters = {name: Counter(fields[name]) for name in ("honest", "left_out", "pairs")}
    alarms = {name: Counter(counts) for name, counts in fields["alarms"].items()}
    others = {bug: (oracle, seen) for bug, (oracle, seen) in fields["others"].items()}
    return Board(**{**fields, **counters, "alarms": alarms, "others": others})
