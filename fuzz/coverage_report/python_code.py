"""Finds the functions, branches and lines of Python code that no case ran, by coverage.py."""

from __future__ import annotations

import ast
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from coverage import Coverage

from fuzz.backends.execute import REFUSALS
from fuzz.coverage_report.blockers import Blocker
from fuzz.coverage_report.definitions import Definition, last_line, lines_of
from fuzz.coverage_report.protocol import Arc, SourceFunction

DEVICES = ("device", "is_cuda")
"""Attributes of a tensor that say what it is on."""
OF_THE_MACHINE = "another machine, environment or mode: no argument decides it"
REFUSES = "it refuses an input, which is no case then"
"""The reason of blocks that do nothing else; `fuzz run` tries inputs beside the declaration by itself."""


@dataclass(frozen=True)
class Measured:
    """The lines and branches of a file or function that can run, and those of them that did not."""

    lines: frozenset[int] = frozenset()
    missing_lines: frozenset[int] = frozenset()
    branches: frozenset[Arc] = frozenset()
    missing_branches: frozenset[Arc] = frozenset()

    @property
    def unreached_branches(self) -> int:
        """How many branches stand in lines that never ran: what these lines need is a blocker, no branch of theirs."""
        return sum(start in self.missing_lines for start, _ in self.missing_branches)

    def inside(self, span: range) -> Measured:
        """The part of it on some lines."""
        lines, missing = (each.intersection(span) for each in (self.lines, self.missing_lines))
        branches, never = (
            frozenset(arc for arc in arcs if arc[0] in span) for arcs in (self.branches, self.missing_branches)
        )
        return Measured(lines, missing, branches, never)


def measure_files(arcs: Mapping[str, set[Arc]], files: Iterable[str]) -> dict[str, Measured]:
    """What ran of each file, of which these arcs ran."""
    chosen = sorted({*files})
    if not chosen:
        return {}
    measured = Coverage(data_file=None, branch=True, config_file=False, include=chosen)
    data = measured.get_data()
    data.add_arcs({file: arcs.get(file, set()) for file in chosen})
    data.touch_files(chosen)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "coverage.json")
        measured.json_report(outfile=str(path))
        reported = json.loads(path.read_text(encoding="utf-8"))["files"]
    return {str(Path(file).absolute()): _read(report) for file, report in reported.items()}


def _read(report: Mapping[str, Any]) -> Measured:
    executed, missing = frozenset(report["executed_lines"]), frozenset(report["missing_lines"])
    ran, never = (frozenset(map(tuple, report[key])) for key in ("executed_branches", "missing_branches"))
    return Measured(executed | missing, missing, ran | never, never)


def measure_function(node: Definition, file: Measured) -> Measured:
    """What ran of a function's body; functions that it defines are left out."""
    inner = [part for part in ast.walk(node) if isinstance(part, Definition) and part is not node]
    hidden = {line for part in inner for line in range(part.lineno, last_line(part) + 1)}
    # Where the body begins in the line of the `def`, defining the function and calling it look like two branches.
    unclear = hidden | {node.lineno}
    whole = file.inside(lines_of(node.body))
    return Measured(
        whole.lines - hidden, whole.missing_lines - hidden,
        frozenset(arc for arc in whole.branches if arc[0] not in unclear),
        frozenset(arc for arc in whole.missing_branches if arc[0] not in unclear),
    )  # fmt: skip


def find_python_blockers(function: SourceFunction, node: Definition, measured: Measured) -> Iterator[Blocker]:
    """The blockers of one function: it was never called, or branches and lines of it never ran."""
    if measured.lines and measured.lines == measured.missing_lines:
        what = f"{function.name} is never called"
        yield Blocker("function", function.file, node.lineno, what, "a case that calls it", measured.lines)
        return
    explained: set[int] = set()
    for start, end in sorted(measured.missing_branches):
        if start in measured.missing_lines:
            continue
        block = _block(node, start, end)
        behind = measured.missing_lines.intersection(lines_of(block))
        explained |= behind
        condition, outcome = _describe(node, start, end)
        what = f"{function.name}: {condition} is never {outcome}"
        needs = OF_THE_MACHINE if is_decided_by_machine(function, node, start) else f"a case in which it is {outcome}"
        yield Blocker("branch", function.file, start, what, needs, behind, REFUSES if _refuses(block) else "")
    yield from find_line_blockers(function, measured.missing_lines - explained, measured.lines)


def find_line_blockers(function: SourceFunction, missing: Set[int], lines: Set[int]) -> Iterator[Blocker]:
    """The lines of a function that never ran and that no other blocker explains, one blocker for each run of them."""
    for first, last in _runs(missing, lines):
        text = f"line {first} never runs" if first == last else f"lines {first} to {last} never run"
        behind = frozenset(missing & {*range(first, last + 1)})
        yield Blocker("line", function.file, first, f"{function.name}: {text}", "a case that reaches it", behind)


def _runs(missing: Set[int], lines: Set[int]) -> Iterator[tuple[int, int]]:
    """The first and last lines of missing ones between which no other line is."""
    for is_missing, run in groupby(sorted(lines), missing.__contains__):
        if is_missing:
            found = [*run]
            yield found[0], found[-1]


def _branching(node: Definition, line: int) -> ast.If | ast.While | ast.For | None:
    """The innermost branching statement whose condition stands at a line."""
    found = None
    for inner in ast.walk(node):
        if isinstance(inner, ast.If | ast.While | ast.For) and inner.lineno <= line < inner.body[0].lineno:
            found = inner
    return found


def _block(node: Definition, start: int, end: int) -> list[ast.stmt]:
    """The block that a branch leads into, empty where it is none of the branching statement's."""
    statement = _branching(node, start)
    blocks = (statement.body, statement.orelse) if statement else ()
    return next((block for block in blocks if end in lines_of(block)), [])


def _refuses(block: list[ast.stmt]) -> bool:
    """Whether a block only raises what counts as refusing an input, or composes a message for that before."""
    if not block or not isinstance(raised := block[-1], ast.Raise) or raised.exc is None:
        return False
    error = raised.exc.func if isinstance(raised.exc, ast.Call) else raised.exc
    is_refusal = isinstance(error, ast.Name) and error.id in {each.__name__ for each in REFUSALS}
    return is_refusal and all(isinstance(part, ast.Assign) for part in block[:-1])


def is_decided_by_machine(function: SourceFunction, node: Definition, line: int) -> bool:
    """Whether the condition at a line depends on no local variable, but for the device that one is on.

    Of functions inside functions nothing is said: the variables around them are not known.
    """
    statement = _branching(node, line)
    if statement is None or isinstance(statement, ast.For) or "<locals>" in function.name:
        return False
    local = {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
    local |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    used = [part for part in ast.walk(statement.test) if isinstance(part, ast.Name)]
    devices = (part for part in ast.walk(statement.test) if isinstance(part, ast.Attribute) and part.attr in DEVICES)
    of_devices = {inner for part in devices for inner in ast.walk(part)}
    return bool(used) and all(part.id not in local or part in of_devices for part in used)


def _describe(node: Definition, start: int, end: int) -> tuple[str, str]:
    """The condition of a branch as it is written, and what it would have to be."""
    statement = _branching(node, start)
    if statement is None:
        return f"the way from line {start} to line {abs(end)}", "taken"
    enters = end in lines_of(statement.body)
    if isinstance(statement, ast.For):
        return f"the loop over `{ast.unparse(statement.iter)}`", "entered" if enters else "left at its end"
    return f"`{ast.unparse(statement.test)}`", str(enters).lower()
