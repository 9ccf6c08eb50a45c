"""The code of a library that a target runs, as a digest: a release with the same one needs no search of its own."""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from functools import cache
from pathlib import Path

from fuzz.coverage_report.protocol import SourceFunction

DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORT = (ast.Import, ast.ImportFrom)


def digest(functions: Iterable[SourceFunction], release: Path) -> str:
    """The digest of the release's functions among these, without comments and docstrings, wherever they stand.

    A function counts with the class or function around it, and with what its module computes under a name that is used.
    """
    lines = defaultdict[Path, set[int]](set)
    for function in functions:
        if Path(function.file).is_relative_to(release):
            lines[Path(function.file)].add(function.line)
    bodies = [parse(file).body for file in lines]
    chosen = {node for file, wanted in lines.items() for node in definitions(parse(file).body, wanted)}
    names, before = set[str](), -1
    while len(chosen) > before:
        before = len(chosen)
        names |= {name for node in chosen for name in used(node)}
        names |= {one.name for body in bodies for one in aliases(body) if one.asname in names}
        chosen |= {node for body in bodies for node in body if is_computed(node) and is_wanted(node, names)}
    return hashlib.sha256("\n".join(sorted({ast.dump(node) for node in chosen})).encode()).hexdigest()[:16]


def definitions(body: list[ast.stmt], lines: set[int]) -> Iterator[ast.stmt]:
    """The definitions of a module that hold one of the lines."""
    for node in body:
        if isinstance(node, DEFINITION):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if any(first <= line <= (node.end_lineno or first) for line in lines):
                yield node


def is_computed(node: ast.stmt) -> bool:
    """Whether a statement does something when its module is imported, beside imports and definitions."""
    return not isinstance(node, DEFINITION + IMPORT)


def is_wanted(node: ast.stmt, names: Container[str]) -> bool:
    """Whether a statement of a module gives one of the names a value, or none at all."""
    given = [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    given += [one.name for one in ast.walk(node) if isinstance(one, DEFINITION)]
    return not given or any(name in names for name in given)


def used(node: ast.stmt) -> Iterator[str]:
    """All names that a statement may take from elsewhere, also as attributes of modules."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def aliases(body: list[ast.stmt]) -> Iterator[ast.alias]:
    """What a module imports under another name."""
    return (one for node in body if isinstance(node, ast.ImportFrom) for one in node.names if one.asname)


@cache
def parse(file: Path) -> ast.Module:
    """The module's syntax without docstrings and other texts that do nothing."""
    tree = ast.parse(file.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)]  # type: ignore[attr-defined]
    return tree


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
