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

from fuzz.coverage_report.blockers import Blocker
from fuzz.coverage_report.definitions import Definition, last_line, lines_of
from fuzz.coverage_report.protocol import Arc, SourceFunction


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
        behind = measured.missing_lines & {*_block(node, start, end)}
        explained |= behind
        condition, outcome = _describe(node, start, end)
        what = f"{function.name}: {condition} is never {outcome}"
        yield Blocker("branch", function.file, start, what, f"a case in which it is {outcome}", behind)
    for first, last in _runs(measured.missing_lines - explained, measured.lines):
        text = f"line {first} never runs" if first == last else f"lines {first} to {last} never run"
        behind = measured.missing_lines.intersection(range(first, last + 1))
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


def _block(node: Definition, start: int, end: int) -> range:
    """The lines of the block that a branch leads into."""
    statement = _branching(node, start)
    for block in (statement.body, statement.orelse) if statement else ():
        if end in lines_of(block):
            return lines_of(block)
    return range(0)


def _describe(node: Definition, start: int, end: int) -> tuple[str, str]:
    """The condition of a branch as it is written, and what it would have to be."""
    statement = _branching(node, start)
    if statement is None:
        return f"the way from line {start} to line {abs(end)}", "taken"
    enters = end in lines_of(statement.body)
    if isinstance(statement, ast.For):
        return f"the loop over `{ast.unparse(statement.iter)}`", "entered" if enters else "left at its end"
    return f"`{ast.unparse(statement.test)}`", str(enters).lower()
