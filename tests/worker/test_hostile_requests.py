"""What a handler does to its own process, its channel or its parents costs one request at most, and leaves nothing."""

from __future__ import annotations

import builtins
import os
import pickle
import resource
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crashes import crash_outcome
from processes import has_ended

from benchmarks.reliability.hostile import sockets
from fuzz.errors import UsageError
from fuzz.model.outcome import Died, Hung, NotRun, OutOfMemory
from fuzz.worker import worker_process
from fuzz.worker.system import resident
from fuzz.worker.worker import Worker, WorkerCrash

MARK = "FUZZ_TEST_MARK"
CLOCK = {"monotonic": time.monotonic}


def make_handler(config: Any) -> Callable[[Any], object]:
    """Makes the handler of these tests: a request is the name of an action, or (name, argument)."""

    def handle(request: Any) -> object:
        action, argument = request if isinstance(request, tuple) else (request, None)
        return ACTIONS[action](argument)

    return handle


def write_all(data: bytes) -> None:
    for channel in sockets():
        os.write(channel, data)


def find_channels(_: object) -> list[str]:
    """The sockets and pipes of this process, but for its standard streams."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}") if number > 2 else "")
    return [name for name in found if name.startswith(("socket:", "pipe:"))]


def write_then_wait(data: bytes) -> None:
    write_all(data)
    os.kill(os.getpid(), signal.SIGSTOP)


def fork_and_return(_: object) -> int:
    os.fork()
    return os.getpid()


def fork_and_raise(_: object) -> int:
    if os.fork() == 0:
        raise ValueError("in the child")
    return os.getpid()


def leave_child(_: object) -> None:
    """Ends the process; its child keeps the channel."""
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)


def daemonise(_: object) -> int:
    """Starts a process with a session and parents of its own."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(theirs, str(os.getpid()).encode())
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        os._exit(0)
    return int(os.read(ours, 20))


def stop_later(_: object) -> None:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGSTOP)).start()


def change_state(folder: str) -> None:
    os.chdir(folder)
    os.environ["TRITON_CACHE_DIR"] = "/nowhere"
    del os.environ["PATH"]
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def state(_: object) -> object:
    return os.getcwd(), dict(os.environ), signal.getsignal(signal.SIGALRM), resource.getrlimit(resource.RLIMIT_FSIZE)


def lower_limit_and_fail(_: object) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))
    Path("/proc/self/statm").read_text()
    Path("/proc/self/statm").open()  # noqa: SIM115
    with open("/dev/null"), open("/dev/null"), open("/dev/null"):
        raise AssertionError("the limit does not hold")


def forbid(*_: object) -> None:
    raise RuntimeError("forbidden")


def change_interpreter_and_fail(change: Callable[[], object]) -> Callable[[Any], object]:
    def act(_: object) -> object:
        change()
        raise AssertionError("where this is examined, names mean something else")

    return act


def replace_builtins() -> None:
    for name in ("isinstance", "len", "open", "print"):
        setattr(builtins, name, None)


def forget_modules() -> None:
    sys.modules.clear()
    sys.meta_path.clear()


def replace_functions_of_the_system() -> None:
    for name in ("_exit", "getpid", "write", "close"):
        setattr(os, name, forbid)


def replace_pickle() -> None:
    pickle.dumps = pickle.loads = forbid  # type: ignore[assignment]


def replace_method() -> None:
    import torch

    torch.Tensor.double = forbid  # type: ignore[assignment, method-assign]


def replace_handler() -> None:
    signal.signal(signal.SIGALRM, forbid)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    signal.pause()


ACTIONS: dict[str, Callable[[Any], object]] = {
    "pid": lambda _: os.getpid(),
    "parent": lambda _: os.getppid(),
    "echo": lambda value: value,
    "write": write_all,
    "write then wait": write_then_wait,
    "close": lambda _: os.closerange(3, 256),
    "shut": lambda _: [socket.socket(fileno=os.dup(each)).shutdown(socket.SHUT_RDWR) for each in sockets()],
    "shut then wait": lambda _: ACTIONS["shut"](None) and time.sleep(600),
    "read": lambda _: [os.set_blocking(each, True) or os.read(each, 5) for each in sockets()],
    "wait for nothing": lambda _: [os.set_blocking(each, False) for each in sockets()],
    "channels": find_channels,
    "exit own": lambda _: os._exit(70),
    "fork": fork_and_return,
    "fork and raise": fork_and_raise,
    "leave child": leave_child,
    "daemonise": daemonise,
    "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
    "stop later": stop_later,
    "stop parent": lambda _: os.kill(os.getppid(), signal.SIGSTOP),
    "kill parent": lambda _: os.kill(os.getppid(), signal.SIGKILL) or time.sleep(60),
    "kill group": lambda _: os.killpg(0, signal.SIGKILL) or time.sleep(60),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "change state": change_state,
    "state": state,
    "lower limit": lower_limit_and_fail,
    "replace builtins": change_interpreter_and_fail(replace_builtins),
    "forget modules": change_interpreter_and_fail(forget_modules),
    "forbid all": change_interpreter_and_fail(lambda: sys.addaudithook(forbid)),
    "replace functions of the system": change_interpreter_and_fail(replace_functions_of_the_system),
    "replace a handler of signals": change_interpreter_and_fail(replace_handler),
    "replace pickle": change_interpreter_and_fail(replace_pickle),
    "replace a method": change_interpreter_and_fail(replace_method),
}


