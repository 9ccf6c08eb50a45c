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
