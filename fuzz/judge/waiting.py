"""Finds out whether programs of a launch may wait for each other, by the source of a solution or a program."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

WAITING = ("atomic_cas", "atomic_xchg")
"""By these programs wait for each other, so that accesses which look like a race may be ordered."""
IN_TEXT = re.compile(rf"\b({'|'.join(WAITING)})\b")


def waits(path: Path) -> bool:
    """Whether the programs of a launch may wait for each other: by what code in the file, or a source in it, uses."""
    return any(map(uses_waiting, read_sources(path)))


def read_sources(path: Path) -> list[str]:
    """The code of a file: its text, or the sources that it holds in JSON."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix != ".json":
        return [text]
    try:
        return [source["content"] for source in json.loads(text)["sources"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        return [text]


def uses_waiting(source: str) -> bool:
    """Whether code names one of WAITING; comments and texts in it do not count unless it cannot be parsed."""
    tree = parse_code(source)
    if tree is None:
        return IN_TEXT.search(source) is not None
    return any(name in WAITING for node in ast.walk(tree) for name in used_names(node))


def parse_code(source: str) -> ast.Module | None:
    """The tree of code; None of what cannot be parsed."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def used_names(node: ast.AST) -> Iterator[str]:
    """The names that a node of code uses, also under another one by an import."""
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.alias):
        yield node.name
