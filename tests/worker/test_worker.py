"""Workers die, hang, exit and fill their memory; each becomes an outcome, and the next request is answered."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from crashes import crash_outcome
from processes import has_ended
from programs import start_program

from fuzz.errors import InternalError, TargetError, UsageError
from fuzz.model.case import Argument, Call, Case
from fuzz.model.outcome import Died, Hung, OutOfMemory
from fuzz.model.recipes import recipe
from fuzz.worker import worker_process
from fuzz.worker.activity import FILE, Activity
from fuzz.worker.channel import Channel, HandlerReady, HandlerRequest, LastResponse
from fuzz.worker.child.output_relay import StandardError
from fuzz.worker.child.serve import heartbeat, running
from fuzz.worker.child.supervisor import supervise
from fuzz.worker.protocol import HANDLER as EXAMINE
from fuzz.worker.protocol import Examine, Report, WorkerConfig, report_of_outcome
from fuzz.worker.system import blocked_interrupts, resident, without_main
from fuzz.worker.watchdog import Watchdog
from fuzz.worker.worker import Worker, WorkerCrash, report_of_crash
from fuzz.worker.worker_process import REFERENCE_FAILED, WorkerProcess
from fuzz.worker.worker_server import CONTEXT, _run_in_python, _start_server

HANDLER = f"{__name__}:make_handler"
MIB = 1 << 20
REQUESTS: list[object] = []
"""The requests to this process: a state that a clean process does not have."""


def make_handler(config: object) -> Callable[[Any], object]:
    """Makes the handler of the workers of these tests, request -> response."""
    if config == "refuses":
        raise UsageError("this\ncannot be")
    if config == "dies":
        os._exit(7)
    if config == "slow":
        time.sleep(1.5)

    def handle(request: Any) -> object:
        REQUESTS.append(request)
        action, argument = request if isinstance(request, tuple) else (request, None)
        return ACTIONS[action](argument)

    return handle


def fill_memory(size: int) -> None:
    held = []
    for _ in range(size // (16 * MIB)):
        held.append(bytearray(b"x") * (16 * MIB))
        time.sleep(0.01)
    raise AssertionError("nobody stopped me")


def scatter(size: int) -> None:
    """Blocks of malloc of which only the last one stays, so that the heap does not end before it."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    blocks = [libc.malloc(ctypes.c_size_t(64 << 10)) for _ in range(size // (64 << 10))]
    for block in blocks:
        ctypes.memset(block, 1, 64 << 10)
    for block in blocks[:-1]:
        libc.free(ctypes.c_void_p(block))


def forever(_: object) -> None:
    while True:
        pass


def compile_slowly(seconds: float) -> str:
    """What a backend does while a compiler runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        heartbeat()
        time.sleep(0.02)
    return "compiled"


def fail(_: object) -> None:
    raise ArithmeticError("a bug of the worker's own")


def refuse(_: object) -> None:
    raise UsageError("the target is wrong")


class Unreadable:
    """A request that the worker's process cannot read."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return int, ("no number",)


ACTIONS: dict[str, Callable[[Any], object]] = {
    "pid": lambda _: os.getpid(),
    "echo": lambda value: value,
    "count": lambda _: len(REQUESTS),
    "segfault": lambda _: ctypes.string_at(0),
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "abort": lambda _: os.abort(),
    "real-time": lambda _: os.kill(os.getpid(), signal.SIGRTMIN + 6),
    "exit": lambda _: os._exit(3),
    "leave": lambda _: sys.exit(4),
    "hang": forever,
    "sleep": time.sleep,
    "compile": compile_slowly,
    "fill": fill_memory,
    "scatter": scatter,
    "fail": fail,
    "refuse": refuse,
    "unsendable": lambda _: lambda: None,
    "print": lambda text: print(text, flush=True),
    "imported": lambda name: name in sys.modules,
    "collector": lambda _: (gc.isenabled(), gc.get_freeze_count()),
    "last": lambda value: LastResponse(value),
    "main": lambda _: getattr(sys.modules["__main__"], "__file__", None),
}


