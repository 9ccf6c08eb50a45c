"""Workers of a target are forked from a process that has loaded it, and are as those that have loaded it themselves."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from crashes import crash_outcome
from processes import has_ended
from programs import start_program

from fuzz.errors import InternalError, UsageError
from fuzz.model.outcome import Died
from fuzz.worker import worker_process
from fuzz.worker.target_server import TargetServer
from fuzz.worker.worker import Worker

HARMLESS = {
    "threads": "it has threads", "process": "it has started processes", "daemon": "it has started processes",
    "file": "it holds files", "memory": "it shares memory", "seed": "it has seeded or used random",
    "timer": "it has set a timer", "folder": "it has another folder", "signal": "it handles signals",
    "limit": "it has limited its resources", "forks": "a fork of it ends",
}  # fmt: skip
"""What a target may do that loads it, with why no worker is forked from that process."""


@contextlib.contextmanager
def serving(name: str) -> Iterator[tuple[TargetServer, Worker]]:
    server = TargetServer("loads:load", name, 8 << 30)
    with server, Worker("loads:make_handler", name, 8 << 30, 120.0, server=server) as worker:
        yield server, worker


def server_pid(server: TargetServer) -> int:
    address = server.connect()
    assert address is not None, server.given_up
    return int(address._forkserver_pid)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["nothing", "imports", "allocator", "stops parent"])
def test_clean_workers_are_forked_from_one_process_that_has_loaded_the_target(name: str) -> None:
    with serving(name) as (server, worker):
        pids = [worker.call("pid")]
        assert crash_outcome(worker, "leave") == Died("exit status 3")
        pids.append(worker.call("pid"))
        worker.restart()
        pids.append(worker.call("pid"))
        with worker.clone() as other:
            pids.append(other.call("pid"))
            assert worker.call("loaded") == other.call("loaded") == [server_pid(server)]
    assert len(set(pids)) == 4


def test_they_are_as_if_they_had_loaded_it_themselves() -> None:
    with serving("imports") as (server, worker):
        forked, drawn = worker.call("describe"), worker.call("random")
        assert worker.call("loaded") == [server_pid(server)]
        with worker.clone() as other:
            other.server = None
            assert other.call("loaded") == [other.pid] and other.call("describe") == forked
            assert other.call("random") != drawn


@pytest.mark.parametrize("name", HARMLESS)
def test_where_a_fork_would_not_be_the_same_every_worker_loads_the_target_itself(name: str) -> None:
    with serving(name) as (server, worker):
        assert worker.call("loaded") == [worker.call("pid")]
        assert HARMLESS[name] in server.given_up


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("refuses", UsageError, "the target is wrong"),
        ("leaves", InternalError, "a worker ended before its first request: the worker process died of exit status 7"),
        ("exits", InternalError, "a worker ended before its first request: the worker process died of exit status 7"),
        ("hangs", UsageError, "no worker was ready within 1 s: this machine is too busy to start one"),
        ("fills", UsageError, "a worker could not start within its memory: .* over 512 MiB resident"),
        ("closes", InternalError, "a worker ended before its first request: .* a channel that its kernel closed"),
        ("writes", InternalError, "a worker ended before its first request: .* bytes that its kernel wrote"),
        ("kills parent", InternalError, "a worker ended before its first request: .* died of SIGKILL"),
    ],
)
def test_what_cannot_be_loaded_is_told_as_by_a_worker_that_loads_it_itself(
    name: str, error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "hangs":
        monkeypatch.setattr(worker_process, "START_SECONDS", 1.0)
    with serving(name) as (server, worker):
        server.memory = worker.memory = (1 if name == "fills" else 16) << 29
        with pytest.raises(error, match=text):
            worker.call("pid")
        assert server.given_up
        worker.server = None
        with pytest.raises(error, match=text):
            worker.call("pid")


@pytest.mark.parametrize("generation", [1, 2])
def test_a_case_that_kills_the_server_or_its_supervisor_harms_no_other_worker(generation: int) -> None:
    with serving("nothing") as (server, worker), worker.clone() as other:
        pid, served = other.call("pid"), server_pid(server)
        assert other.call("loaded") == [served]
        target = worker.call("parents")[generation]
        assert target == served or generation == 2
        worker.call(("kill", target))
        assert has_ended(served)
        assert crash_outcome(worker, "leave") == Died("exit status 3")
        assert worker.call("loaded") == [worker.call("pid")] and server.given_up
        assert other.call("pid") == pid


def test_a_server_that_a_case_has_stopped_goes_on() -> None:
    with serving("nothing") as (server, worker):
        served = server_pid(server)
        worker.call(("stop", served))
        worker.restart()
        assert worker.call("loaded") == [served]
        worker.call(("stop", served))
    assert has_ended(served)


def test_nothing_of_it_outlives_its_run_or_what_uses_it() -> None:
    with serving("nothing") as (_, worker):
        supervisor, served, its_supervisor = worker.call("parents")[:3]
        pids = [worker.call("pid"), supervisor, served, its_supervisor]
    assert all(map(has_ended, pids))


COORDINATOR = """
import sys, time
sys.path[:0] = sys.argv[1:]
from test_target_server import serving
with serving("nothing") as (server, worker):
    print(worker.call("pid"), *worker.call("parents")[:3], flush=True)
    time.sleep(600)
"""


def test_killing_the_run_ends_it(root: Path, tmp_path: Path) -> None:
    folders = [Path(__file__).parent, root / "tests", root]
    coordinator = start_program("-c", COORDINATOR, *map(str, folders), folder=tmp_path)
    pids = list(map(int, coordinator.first_line("stdout").split()))
    coordinator.send_signal(signal.SIGKILL)
    assert len(pids) == 4 and all(map(has_ended, pids))


def test_what_has_changed_since_it_was_loaded_is_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "loaded_by_a_server.py"
    source = "def load(_): pass\ndef make_handler(_): return lambda request: VALUE\nVALUE = "
    module.write_text(f"{source}1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with TargetServer("loaded_by_a_server:load", None, 8 << 30) as server:
        with Worker("loaded_by_a_server:make_handler", None, 8 << 30, math.inf, server=server) as worker:
            assert worker.call("value") == 1 and not server.given_up
            module.write_text(f"{source}22\n")
            worker.restart()
            assert worker.call("value") == 22 and server.given_up == "what was loaded has changed"
