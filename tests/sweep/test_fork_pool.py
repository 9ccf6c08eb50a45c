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
        assert pool.map(range(7)) == [0, 2, 4, 6, 8, 10, 12] and pool.map([]) == []
        with pytest.raises(TypeError):
            pool.map([1, None, 3])
        assert pool.map(iter([5])) == [10]
    finally:
        pool.stop()


def test_a_pool_ends_beside_others_forked_later() -> None:
    """Those hold copies of the first ones' pipes."""
    first, second = ForkPool(abs, 1), ForkPool(abs, 1)
    stopping = Thread(target=first.stop, daemon=True)
    stopping.start()
    stopping.join(10)
    ended = not stopping.is_alive()
    assert second.map([-1, 2]) == [1, 2]
    second.stop()
    assert ended


def test_a_pool_ends_in_a_process_that_handles_signals() -> None:
    """Its processes have the handlers of the process that made them: one of a campaign takes SIGTERM for Ctrl-C."""
    handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        pool = ForkPool(abs, 2)
        assert pool.map([-1, 2, -3]) == [1, 2, 3]
        stopping = Thread(target=pool.stop, daemon=True)
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive()
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_a_process_that_ends_is_an_error_and_no_wait() -> None:
    pool = ForkPool(os._exit, 2)
    with pytest.raises(BrokenProcessPool):
        pool.map([3])
    pool.stop()