GARBLED = worker_process.GARBLED


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        (("write", b"\0\0\0\x05abcde"), GARBLED),
        (("write", b"\x3f\xff\xff\xff"), GARBLED),
        (("write", b"\xf5"), GARBLED),
        (("write", b"\xf5fz\n" + bytes(12)), GARBLED),
        (("write", bytes(100_000)), GARBLED),
        ("close", Died("a channel that its kernel closed or read from")),
        ("shut then wait", Died("a channel that its kernel closed or read from")),
        ("exit own", Died("exit status 70")),
        ("leave child", Died("exit status 0")),
        ("kill parent", Died("SIGKILL")),
        ("kill group", Died("SIGKILL")),
    ],
)
def test_what_a_kernel_does_to_its_process_is_its_death_alone(
    worker: Worker, request_: object, outcome: object
) -> None:
    for each in (("echo", 1), request_, ("echo", 2), ("echo", 3)):
        worker.submit(each)
    responses: list[Any] = []
    while len(responses) < 4:
        response = worker.receive(0.05)
        responses += [response] if response else []
    assert responses == [(("echo", 1), 1), (request_, WorkerCrash(outcome)), (("echo", 2), 2), (("echo", 3), 3)]


def test_a_worker_holds_no_file_of_the_run_but_its_channel(worker: Worker) -> None:
    worker.call(("echo", 1))
    assert len(worker.call("channels")) == 1


@pytest.mark.parametrize("action", ["shut", "read"])
def test_a_kernel_that_uses_its_channel_costs_its_worker_and_nothing_else(worker: Worker, action: str) -> None:
    worker.submit(action)
    worker.submit(("echo", 2))
    responses = []
    while len(responses) < 2:
        response = worker.receive(0.05)
        responses += [response[1]] if response else []
    assert any(isinstance(each, WorkerCrash) for each in responses)
    assert worker.call(("echo", 3)) == 3


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_half_a_message_is_waited_for_no_longer_than_its_worker_may_be_silent(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "STALL_SECONDS", 4.0)
    worker.call("pid")
    worker.timeout = 5.0
    assert crash_outcome(worker, ("write then wait", b"\xf5fz")) == Hung(5.0)
    pid = worker.call("pid")
    worker.call("stop later")
    while not is_stopped(pid):
        time.sleep(0.01)
    assert crash_outcome(worker, "pid") == Hung(4.0)
    assert worker.call(("echo", 1)) == 1


@pytest.mark.parametrize("action", ["fork", "fork and raise"])
def test_of_a_process_that_returns_twice_only_the_worker_answers(worker: Worker, action: str) -> None:
    pid = worker.call("pid")
    worker.submit(action)
    for number in range(50):
        worker.submit(("echo", number))
    answers = []
    while len(answers) < 51:
        response = worker.receive(0.05)
        answers += [response[1]] if response else []
    assert answers == [pid, *range(50)] and worker.call("pid") == pid


@pytest.mark.parametrize("end", ["stop", "kill", "kill parent"])
def test_no_daemon_outlives_its_worker(worker: Worker, end: str) -> None:
    daemon = worker.call("daemonise")
    assert resident(daemon)
    if end == "stop":
        worker.stop()
        assert has_ended(daemon)
        return
    crash_outcome(worker, "kill")
    assert has_ended(daemon)


def test_a_stopped_parent_goes_on(worker: Worker) -> None:
    pid, parent = worker.call("pid"), worker.call("parent")
    worker.call("stop parent")
    worker.stop()
    assert has_ended(pid) and has_ended(parent)
    worker.call("stop parent")
    assert crash_outcome(worker, "kill") == Died("SIGKILL")


def server_pid() -> int:
    return forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined, no-any-return]


