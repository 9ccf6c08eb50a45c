"""Makes what Triton does for each kernel that it compiles take less of the processor.

With `PATCHES` one MLIR context, with its dialects, serves many kernels, the files of the cache are written without a
folder for each and found by one look at their folder, and functions of equal parameters share the Python code that
binds their arguments. Of a function that is defined again and again, as inside of a test, the lines are searched for
and parsed once, and the signature is made once. What is compiled, what is cached and under which hash stays the
same, but for IR that is `Unwritten`.
"""

from __future__ import annotations

import ast
import inspect
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from triton._C.libtriton import ir
from triton.runtime import jit
from triton.runtime.cache import FileCacheManager

from fuzz.backends.source_blocks import source_lines
from fuzz.backends.triton_host.patching import Patch
from fuzz.files import replace_file

MOST_KERNELS = 64
"""For which one context is used: it keeps every type, attribute and location that it has seen."""
MOST_BLOCKS = 4096
"""The functions whose lines are kept."""
GROUP = "__grp__"
"""How the name of the file begins that lists the files of a kernel."""
VISITED: dict[type, Callable[[Any, Any], Any]] = {
    kind: getattr(jit.DependenciesFinder, f"visit_{name}")
    for name, kind in vars(ast).items()
    if getattr(jit.DependenciesFinder, f"visit_{name}", None) is not getattr(ast.NodeVisitor, f"visit_{name}", None)
}
"""The methods of Triton's search for what a function depends on, by the class of the nodes that they visit."""
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


class Unwritten:
    """The IR of a kernel that is not written into the cache: to print it takes longer than to write all files.

    Its text is that of its module, for other cache managers, which write it.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    def __str__(self) -> str:
        return str(self.module)


def put(manager: FileCacheManager, data: Any, filename: str, binary: bool = True) -> str:
    """Writes a file of the cache, and gives its path; others see all of it or nothing. What is `Unwritten` is not."""
    if not manager.cache_dir or manager.lock_path is None:
        return str(put_through_folder(manager, data, filename, binary))
    path: str = manager._make_path(filename)
    if isinstance(data, Unwritten):
        return path
    content = data if isinstance(data, bytes) else str(data).encode()
    try:
        replace_file(Path(path), content)
    except FileNotFoundError:
        # Whoever bounds the cache has removed the folder, which was empty while the kernel was compiled.
        os.makedirs(manager.cache_dir, exist_ok=True)
        replace_file(Path(path), content)
    return path


def get_group(manager: FileCacheManager, filename: str) -> dict[str, str] | None:
    """The paths of a kernel's files by their names, all from one look at its folder; None where some are not written.

    Triton reads them from a file of the group, which it writes last, and looks for each.
    """
    try:
        names = os.listdir(manager.cache_dir)
    except OSError:
        return None
    stem = filename.removesuffix("json")
    if GROUP + filename not in names:
        return None
    return {name: os.path.join(manager.cache_dir, name) for name in names if name.startswith(stem)}


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
        # Likewise: its signature, where it has no defaults, and the annotations that it had then.
        self.signatures: dict[int, tuple[CodeType, inspect.Signature, dict[str, Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    def getsourcelines(self, function: Any) -> tuple[list[str], int]:
        """The lines of a function and the number of the first one."""
        if not is_plain(function):
            return source_lines(function)
        code = function.__code__
        if id(code) not in self.blocks:
            if len(self.blocks) >= MOST_BLOCKS:
                self.blocks.clear()
            self.blocks[id(code)] = code, *source_lines(function)
        _, block, first = self.blocks[id(code)]
        return list(block), first

    def signature(self, function: Any) -> inspect.Signature:
        """The signature of a function."""
        if not is_plain(function) or function.__defaults__ or function.__kwdefaults__:
            return inspect.signature(function)
        code, annotations = function.__code__, function.__annotations__
        known = self.signatures.get(id(code))
        if known is None or not are_same(known[2], annotations):
            if len(self.signatures) >= MOST_BLOCKS:
                self.signatures.clear()
            known = self.signatures[id(code)] = code, inspect.signature(function), dict(annotations)
        return known[1]


def is_plain(function: Any) -> bool:
    """Whether it is a function of Python that stands for no other one."""
    stands_for_another = hasattr(function, "__wrapped__") or hasattr(function, "__signature__")
    return inspect.isfunction(function) and not stands_for_another


def are_same(some: dict[str, Any], others: dict[str, Any]) -> bool:
    """Whether they hold the same objects under the same names: those of a user may not be comparable."""
    return some.keys() == others.keys() and all(value is others[name] for name, value in some.items())


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

    def visit(self, node: ast.AST) -> Any:
        method = VISITED.get(type(node))
        return self.generic_visit(node) if method is None else method(self, node)

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
    Patch(FileCacheManager, "get_group", get_group),
    Patch(jit, "exec", execute),
    Patch(jit, "inspect", Inspect()),
    Patch(jit, "ast", parsing_once()),
    Patch(jit, "DependenciesFinder", DependenciesFinder),
]
