"""Describes which promise of a target was broken, and in which line of the target's file it was made."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from fuzz.target.spec import Launcher, Target

__all__ = ["describe_promise"]

LONGEST = 40
"""Characters of a keyword's value from which on it is not shown."""


def describe_promise(target: Target, keyword: str, less: str = "") -> str:
    """Which keyword of the declaration promises it and where that stands; `less` is what to write to promise less.

    A promise that the declaration does not spell is one of every target, and is said to stand at the launcher.
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
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return None
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    decorators = [part for node in functions for part in node.decorator_list]
    for calls in (decorators, [tree]):
        found = [one for call in calls for one in ast.walk(call) if isinstance(one, ast.keyword) and one.arg == keyword]
        if len(found) == 1:
            value = ast.get_source_segment(source, found[0].value) or ""
            return (value if len(value) <= LONGEST and "\n" not in value else "..."), found[0].lineno
    return None
