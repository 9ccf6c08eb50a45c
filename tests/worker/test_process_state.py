"""A worker's process, as it was before a kernel ran in it."""

from __future__ import annotations

import sys
from threading import Event, Thread

from fuzz.worker.child.process_state import ProcessState


def test_a_state_is_captured_while_another_thread_imports() -> None:
    names, done, before = [f"fuzz.imported_{number}" for number in range(500)], Event(), sys.getswitchinterval()

    def import_modules() -> None:
        while not done.is_set():
            sys.modules.update(dict.fromkeys(names, sys))
            for name in names:
                sys.modules.pop(name)

    thread = Thread(target=import_modules)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        states = [ProcessState.capture() for _ in range(50)]
    finally:
        sys.setswitchinterval(before)
        done.set()
        thread.join()
    assert all(state.folder for state in states)
