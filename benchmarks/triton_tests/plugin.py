"""A plugin of pytest that writes a line of JSON when a test starts and when it has ended.

The file is named by the variable `TRITON_TESTS_RECORDS`. A test that started and
never ended has killed its process.
"""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

RECORDS = "TRITON_TESTS_RECORDS"
PROCESSOR = pytest.StashKey[float]()
"""Seconds of the processor that a test took, those of processes that it waited for included."""


def write(**record: Any) -> None:
    with Path(os.environ[RECORDS]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    write(test=nodeid, outcome="started")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    start = processor_seconds()
    try:
        return (yield)
    finally:
        item.stash[PROCESSOR] = processor_seconds() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when == "call" or not report.passed:
        error = None if call.excinfo is None else call.excinfo.value
        causes = [] if error is None else chain(error)
        write(test=item.nodeid, outcome=report.outcome, causes=causes, **measured(item, report))
    return report


def processor_seconds() -> float:
    """Of this process, and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measured(item: pytest.Item, report: pytest.TestReport) -> dict[str, float]:
    """Seconds of the clock and of the processor."""
    return {"seconds": round(report.duration, 3), "processor": round(item.stash.get(PROCESSOR, 0.0), 4)}


def chain(error: BaseException) -> list[str]:
    """The error and what caused it, a line each: type and message."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(lines) < 5:
        lines.append(f"{type(cause).__name__}: {' '.join(str(cause).split())[:600]}")
        cause = cause.__cause__ or cause.__context__
    return lines
