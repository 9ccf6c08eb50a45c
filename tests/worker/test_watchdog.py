"""The thread that ends workers which exceed a limit."""

from __future__ import annotations

import threading
from multiprocessing import Process
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz.worker.activity import Activity
from fuzz.worker.watchdog import Watchdog
from fuzz.worker.worker_process import WorkerProcess


def test_checks_go_on_after_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    watchdog, called = Watchdog(), threading.Event()

    def fail() -> None:
        raise ArithmeticError("broken")

    watchdog.add(fail)
    watchdog._thread.join(10.0)  # type: ignore[union-attr]
    watchdog.remove(fail)
    watchdog.add(called.set)
    assert called.wait(10.0)
    watchdog.remove(called.set)


def test_a_worker_whose_supervisor_is_gone_has_ended() -> None:
    supervisor = Process(target=int)
    supervisor.start()
    number = supervisor.pid
    supervisor.join()
    channel: Any = SimpleNamespace(shut_down=lambda: None)
    worker = WorkerProcess(SimpleNamespace(pid=number, kill=None), channel, Activity())
    assert worker.has_ended and worker.exit_outcome() is not None
