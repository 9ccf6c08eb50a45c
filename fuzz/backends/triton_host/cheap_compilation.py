"""Makes what Triton does for each kernel that it compiles take less of the processor.

With `PATCHES` one MLIR context, with its dialects, serves many kernels, the files of the cache are written without a
folder for each, functions of equal parameters share the Python code that binds their arguments, and the end of a
function that is defined again and again, as inside of a test, is searched for once. What is compiled and what is cached
stays the same.
"""

from __future__ import annotations

import inspect
import os
import threading
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from triton._C.libtriton import ir
from triton.runtime import jit
from triton.runtime.cache import FileCacheManager

from fuzz.backends.triton_host.patching import Patch
from fuzz.files import replace_file

MOST_KERNELS = 64
"""For which one context is used: it keeps every type, attribute and location that it has seen."""
MOST_BLOCKS = 4096
"""The functions whose lines are kept."""
make_context, put_through_folder = ir.context, FileCacheManager.put


class SharedContext(threading.local):
    """The context of a thread. A context may not be used by two threads at once, nor with the threads of another
    process: after a fork there is a new one."""

    def __init__(self) -> None:
        self.context: Any = None
        self.process = self.kernels = 0
        self.inherited: list[Any] = []

    def take(self) -> Any:
        """The context for one more kernel."""
        if self.process != os.getpid():
            # To end a context may wait for its threads, which a fork loses.
            self.inherited.append(self.context)
            self.process, self.kernels = os.getpid(), 0
        if self.kernels % MOST_KERNELS == 0:
            self.context = make_context()
        self.kernels += 1
        return self.context


shared_context = SharedContext()


def put(manager: FileCacheManager, data: Any, filename: str, binary: bool = True) -> str:
    """Writes a file of the cache; others see all of it or nothing."""
    if not manager.cache_dir or manager.lock_path is None:
        return str(put_through_folder(manager, data, filename, binary))
    path: str = manager._make_path(filename)
    replace_file(Path(path), data if isinstance(data, bytes) else str(data).encode())
    return path


@lru_cache(maxsize=1024)
def compiled_source(source: str) -> CodeType:
    """Python's code of a generated text, which is that of many kernels."""
    return compile(source, "<generated>", "exec")


def execute(source: str, space: dict[str, Any]) -> None:
    """Replaces `exec` where Triton generates a function."""
    exec(compiled_source(source), space)


class Inspect:
    """Replaces the module `inspect` where Triton reads the source of functions."""

    def __init__(self) -> None:
        # By file and first line of a function, the lines of its file and its own ones.
        self.blocks: dict[tuple[str, int], tuple[list[str], list[str]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def getsourcelines(self, function: Any) -> tuple[list[str], int]:
        """The lines of a function and the number of the first one."""
        if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
            return inspect.getsourcelines(function)
        lines, first = inspect.findsource(function)
        place = function.__code__.co_filename, first
        known, block = self.blocks.get(place, ([], []))
        # Python reads a file that has changed into another list.
        if known is not lines:
            block = inspect.getblock(lines[first:])
            if len(self.blocks) >= MOST_BLOCKS:
                self.blocks.clear()
            self.blocks[place] = lines, block
        return list(block), first + 1


PATCHES = [
    Patch(ir, "context", shared_context.take),
    Patch(FileCacheManager, "put", put),
    Patch(jit, "exec", execute),
    Patch(jit, "inspect", Inspect()),
]
