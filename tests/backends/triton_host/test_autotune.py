"""What replaces the benchmarks of autotuners, in several threads."""

import threading

from triton.runtime.jit import JITFunction

from fuzz.backends.triton_host.autotune import load_once


class Kernel:
    def __init__(self):
        self.loads = 0

    def _init_handles(self):
        self.loads += 1


def test_benchmarks_of_two_threads_leave_launches_as_they_were(monkeypatch):
    """Also where the one that began first ends first. What other threads launch meanwhile is not loaded by them."""
    kernels = {name: Kernel() for name in ("first", "second", "other")}

    def run(function, name):
        return kernels[name]

    monkeypatch.setattr(JITFunction, "run", run)
    began, ended = threading.Event(), threading.Event()

    def first():
        JITFunction.run(None, "first")
        began.set()
        assert inside.wait(60)

    inside = threading.Event()

    def second():
        inside.set()
        assert ended.wait(60)
        JITFunction.run(None, "second")

    threads = [threading.Thread(target=load_once, args=(call,)) for call in (first, second)]
    threads[0].start()
    assert began.wait(60)
    threads[1].start()
    threads[0].join()
    JITFunction.run(None, "other")
    ended.set()
    threads[1].join()
    assert JITFunction.run is run
    assert {name: kernel.loads for name, kernel in kernels.items()} == {"first": 1, "second": 1, "other": 0}
