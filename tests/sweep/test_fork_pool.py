"""Work that is shared out among forked processes."""

from __future__ import annotations

import os
import signal
from concurrent.futures.process import BrokenProcessPool
from threading import Thread

import pytest

from fuzz.sweep.fork_pool import ForkPool


def doubled(value: float) -> float:
    return 2 * value


def test_a_pool_shares_out_work_in_order_and_raises_what_its_processes_raise() -> None:
    pool = ForkPool(doubled, 2)
    try:
        assert pool.compute(range(7)) == [0, 2, 4, 6, 8, 10, 12] and pool.compute([]) == []
        with pytest.raises(TypeError):
            pool.compute([1, None, 3])
        assert pool.compute(iter([5])) == [10]
    finally:
        pool.shutdown(cancel_futures=True)


def test_a_pool_ends_beside_others_forked_later() -> None:
    """Those hold copies of the first ones' pipes."""
    first, second = ForkPool(abs, 1), ForkPool(abs, 1)
    stopping = Thread(target=first.shutdown, kwargs={"cancel_futures": True}, daemon=True)
    stopping.start()
    stopping.join(10)
    ended = not stopping.is_alive()
    assert second.compute([-1, 2]) == [1, 2]
    second.shutdown(cancel_futures=True)
    assert ended


def test_a_pool_ends_in_a_process_that_handles_signals() -> None:
    """Its processes have the handlers of the process that made them: one of a campaign takes SIGTERM for Ctrl-C."""
    handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        pool = ForkPool(abs, 2)
        assert pool.compute([-1, 2, -3]) == [1, 2, 3]
        stopping = Thread(target=pool.shutdown, kwargs={"cancel_futures": True}, daemon=True)
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive()
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_a_process_that_ends_is_an_error_and_no_wait() -> None:
    pool = ForkPool(os._exit, 2)
    with pytest.raises(BrokenProcessPool):
        pool.compute([3])
    pool.shutdown(cancel_futures=True)
