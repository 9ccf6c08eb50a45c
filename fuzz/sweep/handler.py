"""Makes handlers of workers that measure a kernel: where it fails, or memory lacks, they answer with the outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from fuzz.backends.base import Backend
from fuzz.backends.execute import FatalError, outcome_of_error
from fuzz.backends.shortage import describe_lack
from fuzz.errors import UsageError
from fuzz.model.outcome import NotRun, Outcome
from fuzz.worker.channel import LastResponse

Measured = TypeVar("Measured")


@dataclass
class NotReturnedError(Exception):
    """The launcher did not return, and the process can go on; holds the outcome."""

    outcome: Outcome


@contextmanager
def launching(backend: Backend) -> Iterator[None]:
    """Runs a launcher at full speed, and waits until everything launched has ended.

    Raises NotReturnedError or FatalError where that raises, but a UsageError as it is.
    """
    try:
        with backend.uninstrumented():
            yield
        backend.synchronize()
    except UsageError:
        raise
    except Exception as error:
        raise NotReturnedError(outcome_of_error(error, backend)) from error


def answer_by_outcome(
    backend: Backend, measure: Callable[[int], Measured]
) -> Callable[[int], Measured | Outcome | LastResponse]:
    """A worker's handler, request -> what `measure` returns, or the outcome where it could not measure.

    NotRun is what the machine lacked memory for, or time to compile, in the launcher or beside it.
    """

    def handle(request: int) -> Measured | Outcome | LastResponse:
        answer = answer_to(request)
        if not isinstance(answer, LastResponse):
            # Here no traceback holds tensors any more, and who lacks memory is about to wait for it.
            backend.release_memory()
        return answer

    def answer_to(request: int) -> Measured | Outcome | LastResponse:
        try:
            return measure(request)
        except NotReturnedError as failed:
            return failed.outcome
        except FatalError as fatal:
            return LastResponse(fatal.outcome)
        except Exception as error:
            lack = describe_lack(error, backend, "measure it")
            if not lack:
                raise
            return LastResponse(NotRun(lack)) if backend.is_fatal(error) else NotRun(lack)

    return handle
