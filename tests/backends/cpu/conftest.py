"""Every test here runs with the cpu backend active."""

from collections.abc import Iterator

import pytest

from fuzz.backends import cpu


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    with cpu.active():
        yield
