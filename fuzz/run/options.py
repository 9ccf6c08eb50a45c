"""Holds the options of one run and checks them. Limits are in seconds, cases and bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from fuzz.errors import UsageError
from fuzz.model.grade import check_severity
from fuzz.worker.system import total_memory

DEFAULT_SECONDS = 60.0
"""A run's budget where none is given."""


@dataclass(frozen=True)
class RunOptions:
    """What one run is to do. A limit of None is no limit; a `corpus` of None is the target's own folder.

    `memory` limits the bytes of each worker; 0 is a share of the machine's. `first_plan` and `first_case` are the
    numbers of the first plan and case: not 0 where the run goes on after an earlier one. The first plans of the engine
    `random` have at most `first_replicas` replicas; None is what the backend says. `workers` of None is 1 where `cases`
    end the run, else what the machine has room for: with several, what guided engines propose depends on how fast they
    answer. `fail_on` is the severity from which
    findings count. With `derived_rejects` inputs are tried as well that the target's declaration rules out.
    Raises UsageError where a value is out of range.
    """

    target: str
    planted: str | None = None
    backend: str = "auto"
    engine: str = "auto"
    seed: int = 0
    seconds: float | None = None
    cases: int | None = None
    workers: int | None = None
    max_findings: int | None = None
    corpus: Path | None = None
    memory: int = 0
    first_plan: int = 0
    first_case: int = 0
    first_replicas: int | None = None
    fail_on: str = "medium"
    derived_rejects: bool = False

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("cases", self.cases), ("max-findings", self.max_findings)):
            if value is not None and not 0 < value < math.inf:
                shown = f"{value:g}" if isinstance(value, float) else value
                raise UsageError(f"--{name} must be {'finite' if value > 0 else 'more than 0'}, not {shown}")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be at least 1, not {self.workers}")
        if self.first_replicas is not None and self.first_replicas < 1:
            raise UsageError(f"first_replicas must be at least 1, not {self.first_replicas}")
        if self.seed < 0:
            raise UsageError(f"--seed must not be negative, and is {self.seed}")
        check_severity(self.fail_on)

    @property
    def threshold(self) -> str:
        """The severity from which findings count: of a planted bug, which is not graded, any."""
        return "low" if self.planted else self.fail_on

    @property
    def time_limit(self) -> float | None:
        """Seconds of fuzzing; DEFAULT_SECONDS where neither time nor cases were given."""
        return DEFAULT_SECONDS if self.seconds is None and self.cases is None else self.seconds

    @property
    def worker_memory(self) -> int:
        """Bytes that one worker may hold: half of the machine's, also where there are two."""
        shares = max(1, (self.workers or 1) - 1)
        return self.memory or max(total_memory() // (2 * shares), 1 << 30)
