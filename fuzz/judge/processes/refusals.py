"""Tells an error by which a solution refuses an input from one that only happens to it."""

from __future__ import annotations

import ast
from pathlib import Path
from traceback import walk_tb

from fuzz.backends.execute import REFUSALS

LIBRARIES = ("fuzz", "torch", "triton")


def as_refusal(error: Exception) -> Exception:
    """A ValueError in the place of an error of another class that a ``raise`` of the solution states; else the error.

    What is raised while another error is handled, or because of one, reports that error and refuses nothing.
    """
    if isinstance(error, REFUSALS) or error.__cause__ is not None or error.__context__ is not None:
        return error
    frame, line = list(walk_tb(error.__traceback__))[-1]
    if frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES:
        return error
    if not is_raise(frame.f_code.co_filename, line):
        return error
    return ValueError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)


def is_raise(file: str, line: int) -> bool:
    """Whether a line of a file belongs to a ``raise`` statement."""
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return False
    raises = (node for node in ast.walk(tree) if isinstance(node, ast.Raise))
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in raises)
