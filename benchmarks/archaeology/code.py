"""The code of a library that a target runs, as a digest: a release with the same one needs no search of its own."""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fuzz.coverage_report.protocol import SourceFunction

DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORT = (ast.Import, ast.ImportFrom)


def digest(functions: Iterable[SourceFunction], release: Path) -> str:
    """The digest of the release's functions among these, without comments and docstrings, wherever they stand.

    A function counts with the class or function around it, and with what its module computes when it is imported.
    """
    lines = defaultdict[str, set[int]](set)
    for function in functions:
        if Path(function.file).is_relative_to(release):
            lines[function.file].add(function.line)
    texts = {text for file, wanted in lines.items() for text in statements(Path(file), frozenset(wanted))}
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]


def statements(file: Path, lines: frozenset[int]) -> list[str]:
    """The statements of a module, as text: of definitions those that hold one of the lines, and no imports."""
    chosen = []
    for node in parse(file).body:
        if isinstance(node, DEFINITION):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if any(first <= line <= (node.end_lineno or first) for line in lines):
                chosen.append(ast.dump(node))
        elif not isinstance(node, IMPORT):
            chosen.append(ast.dump(node))
    return chosen


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
