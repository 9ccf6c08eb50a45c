"""Makes what Triton does for each kernel that it compiles take less of the processor.

With `PATCHES` one MLIR context, with its dialects, serves many kernels, and the files of the cache are written without
a folder for each. What is compiled and what is cached stays the same.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from triton._C.libtriton import ir
from triton.runtime.cache import FileCacheManager

from fuzz.backends.triton_host.patching import Patch

MOST_KERNELS = 64
"""For which one context is used: it keeps every type, attribute and location that it has seen."""
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
    made = f"{path}.{os.getpid()}.{threading.get_ident()}"
    is_binary = isinstance(data, bytes)
    with open(made, "wb" if is_binary else "w") as file:
        file.write(data if is_binary else str(data))
    os.replace(made, path)
    return path


PATCHES = [Patch(ir, "context", shared_context.take), Patch(FileCacheManager, "put", put)]
