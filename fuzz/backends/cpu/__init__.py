"""Triton kernels compiled for the CPU: TTIR -> C -> shared object, registered in process as a Triton backend.

from fuzz.backends import cpu

with cpu.active():
    kernel[grid](...)  # on CPU tensors; raises OutOfBounds with kernel, line, argument, program and lane

with cpu.active(), cpu.observe(order=7) as log:
    kernel[grid](...)  # programs in a permuted order; log.violations instead of an exception
"""

from .activation import activate, active, deactivate
from .compiler import compiler, version
from .errors import MalformedIR, NoCompiler, UnsupportedOperation
from .failures import DeviceAssertion, Failure
from .knobs import knobs
from .runtime import Log, OutOfBounds, Violation, observe
from .source import c_source

__all__ = [
    "DeviceAssertion",
    "Failure",
    "Log",
    "MalformedIR",
    "NoCompiler",
    "OutOfBounds",
    "UnsupportedOperation",
    "Violation",
    "activate",
    "active",
    "c_source",
    "compiler",
    "deactivate",
    "knobs",
    "observe",
    "version",
]
