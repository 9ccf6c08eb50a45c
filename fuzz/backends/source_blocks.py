"""Finds where functions end in their files by their bytecode, as Triton asks for each kernel that a library decorates.

`inspect.getsourcelines` uses a tokenizer in Python, which takes half of the import of a library of 250 kernels.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from fuzz.backends.triton_host.patching import Patch, patched

HEADERS = ("def ", "async def ", "@")
OPEN = frozenset("()[]{}\"'\\")
"""What a statement may go on with in its next line."""
read_by_tokens = inspect.getsourcelines


def source_lines(function: Any) -> tuple[list[str], int]:
    """What `inspect.getsourcelines` gives: the lines of a function and the number of the first one."""
    if not isinstance(function, FunctionType) or hasattr(function, "__wrapped__"):
        return read_by_tokens(function)
    lines, row = inspect.findsource(function)
    end = block_end(lines, row, function.__code__)
    return read_by_tokens(function) if end is None else (lines[row:end], row + 1)


@contextmanager
def finding_blocks_by_bytecode() -> Iterator[None]:
    """Has everybody who asks `inspect` for source lines get them by bytecode."""
    with patched([Patch(inspect, "getsourcelines", source_lines)]):
        yield


def block_end(lines: list[str], row: int, code: CodeType) -> int | None:
    """The row after a function's last one, where it begins in `row`; None where bytecode does not show it.

    Indented lines that follow the last one with bytecode belong to it: a `pass` may have none.
    """
    indent = _indent(lines[row])
    if not lines[row].startswith(HEADERS, indent) or lines[row][:indent].strip(" "):
        return None
    end = last_line(code)
    if end == code.co_firstlineno:
        # It is one line, or its body is documentation alone.
        return None
    for after in range(end, len(lines)):
        text, is_indented = lines[after].strip(), _indent(lines[after]) > indent
        if not text or (text.startswith("#") and not is_indented):
            continue
        if not is_indented:
            return end if text[0] not in OPEN else None
        if text.startswith("#") or OPEN.intersection(text):
            return None
        end = after + 1
    return end


def last_line(code: CodeType) -> int:
    """The last line with bytecode of a function, or of one inside it."""
    inner = [last_line(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return max([code.co_firstlineno, *inner, *(end for _, end, _, _ in code.co_positions() if end)])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