@pytest.mark.parametrize(
    ("action", "cause"),
    [
        ("segfault", "SIGSEGV"),
        ("kill", "SIGKILL"),
        ("abort", "SIGABRT"),
        ("real-time", "signal 40"),
        ("exit", "exit status 3"),
        ("leave", "exit status 4"),
    ],
)
def test_a_death_is_an_outcome_and_the_next_request_is_answered(worker: Worker, action: str, cause: str) -> None:
    before = worker.call("pid")
    assert crash_outcome(worker, action) == Died(cause)
    after = worker.call("pid")
    assert after != before and has_ended(before)


def test_a_hang_is_an_outcome_after_the_watchdogs_time(worker: Worker) -> None:
    before = worker.call("pid")
    worker.timeout = 0.3
    start = time.monotonic()
    assert crash_outcome(worker, "hang") == Hung(0.3)
    assert 0.3 <= time.monotonic() - start < 60
    assert has_ended(before)
    worker.timeout = 20.0
    assert worker.call(("echo", 5)) == 5


def test_time_in_a_compiler_is_no_hang(worker: Worker) -> None:
    worker.call("pid")
    worker.timeout = 0.5
    assert worker.call(("compile", 1.5)) == "compiled"
    heartbeat()  # Where no worker runs, it does nothing.


def test_a_slow_answer_within_the_time_is_no_hang(worker: Worker) -> None:
    worker.call("pid")
    worker.timeout = 2.0
    assert worker.call(("sleep", 0.2)) is None or True
    assert worker.call(("echo", 1)) == 1


def test_memory_over_the_limit_is_an_outcome(worker: Worker) -> None:
    pid = worker.call("pid")
    worker.memory = resident(pid) + 200 * MIB
    outcome = crash_outcome(worker, ("fill", 1200 * MIB))
    assert outcome == OutOfMemory(f"over {worker.memory >> 20} MiB resident")
    assert has_ended(pid)
    assert worker.call(("echo", 2)) == 2


def test_reserved_address_space_is_no_memory(worker: Worker) -> None:
    pid = worker.call("pid")
    worker.memory = resident(pid) + 100 * MIB
    assert worker.call(("echo", "x" * 1000)) == "x" * 1000


def test_a_failure_of_the_workers_own_code_is_never_swallowed(worker: Worker) -> None:
    with pytest.raises(InternalError, match="ArithmeticError: a bug of the worker's own"):
        worker.call("fail")


def test_a_usage_error_reaches_the_caller_as_one(worker: Worker) -> None:
    with pytest.raises(UsageError, match="^the target is wrong$"):
        worker.call("refuse")


def test_a_worker_that_cannot_start_says_why() -> None:
    with Worker(HANDLER, "refuses", 8 << 30, 20.0) as worker, pytest.raises(UsageError, match="^this cannot be$"):
        worker.call("pid")
    with Worker(HANDLER, "dies", 8 << 30, 20.0) as worker, pytest.raises(InternalError, match="exit status 7"):
        worker.call("pid")
    with Worker(f"{__name__}:nowhere", None, 8 << 30, 20.0) as worker, pytest.raises(InternalError, match="nowhere"):
        worker.call("pid")


def make_killed_handler(config: tuple[Path, int]) -> Callable[[Any], int]:
    """Makes a handler whose process is killed as it loads its target, for so many times."""
    starts, killed = config
    with starts.open("a") as file:
        file.write("x")
    count = starts.stat().st_size
    with running(FILE):
        if count <= killed:
            os.kill(os.getpid(), signal.SIGKILL)
    return lambda request: count


def test_a_worker_that_is_killed_as_it_starts_is_started_again_twice(tmp_path: Path) -> None:
    config = f"{__name__}:make_killed_handler", (tmp_path / "starts", 2), 8 << 30, 60.0
    with Worker(*config) as worker:
        assert worker.call("") == 3
    (tmp_path / "starts").unlink()
    with (
        Worker(config[0], (tmp_path / "starts", 9), *config[2:]) as worker,
        pytest.raises(TargetError, match="^the target's file ended a worker before its first case: .* SIGKILL$"),
    ):
        worker.call("")
    assert (tmp_path / "starts").read_text() == "xxx"


