"""How a worker ends."""

from __future__ import annotations

from fuzz.model.outcome import Outcome
from fuzz.worker.worker import Worker, WorkerCrash


def crash_outcome(worker: Worker, request: object) -> Outcome:
    """The outcome of a request in which the worker ends."""
    response = worker.call(request)
    assert isinstance(response, WorkerCrash), response
    return response.outcome
