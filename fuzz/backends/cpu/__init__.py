"""Triton kernels compiled for the CPU: TTIR -> C -> shared object, registered in process as a Triton backend.

from fuzz.backends import cpu

with cpu.active():
    kernel[grid](...)  # on CPU tensors; raises OutOfBounds with kernel, line, argument, program and lane

with cpu.active(), cpu.observe(order=7, unwritten=True, conflicts=True) as log:
    kernel[grid](...)  # programs in a permuted order; log.violations instead of an exception
"""

from .activation import activate, active, deactivate
from .compiler import compiler, version
from .constants import constants
from .counters import counters
from .errors import MalformedIR, NoCompiler, UnsupportedOperation
from .failures import DeviceAssertion, Failure
from .instruments import INSTRUMENTS
from .knobs import knobs
from .runtime import Log, observe
from .source import c_source
from .unwritten import Memory
from .violations import MemoryFault, OutOfBounds, Violation

__all__ = [
    "DeviceAssertion",
    "Failure",
    "INSTRUMENTS",
    "Log",
    "MalformedIR",
    "Memory",
    "MemoryFault",
    "NoCompiler",
    "OutOfBounds",
    "UnsupportedOperation",
    "Violation",
    "activate",
    "active",
    "c_source",
    "compiler",
    "constants",
    "counters",
    "deactivate",
    "knobs",
    "observe",
    "version",
]
