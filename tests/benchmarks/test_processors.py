import pytest

from benchmarks import processors
from benchmarks.processors import share_of


@pytest.fixture
def usable(monkeypatch):
    return lambda *numbers: monkeypatch.setattr(processors.os, "sched_getaffinity", lambda pid: set(numbers))


def test_jobs_divide_the_processors(usable):
    usable(*range(3, 19))
    assert [share_of(job, 8) for job in range(8)] == [[one, one + 1] for one in range(3, 19, 2)]
    assert share_of(0, 1) == list(range(3, 19))


def test_more_jobs_than_processors_share_them(usable):
    usable(4, 7)
    assert [share_of(job, 3) for job in range(3)] == [[4], [7], [4]]
