"""The engine `atheris`: libFuzzer mutates the bytes of which Hypothesis draws plans, and keeps those that cover more.

libFuzzer runs in a process of its own (`fuzz.search.engines.atheris.libfuzzer`), which runs each plan once before it
goes on: what the plan covers there decides what libFuzzer mutates next. The workers judge the plan like any other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from fuzz.backends.base import Backend, ReplicaLimits
from fuzz.model.case import Case
from fuzz.search.engines.base import Proposal
from fuzz.search.engines.random import RandomEngine
from fuzz.search.engines.replica_count import OutputSizes, count_guided_replicas
from fuzz.target.spec import Target
from fuzz.worker.protocol import Report, WorkerConfig

HANDLER = "fuzz.search.engines.atheris.libfuzzer:make_handler"
"""The function that makes the process's handler, as ``module:function``."""
QUEUED = 2
"""Plans requested ahead."""
POLL_INTERVAL = 0.05
"""Seconds between two looks at the process."""
JOINS = 2048
"""Plans of other engines before its first: in a run's first minute they discover more in the same time."""
LEAD = 320
"""Its process starts so many plans before its first one, so that it has started by then."""


@dataclass(frozen=True)
class AtherisConfig:
    """How the process of libFuzzer is set up. `folder` holds its inputs, and survives the process."""

    config: WorkerConfig
    seed: int
    folder: Path
    numbers: tuple[float, ...]


class LibFuzzerProcess(Protocol):
    """A process that answers requests in order (a Worker)."""

    def submit(self, request: Any) -> None: ...
    def receive(self, seconds: float) -> tuple[Any, Any] | None: ...
    def stop(self) -> None: ...


StartProcess = Callable[[Path], LibFuzzerProcess]
"""Starts the process for a folder of inputs."""


def missing() -> str:
    """Why atheris cannot run here, in one line; empty where it can."""
    install = "pip install 'triton-differential-fuzz[atheris]'"
    return "" if find_spec("atheris") else f"engine atheris needs the package atheris: {install}"


@dataclass
class AtherisEngine:
    """Proposes what libFuzzer tries, after `JOINS` plans, of which `first` came before this search."""

    target: Target
    seed: int
    start_process: StartProcess
    name: str = "atheris"
    first: int = 0
    limits: ReplicaLimits = Backend.replica_limits(guided=True)
    output_sizes: OutputSizes = field(default_factory=OutputSizes)
    _process: LibFuzzerProcess | None = None
    _requested: int = 0
    _replacements: int = 0
    _proposed: int = 0
    # A launcher may have put anything in the folder's place.
    _folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory("-fuzz", ignore_cleanup_errors=True)
    )

    def __post_init__(self) -> None:
        self.random = RandomEngine(self.target, self.seed, "atheris")
        self.joins = max(JOINS - self.first, LEAD)
        self._proposed = self.first

    def propose(self) -> Proposal:
        """libFuzzer's next plan; where the last one ended its process, a plan that is drawn while it starts again."""
        process = self._fill_queue()
        while (answer := process.receive(POLL_INTERVAL)) is None:
            continue
        self._requested -= 1
        self._fill_queue()
        plan = answer[1]
        if not isinstance(plan, Case):
            self._replacements += 1
            plan = self.random.case(self._replacements)
        self._proposed += 1
        return Proposal(plan, count_guided_replicas(plan, self.limits, self.output_sizes, self._proposed))

    def learn(self, proposal: Proposal, reports: Sequence[Report]) -> None:
        """Starts the process in time for its first plan; libFuzzer learns from what its own process sees."""
        self.output_sizes.learn(proposal.plan, reports)
        if self._process is not None or self.output_sizes.reported >= self.joins - LEAD:
            self._fill_queue()

    def close(self) -> None:
        if self._process is not None:
            self._process.stop()
        self._folder.cleanup()

    def _fill_queue(self) -> LibFuzzerProcess:
        if self._process is None:
            self._process = self.start_process(Path(self._folder.name))
        while self._requested < QUEUED:
            self._process.submit("next")
            self._requested += 1
        return self._process
