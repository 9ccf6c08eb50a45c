"""Makes what Triton does for each kernel that it compiles take less of the processor.

With `PATCHES` one MLIR context, with its dialects, serves many kernels, the files of the cache are written without a
folder for each, and functions of equal parameters share the Python code that binds their arguments. Of a function that
is defined again and again, as inside of a test, the lines are searched for and parsed once. What is compiled, what is
cached and under which hash stays the same.
"""

from __future__ import annotations

import ast
import inspect
import os
import threading
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
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
VISITED = frozenset(
    kind
    for name, kind in vars(ast).items()
    if getattr(jit.DependenciesFinder, f"visit_{name}", None) is not getattr(ast.NodeVisitor, f"visit_{name}", None)
)
"""The classes of nodes for which Triton's search for what a function depends on has a method."""
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
        # By the identity of a function's code, which is kept: its lines and the number of the first one.
        self.blocks: dict[int, tuple[CodeType, list[str], int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def getsourcelines(self, function: Any) -> tuple[list[str], int]:
        """The lines of a function and the number of the first one."""
        if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
            return inspect.getsourcelines(function)
        code = function.__code__
        if id(code) not in self.blocks:
            if len(self.blocks) >= MOST_BLOCKS:
                self.blocks.clear()
            self.blocks[id(code)] = code, *inspect.getsourcelines(function)
        _, block, first = self.blocks[id(code)]
        return list(block), first


@lru_cache(maxsize=256)
def parsed(source: str) -> ast.Module:
    """The tree of a function's source. Triton reads it only."""
    return ast.parse(source)


def parsing_once() -> ModuleType:
    """Replaces the module `ast` where Triton parses functions."""
    module = ModuleType("ast")
    vars(module).update(vars(ast), parse=parsed)
    return module


class DependenciesFinder(jit.DependenciesFinder):  # type: ignore[misc]
    """Triton's own search for what a function depends on, which passes over the parts of a tree without names."""

    def generic_visit(self, node: ast.AST) -> None:
        for child in visited_children(node):
            self.visit(child)


def visited_children(node: ast.AST) -> tuple[ast.AST, ...]:
    """The children that Triton visits by a method of their own, or whose children it does; kept with the node."""
    children: tuple[ast.AST, ...] | None = getattr(node, "visited", None)
    if children is None:
        # Python shares one node without fields, as that of an operator, among all trees.
        own = (child for child in ast.iter_child_nodes(node) if child._fields)
        children = tuple(child for child in own if is_visited(child))
        node.visited = children  # type: ignore[attr-defined]
    return children


def is_visited(node: ast.AST) -> bool:
    return type(node) in VISITED or bool(visited_children(node))


PATCHES = [
    Patch(ir, "context", shared_context.take),
    Patch(FileCacheManager, "put", put),
    Patch(jit, "exec", execute),
    Patch(jit, "inspect", Inspect()),
    Patch(jit, "ast", parsing_once()),
    Patch(jit, "DependenciesFinder", DependenciesFinder),
]
