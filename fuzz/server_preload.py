"""Is imported by the server that workers are forked from: it imports what they need, and looks for no garbage in it.

What modules hold is never garbage. While torch and Triton are imported, looking for it takes a sixth of the time; in
workers each look would go through 200,000 objects, and copy the pages that they share with the server.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from fuzz.backends import BACKENDS


@contextmanager
def importing() -> Iterator[None]:
    """What is imported inside is never looked through for garbage, and leaves the devices of all backends alone."""
    before = dict(os.environ)
    for backend in BACKENDS.values():
        os.environ.update(backend.import_environment)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


with importing():
    for name in ("fuzz.oracles.execution.preload", "fuzz.worker.child.supervisor", "fuzz.worker.child.target_server"):
        import_module(name)
