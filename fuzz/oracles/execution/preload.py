"""Does what every worker would do first, once, in the process that workers are forked from.

Importing it imports torch, triton and the oracles, and reads Triton's key of its own files: about two seconds that
a clean worker does not spend again.
"""

from __future__ import annotations

from contextlib import suppress

import torch
import torch._decomp
import triton

import fuzz.backends.cpu.interface
import fuzz.oracles
import fuzz.oracles.examine
from fuzz.backends.cpu.codegen.prelude import PRELUDE
from fuzz.backends.cpu.compilers.compiler import source_hash, version
from fuzz.backends.cpu.compilers.tiny_compiler import compile_in_process
from fuzz.backends.triton_host.triton_key import keep_triton_key
from fuzz.oracles.comparison.expected import STAGES
from fuzz.reference.envelope import cache_noise

with suppress(ImportError):
    # mpmath and Arb, which findings are adjudicated by.
    import fuzz.reference.exact

    fuzz.reference.exact.enclosures_available()
with suppress(ImportError):
    # Triton imports it at the first launch.
    import triton.experimental.gluon

torch.set_num_threads(1)
cache_noise(STAGES[-1])
with suppress(RuntimeError):
    compile_in_process(PRELUDE, "nothing")
with suppress(RuntimeError):
    # Hashes of the C compiler and of the processor.
    version()
source_hash()
keep_triton_key()

__all__ = ["fuzz", "triton"]
