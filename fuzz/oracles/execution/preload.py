"""Does what every worker would do first, once, in the process that workers are forked from.

Importing it imports torch, triton and the oracles, and computes Triton's key of its own files: about two seconds that
a clean worker does not spend again.
"""

from __future__ import annotations

from contextlib import suppress

import torch
import torch._decomp
import triton
from triton.runtime import cache

import fuzz.backends.cpu.interface
import fuzz.oracles
import fuzz.oracles.examine
from fuzz.backends.cpu.runtime.compiler import source_hash, version
from fuzz.backends.cpu.runtime.tiny_compiler import compile_in_process
from fuzz.reference.envelope import cache_noise

with suppress(ImportError):
    # mpmath and Arb, which findings are adjudicated by.
    import fuzz.reference.exact

    fuzz.reference.exact.enclosures_available()
with suppress(ImportError):
    # Triton imports it at the first launch.
    import triton.experimental.gluon

torch.set_num_threads(1)
cache_noise()
with suppress(RuntimeError):
    compile_in_process("", "nothing")
with suppress(RuntimeError):
    # Hashes of the C compiler and of the processor.
    version()
source_hash()
# Private to Triton, and only a matter of speed: where it has moved, workers compute it themselves.
getattr(cache, "triton_key", lambda: None)()

__all__ = ["fuzz", "triton"]