def test_a_start_has_a_limit_of_its_own_and_is_not_the_hang_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker(HANDLER, "slow", 8 << 30, timeout=1.0) as worker:
        assert worker.call(("echo", 1)) == 1
    monkeypatch.setattr(worker_process, "START_SECONDS", 0.3)
    with Worker(HANDLER, "slow", 8 << 30, timeout=20.0) as worker:
        with pytest.raises(UsageError, match="no worker was ready within 0.3 s"):
            worker.call(("echo", 1))


@pytest.mark.parametrize("request_", ["unsendable", Unreadable()])
def test_a_message_that_cannot_be_sent_or_read_is_never_a_death_of_the_kernel(worker: Worker, request_: object) -> None:
    with pytest.raises(InternalError):
        worker.call(request_)


def test_a_request_is_timed_by_when_its_process_began_with_it_however_late_the_run_looks(worker: Worker) -> None:
    pid = worker.call("pid")
    worker.timeout = 4.0
    worker.submit(("sleep", 0.3))
    worker.submit("hang")
    assert has_ended(pid)
    assert worker.receive(60) == (("sleep", 0.3), None)
    assert worker.receive(60) == ("hang", WorkerCrash(Hung(4.0)))


def test_state_does_not_outlive_a_process(worker: Worker) -> None:
    assert [worker.call("count") for _ in range(3)] == [1, 2, 3]
    worker.stop()
    assert worker.call("count") == 1
    crash_outcome(worker, "exit")
    assert worker.call("count") == 1


def test_requests_behind_a_death_are_answered_in_their_order(worker: Worker) -> None:
    for request in (("echo", 1), "segfault", ("echo", 2), ("echo", 3)):
        worker.submit(request)
    responses = []
    while len(responses) < 4:
        response = worker.receive(0.05)
        responses += [response] if response else []
    assert responses == [
        (("echo", 1), 1),
        ("segfault", WorkerCrash(Died("SIGSEGV"))),
        (("echo", 2), 2),
        (("echo", 3), 3),
    ]


def interrupts_each_python(folder: Path) -> str:
    """The path of modules of Pythons to which Ctrl-C comes as they start."""
    note = f"open({str(folder / 'sent')!r}, 'a').write('.')"
    (folder / "sitecustomize.py").write_text(f"import os, signal\n{note}\nos.kill(os.getpid(), signal.SIGINT)\n")
    return str(folder)


