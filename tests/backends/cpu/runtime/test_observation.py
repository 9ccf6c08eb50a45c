"""What is observed in several threads."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu


@triton.jit
def copy(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i))


def launch_outside():
    copy[(1,)](torch.zeros(4), torch.zeros(8), B=8)


def run_in_thread(function) -> None:
    with ThreadPoolExecutor(1) as threads:
        threads.submit(function).result()


def test_a_thread_that_is_started_inside_is_observed():
    with cpu.observe(conflicts=True) as log:
        run_in_thread(launch_outside)
    assert log.count == 4 and log.launches == ["copy"]
    with pytest.raises(cpu.OutOfBounds):
        run_in_thread(launch_outside)


def test_a_thread_is_observed_that_an_observed_thread_starts():
    with cpu.observe() as log:
        run_in_thread(lambda: run_in_thread(launch_outside))
    assert log.count == 4


def test_a_thread_that_was_started_before_is_not_observed():
    with ThreadPoolExecutor(1) as threads:
        threads.submit(int).result()
        with cpu.observe() as log, pytest.raises(cpu.OutOfBounds):
            threads.submit(launch_outside).result()
    assert not log.count and not log.launches


def test_threads_that_run_while_another_observes_are_not_observed():
    observes, ends = threading.Event(), threading.Event()

    def observe() -> int:
        with cpu.observe() as log:
            observes.set()
            assert ends.wait(60)
        return log.count

    with ThreadPoolExecutor(1) as threads:
        count = threads.submit(observe)
        try:
            assert observes.wait(60)
            with pytest.raises(cpu.OutOfBounds):
                launch_outside()
            with pytest.raises(cpu.OutOfBounds):
                run_in_thread(launch_outside)
        finally:
            ends.set()
        assert count.result() == 0


def test_a_thread_is_observed_as_long_as_what_it_was_started_in_goes_on():
    with ThreadPoolExecutor(1) as threads:
        with cpu.observe() as outer:
            with cpu.observe() as inner:
                threads.submit(launch_outside).result()
            threads.submit(launch_outside).result()
            assert (inner.count, outer.count) == (4, 4)
        with pytest.raises(cpu.OutOfBounds):
            threads.submit(launch_outside).result()
        with cpu.observe() as later, pytest.raises(cpu.OutOfBounds):
            threads.submit(launch_outside).result()
    assert (inner.count, outer.count, later.count) == (4, 4, 0)


def test_each_thread_that_observes_has_its_own_log():
    both = threading.Barrier(2)

    def observed(launches: int) -> int:
        with cpu.observe() as log:
            both.wait(60)
            for _ in range(launches):
                launch_outside()
            both.wait(60)
        return log.count

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(observed, (1, 2))) == [4, 8]
