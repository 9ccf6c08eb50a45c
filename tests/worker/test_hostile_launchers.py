"""Launchers that attack their process become one outcome each, the next case runs, and nothing outlives the worker."""

from __future__ import annotations

import os
import runpy
import uuid
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path

import pytest

from fuzz.model.case import Argument, Call, Case
from fuzz.model.recipes import recipe
from fuzz.run.setup import serve_target
from fuzz.worker.protocol import HANDLER, Examine, Report, WorkerConfig, report_of_outcome
from fuzz.worker.system import resident
from fuzz.worker.worker import Worker, WorkerCrash
from fuzz.worker.worker_server import preload

HOSTILE = Path(__file__).parents[2] / "benchmarks" / "reliability" / "hostile.py"
EXPECTED: dict[str, str] = runpy.run_path(str(HOSTILE))["EXPECTED"]
GIB = 1 << 30


@pytest.fixture(scope="module")
def mark() -> Iterator[bytes]:
    """A variable that every process has which is forked from the server of workers, and that it is started with."""
    server = forkserver._forkserver  # type: ignore[attr-defined]
    name, value = "FUZZ_TEST_MARK", uuid.uuid4().hex
    resource_tracker.ensure_running()
    server._stop()
    os.environ[name] = value
    preload("fuzz.server_preload")
    yield f"{name}={value}".encode()
    server._stop()
    del os.environ[name]


def marked(mark: bytes) -> set[int]:
    """The processes that have the variable, but for the server and this one."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            continue
    return found - {os.getpid(), forkserver._forkserver._forkserver_pid}  # type: ignore[attr-defined]


def report(worker: Worker, size: int) -> Report:
    """The report on a case of so many elements."""
    case = Case("hostile", (Call({"N": size}, {"x": Argument(("N",), "float32", recipe("ones"))}),))
    answer = worker.call(Examine(case))
    if isinstance(answer, WorkerCrash):
        return report_of_outcome(answer.outcome)
    assert isinstance(answer, Report)
    return answer


@pytest.mark.parametrize("name", EXPECTED)
def test_a_hostile_launcher_costs_its_own_case_at_most(
    name: str, mark: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    config = WorkerConfig(f"{HOSTILE}:{name}", None, "cpu")
    with serve_target(config, 4 * GIB) as server, Worker(HANDLER, config, 4 * GIB, 120.0, server=server) as worker:
        assert report(worker, 2).outcome == "returned"
        assert worker.pid is not None
        worker.memory = resident(worker.pid) + GIB // 4
        worker.timeout = 2.0 if EXPECTED[name] == "hung" else 120.0
        symptoms = [finding.symptom for finding in report(worker, 1).findings]
        assert symptoms == [EXPECTED[name]] * bool(EXPECTED[name])
        worker.memory, worker.timeout = 4 * GIB, 120.0
        assert [report(worker, size).outcome for size in (2, 3)] == ["returned"] * 2
        assert marked(mark) and not server.given_up
    assert not marked(mark)
    capfd.readouterr()