def test_a_ctrl_c_does_not_end_a_worker_that_starts_a_python(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    variables = {"PYTHONPATH": interrupts_each_python(tmp_path)}
    with Worker(HANDLER, None, 8 << 30, 120.0, variables) as worker:
        assert worker.call(("echo", "alive")) == "alive"
    assert (tmp_path / "sent").read_text() == "." and "Traceback" not in capfd.readouterr().err


def test_a_ctrl_c_does_not_end_a_server_of_workers_that_starts_a_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", interrupts_each_python(tmp_path))
    server = forkserver.ForkServer()
    _start_server(_run_in_python, server)
    try:
        monkeypatch.setattr(forkserver, "connect_to_new_process", server.connect_to_new_process)
        process = CONTEXT.Process(target=os.getpid)
        with without_main():
            process.start()
        process.join()
        assert process.exitcode == 0 and (tmp_path / "sent").read_text() == "."
    finally:
        server._stop()


def test_an_interrupt_just_before_interrupts_are_blocked_leaves_none_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    change, before = signal.pthread_sigmask, signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def interrupted(how: int, signals: set[int]) -> set[int]:
        mask = change(how, signals)
        if how == signal.SIG_BLOCK and signals:
            raise KeyboardInterrupt
        return mask

    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    with pytest.raises(KeyboardInterrupt), blocked_interrupts():
        pass
    assert change(signal.SIG_BLOCK, ()) == before


@pytest.mark.parametrize(("owner", "name"), [(WorkerProcess, "end"), (Watchdog, "remove")])
def test_a_worker_whose_stop_is_interrupted_ends_and_can_be_stopped_again(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(owner, name)

    def interrupted(*arguments: Any) -> None:
        whole(*arguments)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Worker(HANDLER, None, 8 << 30, 120.0) as worker:
        worker.start()
        child = worker.process
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupted)
            worker.stop()
    assert child is not None and child.has_ended and worker.process is None
    with worker:
        assert worker.call(("echo", "again")) == "again"


def test_after_the_last_response_the_process_is_a_new_one(worker: Worker) -> None:
    before = worker.call("pid")
    assert worker.call(("last", "bye")) == "bye"
    assert worker.call("pid") != before


def test_a_worker_that_is_killed_while_it_waits_is_replaced(worker: Worker) -> None:
    os.kill(worker.call("pid"), signal.SIGKILL)
    assert crash_outcome(worker, ("echo", 1)) == Died("SIGKILL")
    assert worker.call(("echo", 1)) == 1


def test_what_a_worker_prints_is_not_a_result(worker: Worker, capfd: pytest.CaptureFixture[str]) -> None:
    worker.call(("print", "noise"))
    assert "noise" not in capfd.readouterr().out


def test_what_a_worker_prints_holds_nothing_that_a_terminal_obeys(capfd: pytest.CaptureFixture[str]) -> None:
    with Worker(HANDLER, None, 8 << 30, 600.0) as worker:
        worker.call(("print", "\x1b]0;owned\x07 é 10 %\r20 %"))
    assert capfd.readouterr().err.endswith("\\x1b]0;owned\\x07 é 10 %\r20 %\n")


def test_a_worker_does_not_run_the_program_again(worker: Worker) -> None:
    assert worker.call("main") is None


def test_a_clean_worker_has_imported_what_its_server_has(worker: Worker) -> None:
    for _ in range(2):
        assert worker.call(("imported", "fuzz.oracles.execution.preload"))
        worker.stop()


def test_a_worker_looks_for_garbage_in_what_it_makes_and_not_in_what_its_server_has(worker: Worker) -> None:
    enabled, frozen = worker.call(("collector", None))
    assert enabled and frozen > 10_000


COORDINATOR = """
import sys, time
sys.path[:0] = sys.argv[2:]
from fuzz.worker.worker import Worker
worker = Worker("test_worker:make_handler", None, 8 << 30, 600.0)
print(worker.call("pid"), flush=True)
worker.submit(sys.argv[1])
time.sleep(600)
"""


@pytest.mark.parametrize("action", ["pid", "hang"])
def test_killing_the_coordinator_leaves_no_worker_behind(action: str, tmp_path: Path) -> None:
    folders = map(str, Path(__file__).parents[:2])
    coordinator = start_program("-c", COORDINATOR, action, *folders, folder=tmp_path)
    pid = int(coordinator.first_line("stdout"))
    time.sleep(0.2)
    assert resident(pid) > 0
    coordinator.send_signal(signal.SIGKILL)
    assert has_ended(pid)


SPIN = '''"""A lock that no one releases."""
import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

N = size("N", 1, 8)


@triton.jit
def spin_kernel(lock, out, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) != 0:
        pass
    tl.store(out + tl.arange(0, BLOCK), tl.zeros([BLOCK], dtype=tl.float32))


@target(x=tensor(N), reference=lambda x: dict(y=x * 0))
def spins(x):
    lock = torch.ones(1, dtype=torch.int32, device=x.device)
    out = torch.empty(x.numel(), dtype=torch.float32, device=x.device)
    spin_kernel[(1,)](lock, out, BLOCK=1)
    return dict(y=out)
'''


def test_a_kernel_that_waits_for_a_lock_forever_hangs(tmp_path: Path) -> None:
    path = tmp_path / "spins.py"
    path.write_text(SPIN)
    case = Case("spins", (Call({"N": 1}, {"x": Argument(("N",), "float32", recipe("ones"))}),))
    with Worker(EXAMINE, WorkerConfig(str(path), None, "cpu"), 8 << 30, timeout=60.0) as worker:
        worker.timeout = 5.0
        assert crash_outcome(worker, Examine(case)) == Hung(5.0)


BLAMED = """
import os
from fuzz import size, target, tensor

N, CALLED = size("N", 1, 8), []


def fail():
    raise RuntimeError("no reference")


def reference(x):
    if len(x) == 7 or CALLED:
        {how}
    return dict(y=x * 2)


@target(x=tensor(N), dtypes=("float32",), reference=reference)
def doubles(x):
    CALLED.extend(range(len(x) // 8))
    return dict(y=x * 2)
"""
ENDED = WorkerCrash(Died("exit status 4"), "the target's reference")
ENDS = "^the target's reference ends the process that calls it at {'N': 7}"
FAILS = "^target 'doubles': its reference fails at {'N': 7}: RuntimeError: no"


@pytest.mark.parametrize(
    ("how", "expected", "error", "text"),
    [("os._exit(4)", ENDED, TargetError, ENDS), ("fail()", WorkerCrash(REFERENCE_FAILED), UsageError, FAILS)],
)
def test_a_reference_is_blamed_where_it_ends_or_fails_without_the_kernel(
    tmp_path: Path, how: str, expected: WorkerCrash, error: type[Exception], text: str
) -> None:
    path = tmp_path / "blamed.py"
    path.write_text(BLAMED.format(how=how))
    with Worker(EXAMINE, WorkerConfig(str(path), None, "cpu"), 8 << 30, timeout=60.0) as worker:
        for size in (7, 8):
            case = Case("doubles", (Call({"N": size}, {"x": Argument(("N",), "float32", recipe("ones"))}),))
            crash = worker.call(Examine(case))
            assert crash == expected
            if size == 8:
                assert report_of_crash(crash, case, worker) == report_of_outcome(expected.outcome)
                continue
            with pytest.raises(error, match=text):
                report_of_crash(crash, case, worker)


def test_a_report_travels_between_processes(case: Case) -> None:
    with Worker(EXAMINE, WorkerConfig("gelu_bw", None, "cpu"), 8 << 30, timeout=60.0) as worker:
        report = worker.call(Examine(case))
    assert isinstance(report, Report)
    assert (report.outcome, report.findings) == ("returned", ())
    assert report.examined == ("fault", "bounds", "mutation", "accuracy")


def test_a_process_that_cannot_start_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise OSError("no more processes")

    with Worker(HANDLER, None, 8 << 30, 20.0) as worker:
        monkeypatch.setattr(CONTEXT.Process, "start", full)
        with pytest.raises(OSError, match="no more processes"):
            worker.call(("echo", 1))


def test_memory_that_is_free_goes_back_to_the_system() -> None:
    with Worker(HANDLER, None, 4 << 30, 30.0) as worker:
        pid = worker.call("pid")
        before = resident(pid)
        worker.call(("scatter", 256 * MIB))
        worker.call("pid")
        assert resident(pid) < before + 64 * MIB


def test_a_worker_ends_quietly_where_its_run_has_ended(capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = socket.socketpair()
    activity = Activity()
    supervisor = CONTEXT.Process(target=supervise, args=(theirs, activity, HANDLER, None, StandardError()))
    supervisor.start()
    theirs.close()
    channel = Channel(ours)
    assert channel.receive() == HandlerReady()
    channel.send(HandlerRequest(0, ("sleep", 0.3)))
    channel.close()
    supervisor.join(60)
    assert supervisor.exitcode == 0 and has_ended(activity.pid)
    assert "Traceback" not in capfd.readouterr().err


def test_workers_import_nothing_of_the_working_folder(tmp_path: Path) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "folder"
    folder.mkdir()
    (folder / "selectors.py").write_text("import pathlib; pathlib.Path(__file__).with_suffix('.ran').touch()\n")
    program.write_text(
        "import os; from fuzz.worker.worker_server import CONTEXT, preload; preload('json')\n"
        "process = CONTEXT.Process(target=os.getpid); process.start(); process.join()"
    )
    subprocess.run([sys.executable, str(program)], cwd=folder, check=True, capture_output=True)
    assert not (folder / "selectors.ran").exists()
