"""The public names of `fuzz.backends.cpu`, in one module because they need torch and triton."""

from fuzz.backends.cpu.analysis.compared_constants import constants
from fuzz.backends.cpu.compilers.compiler import compiler, version
from fuzz.backends.cpu.errors import MalformedIR, NoCompiler, UnsupportedOperation
from fuzz.backends.cpu.instruments import INSTRUMENTS
from fuzz.backends.cpu.runtime.activation import activate, active, deactivate
from fuzz.backends.cpu.runtime.compiled_kernel import c_source
from fuzz.backends.cpu.runtime.counters import counters
from fuzz.backends.cpu.runtime.observation import Log, observe
from fuzz.backends.cpu.runtime.shadow import ShadowMemory
from fuzz.backends.cpu.runtime.violations import DeviceAssertion, Failure, MemoryFault, OutOfBounds, Violation
from fuzz.backends.triton_host.knobs import knobs

__all__ = [
    "DeviceAssertion",
    "Failure",
    "INSTRUMENTS",
    "Log",
    "MalformedIR",
    "MemoryFault",
    "NoCompiler",
    "OutOfBounds",
    "ShadowMemory",
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
