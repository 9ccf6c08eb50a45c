"""A pass towards fewer calls: the last call alone, then with one of the earlier ones, then without each in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuzz.model.case import Case
from fuzz.target.spec import Target


def fewer_calls(case: Case, target: Target) -> Iterator[Case]:
    """Cases with some of the calls, in their order."""
    if len(case.calls) < 2:
        return
    for call in reversed(case.calls):
        yield replace(case, calls=(call,))
    for first in case.calls[:-1]:
        yield replace(case, calls=(first, case.last))
    for index in range(len(case.calls)):
        yield replace(case, calls=case.calls[:index] + case.calls[index + 1 :])
