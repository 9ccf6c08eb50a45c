"""Finds what was never compiled of kernels: branches on constants of compilation, and what stands behind them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Set

from fuzz.coverage_report.blockers import Blocker
from fuzz.coverage_report.definitions import Definition, lines_of
from fuzz.coverage_report.kernel_code import statement_lines
from fuzz.coverage_report.protocol import CompiledNode, Constants, SourceFunction
from fuzz.coverage_report.python_code import find_line_blockers

PLAIN = (
    ast.Name, ast.Constant, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.expr_context, ast.operator,
    ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip
"""The syntax of conditions that are evaluated: no calls and no attributes."""
NOT_NONE = object()


def find_constant_blockers(
    function: SourceFunction,
    node: Definition,
    constants: Iterable[Constants],
    compiled: Set[CompiledNode] = frozenset(),
) -> Iterator[Blocker]:
    """Branches on constants of compilation, and loops over them, that were in nothing that was compiled of a kernel or
    of a function that kernels inline; then what was not compiled for another reason.

    Conditions that no compilation came to are evaluated with the `constants` of each.
    """
    code = CompiledCode(node, constants, compiled)
    explained: set[int] = set()
    for block in blocks(node):
        for place, statement in enumerate(block):
            if never := code.find_never(statement, block[place + 1 :]):
                what, outcome, behind = never
                explained |= behind
                what = f"{function.name}: {what} is never {outcome}"
                needs = f"a case in which it is {outcome}"
                yield Blocker("constexpr", function.file, statement.lineno, what, needs, behind)
    yield from find_line_blockers(function, code.missing_lines - explained, statement_lines(node))


class CompiledCode:
    """What was compiled of a kernel, or of a function that kernels inline, over all its specialisations."""

    def __init__(self, node: Definition, constants: Iterable[Constants], compiled: Set[CompiledNode]) -> None:
        self.node = node
        self.values = [dict(each) for each in constants]
        self.parameters = {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        # Triton compiles the text that the function had when it was imported: another one has other columns.
        self.compiled = compiled if self._place(node.body[0]) in compiled else frozenset[CompiledNode]()
        self.compiled_lines = frozenset(each.line for each in self.compiled)

    @property
    def missing_lines(self) -> frozenset[int]:
        """The lines of which no statement was compiled; none where it was not observed."""
        return statement_lines(self.node) - self.compiled_lines if self.compiled else frozenset()

    def find_never(self, statement: ast.stmt, rest: list[ast.stmt]) -> tuple[str, str, frozenset[int]] | None:
        """What of a statement never was what, and the lines behind it, where `rest` follows it in its block."""
        if isinstance(statement, ast.If):
            outcomes = self._outcomes(statement)
            if len(outcomes) == 1 and None not in outcomes:
                (outcome,) = outcomes
                always, never = (statement.body, statement.orelse)[:: 1 if outcome else -1]
                # Triton goes on behind a branch that returns, and then removes what it has made.
                behind = {*lines_of(never)} - self.compiled_lines
                behind |= {*lines_of(rest)} if any(isinstance(each, ast.Return) for each in always) else set()
                return f"`{ast.unparse(statement.test)}`", str(not outcome).lower(), frozenset(behind)
        if isinstance(statement, ast.For) and self._is_compiled(statement) and not self._is_compiled(statement.body[0]):
            return f"the loop over `{ast.unparse(statement.iter)}`", "entered", frozenset(lines_of(statement.body))
        return None

    def _outcomes(self, statement: ast.If) -> set[bool | None]:
        """What a condition was in what was compiled; with None where that is not known."""
        if self._is_compiled(statement):
            place = self._place(statement)
            return {outcome for outcome in (True, False) if place._replace(outcome=outcome) in self.compiled}
        return {_evaluate(statement.test, constants, self.parameters) for constants in self.values}

    def _is_compiled(self, statement: ast.stmt) -> bool:
        return self._place(statement) in self.compiled

    def _place(self, statement: ast.stmt) -> CompiledNode:
        return CompiledNode(statement.lineno, statement.col_offset - self.node.col_offset)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements of a function, those inside of others after them."""
    for part in ast.walk(node):
        for _, value in ast.iter_fields(part):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


def _evaluate(test: ast.expr, constants: Mapping[str, object], parameters: Set[str]) -> bool | None:
    """What a condition is with these constants; None where it depends on more than them."""
    for part in ast.walk(test):
        if isinstance(part, ast.Name) and part.id not in constants:
            # A parameter that is compiled into the kernel only where it is None was something else.
            if part.id not in parameters or not _compares_with_none(test, part.id):
                return None
        elif not isinstance(part, PLAIN):
            return None
    given = dict.fromkeys(parameters, NOT_NONE) | dict(constants)
    try:
        return bool(eval(compile(ast.Expression(test), "<condition>", "eval"), {"__builtins__": {}}, given))
    except Exception:
        return None


def _compares_with_none(test: ast.expr, name: str) -> bool:
    """Whether all that a condition says of a name is whether it is None."""
    compared = [
        part.left
        for part in ast.walk(test)
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Is | ast.IsNot)
    ]
    uses = [part for part in ast.walk(test) if isinstance(part, ast.Name) and part.id == name]
    return all(use in compared for use in uses)
