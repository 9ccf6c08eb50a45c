"""Is imported by the server that workers are forked from: it imports what they need, and looks for no garbage in it.

What modules hold is never garbage. While torch and Triton are imported, looking for it takes a sixth of the time; in
workers each look would go through 200,000 objects, and copy the pages that they share with the server.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module

from fuzz.backends import BACKENDS

gc.disable()
try:
    for backend in BACKENDS.values():
        os.environ.update(backend.server_environment)
    import_module("fuzz.oracles.execution.preload")
finally:
    gc.freeze()
    gc.enable()
