"""Reads the definitions of functions from their files."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from fuzz.coverage_report.protocol import SourceFunction

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def definition(function: SourceFunction) -> Definition | None:
    """The syntax tree of a function; None where its file has changed since."""
    return _definitions(function.file).get(function.line)


@cache
def _definitions(file: str) -> dict[int, Definition]:
    """The functions of a file by the line of their first decorator or of their `def`."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, Definition))
    return {min(part.lineno for part in (node, *node.decorator_list)): node for node in functions}


def last_line(node: ast.stmt) -> int:
    """The last line of a statement."""
    return node.end_lineno or node.lineno


def lines_of(block: list[ast.stmt]) -> range:
    """The lines of a block of statements, empty where there are none."""
    return range(block[0].lineno, last_line(block[-1]) + 1) if block else range(0)
