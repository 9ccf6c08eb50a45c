"""A worker with the handler of the test's module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fuzz.worker.worker import Worker


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with Worker(f"{request.module.__name__}:make_handler", None, memory=8 << 30, timeout=120.0) as fresh:
        yield fresh
