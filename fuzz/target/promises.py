"""Describes which promise of a target was broken, and in which line of the target's file it was made."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from fuzz.target.spec import Launcher, Target

__all__ = ["describe_promise"]

LONGEST_VALUE = 40
"""Characters of a keyword's value at most; a longer one is shown as ``...``."""


def describe_promise(target: Target, keyword: str, less: str = "") -> str:
    """The keyword of a target's declaration that makes a promise, with its value, file and line.

    A keyword that the declaration does not state has its default, and the line is that of the launcher; so it is where
    the keyword stands more than once and it is unclear which one is meant. `less` is what to write to promise less.
    """
    found = _find_keyword(target.path, _function_name(target.launcher), keyword)
    if found is None:
        line = getattr(getattr(target.launcher, "__code__", None), "co_firstlineno", 1)
        text = f"promised by default ({target.path.name}:{line})"
    else:
        value, line = found
        text = f"promised by {keyword}={value} ({target.path.name}:{line})"
    return f"{text}; {less} promises less" if less else text


def _function_name(launcher: Launcher) -> str:
    return str(getattr(launcher, "__name__", ""))


@lru_cache(maxsize=256)
def _find_keyword(path: Path, function: str, keyword: str) -> tuple[str, int] | None:
    """(value, line) of a keyword in a decorator of the function, or in the only call of the file that has it."""
    try:
        source = path.read_text(encoding="utf-8-sig")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return None
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    decorators = [part for node in functions for part in node.decorator_list]
    for places in (decorators, [tree]):
        nodes = (node for place in places for node in ast.walk(place))
        found = [node for node in nodes if isinstance(node, ast.keyword) and node.arg == keyword]
        if len(found) == 1:
            value = ast.get_source_segment(source, found[0].value) or ""
            return (value if len(value) <= LONGEST_VALUE and "\n" not in value else "..."), found[0].lineno
    return None
