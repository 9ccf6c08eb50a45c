"""The response of a worker where memory or the process ends while the oracles compute."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import torch

from fuzz.backends import cpu
from fuzz.backends.execute import FatalError
from fuzz.model.case import Case
from fuzz.model.finding import Verdict
from fuzz.model.outcome import Died
from fuzz.oracles import examine
from fuzz.worker.protocol import Adjudicate, Diagnose, Examine, ReplicaGroup, Report, WorkerConfig


@pytest.fixture(autouse=True)
def afterwards() -> Iterator[None]:
    """A worker activates the backend for good; this process lives on."""
    yield
    cpu.deactivate()


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_memory_that_ends_in_the_oracles_is_no_finding(
    case: Case, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def full(*_: object) -> None:
        raise error("no space left")

    handle = examine.make_handler(WorkerConfig("gelu_bw", None, "cpu"))
    monkeypatch.setattr(examine, "examine_or_adjudicate", full)
    monkeypatch.setattr(examine, "diagnose_case", full)
    monkeypatch.setattr(examine, "screen", full)
    told = Report(f"not run: no room to examine it: {error.__name__}: no space left", False, (), (), not_run=True)
    assert handle(Examine(case)) == told
    assert handle(ReplicaGroup(case, ((), ()))) == (told, told)
    assert handle(Adjudicate(case, 1.0)) == Verdict("unadjudicated", told.outcome.removeprefix("not run: "))
    assert handle(Diagnose(case, case)) == ()


def test_a_replica_that_ends_the_process_is_looked_for_where_each_runs_alone(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_: object) -> None:
        raise FatalError(Died("an illegal address"))

    handle = examine.make_handler(WorkerConfig("gelu_bw", None, "cpu"))
    monkeypatch.setattr(examine, "examine_stack", end)
    monkeypatch.setattr("os._exit", Mock(side_effect=SystemExit))
    # Without a response the pool runs each replica in a process of its own.
    with pytest.raises(SystemExit):
        handle(ReplicaGroup(case, ((), ())))