def test_a_stopped_server_starts_workers_again(worker: Worker) -> None:
    worker.call("pid")
    os.kill(server_pid(), signal.SIGSTOP)
    assert crash_outcome(worker, "kill") == Died("SIGKILL")
    assert worker.call(("echo", 1)) == 1


def test_a_server_that_does_not_answer_is_replaced(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    pid, server = worker.call("pid"), server_pid()

    def leave_stopped(number: int) -> None:
        """The new server has all the time that it needs."""
        monkeypatch.setattr("fuzz.worker.worker.SERVER_SECONDS", 1.0 if number == server else 300.0)

    monkeypatch.setattr("fuzz.worker.worker.resume_if_stopped", leave_stopped)
    monkeypatch.setattr(worker_process, "resume_if_stopped", lambda _: None)
    os.kill(server, signal.SIGSTOP)
    other = worker.clone()
    with other:
        assert other.call(("echo", 1)) == 1 and server_pid() != server
    # The worker of the old server did not notice.
    assert worker.call("pid") == pid


def test_a_server_whose_socket_a_kernel_deleted_is_replaced(worker: Worker) -> None:
    worker.call("pid")
    server = server_pid()
    shutil.rmtree(get_temp_dir())
    other = worker.clone()
    with other:
        assert other.call(("echo", 1)) == 1 and server_pid() != server


def test_a_server_whose_folder_is_deleted_while_it_is_replaced_is_replaced_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kernels of other workers do it that run meanwhile."""
    worker.call("pid")
    folder = Path(get_temp_dir())
    shutil.rmtree(folder)

    def sleep_and_delete(seconds: float) -> None:
        time.sleep(seconds)
        shutil.rmtree(folder, ignore_errors=True)

    monkeypatch.setattr("fuzz.worker.worker.time", SimpleNamespace(sleep=sleep_and_delete, **CLOCK))
    with worker.clone() as other:
        assert other.call(("echo", 1)) == 1


def test_a_folder_of_temporary_files_that_cannot_be_made_again_is_one_clear_line(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.call("pid")
    folder = Path(get_temp_dir())
    shutil.rmtree(folder)
    folder.touch()
    monkeypatch.setattr("fuzz.worker.worker.time", SimpleNamespace(sleep=lambda _: None, **CLOCK))
    try:
        with worker.clone() as other, pytest.raises(UsageError, match="kernels delete the folder of temporary files"):
            other.call(("echo", 1))
    finally:
        folder.unlink()
        folder.mkdir(mode=0o700)


def test_a_kernel_leaves_folder_variables_signals_and_limits_as_they_were(worker: Worker, tmp_path: Path) -> None:
    before = worker.call("state")
    pid = worker.call("pid")
    worker.call(("change state", str(tmp_path)))
    assert worker.call("state") == before
    time.sleep(0.5)
    assert worker.call("pid") == pid


def test_a_channel_that_a_kernel_made_return_at_once_waits_again(worker: Worker) -> None:
    pid = worker.call("pid")
    worker.call("wait for nothing")
    assert worker.call(("echo", bytes(1 << 23))) == bytes(1 << 23)
    assert worker.call("pid") == pid


def test_a_failure_under_limits_that_a_kernel_lowered_is_the_kernels(worker: Worker) -> None:
    assert crash_outcome(worker, "lower limit") == Died("limits of resources that its kernel lowered")
    assert worker.call(("echo", 1)) == 1


@pytest.mark.parametrize("action", [name for name in ACTIONS if name.startswith(("replace", "forget", "forbid"))])
def test_a_failure_after_a_kernel_changed_the_interpreter_is_the_kernels(worker: Worker, action: str) -> None:
    assert crash_outcome(worker, action) == Died("changes that its kernel made to the interpreter")
    assert worker.call(("echo", 1)) == 1


@pytest.mark.parametrize(("total", "kind"), [(1 << 50, NotRun), (1 << 20, OutOfMemory)])
def test_who_the_system_kills_for_memory_is_at_fault_where_it_held_most_of_it(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, total: int, kind: type
) -> None:
    monkeypatch.setattr(worker_process, "total_memory", lambda: total)
    measured: list[int] = []
    monkeypatch.setattr(worker_process, "resident", lambda pid: measured.append(resident(pid)) or measured[-1])
    worker.call("pid")
    del measured[:]
    while len(measured) < 2:
        time.sleep(0.01)
    monkeypatch.setattr(worker_process, "oom_kills", lambda: 1 << 40)
    assert isinstance(crash_outcome(worker, "kill"), kind)
