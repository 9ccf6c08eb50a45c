"""Finds what kernels never did: branches, loops and masks by their counters, constants of compilation by value."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set

from fuzz.coverage_report.blockers import Blocker
from fuzz.coverage_report.definitions import Definition, lines_of
from fuzz.coverage_report.protocol import Constants, Observations, Site, SourceFunction
from fuzz.coverage_report.report import Ran

PLAIN = (
    ast.Name, ast.Constant, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.expr_context, ast.operator,
    ast.unaryop, ast.cmpop, ast.boolop,
)  # fmt: skip
"""The syntax of conditions that are evaluated: no calls and no attributes."""
Place = tuple[str, int, str, str]
"""File, line, kernel and kind of a site."""
NOT_NONE = object()
IF_EMPTY = "an empty dim, or one that leaves a program nothing to do"
IF_NONE_EMPTY = "a program that has nothing to do, which may not exist: no dim is declared to be 0"
"""What a loop needs to have no turn, where the target declares a dim that may be 0, and where it does not."""


def find_counted_blockers(
    counted: Iterable[Site], happened: Set[Site], *, has_empty_dims: bool = True
) -> Iterator[Blocker]:
    """What the counters of kernels say was never done, for each branch, loop and mask of what ran.

    Of several branches, loops or masks at one line, what one of them did counts for all. `has_empty_dims` says whether
    the target declares a dim that may be 0.
    """
    for (file, line, kernel, kind), outcomes in sorted(_group_by_place(counted, happened).items()):
        if any(outcomes.values()):
            for what, needs in _never(kind, outcomes, has_empty_dims):
                yield Blocker(kind.partition(" of ")[0], file, line, f"{kernel}: {what}", needs)


def count_masks(counted: Iterable[Site], happened: Set[Site]) -> Ran:
    """Of the masks that kernels ran with, those of which only some lanes were on at least once."""
    places = _group_by_place(counted, happened).items()
    masks = [outcomes["some"] for (*_, kind), outcomes in places if kind.startswith("mask") and any(outcomes.values())]
    return Ran(sum(masks), len(masks))


def _group_by_place(counted: Iterable[Site], happened: Set[Site]) -> dict[Place, dict[str, bool]]:
    """Which outcomes each branch, loop or mask had: outcome -> whether it occurred, by place."""
    places: dict[Place, dict[str, bool]] = defaultdict(dict)
    for site in counted:
        outcomes = places[site.file, site.line, site.kernel, site.kind]
        outcomes[site.outcome] = outcomes.get(site.outcome, False) or site in happened
    return places


def _never(kind: str, outcomes: Mapping[str, bool], has_empty_dims: bool) -> Iterator[tuple[str, str]]:
    """(what never occurred, what would reach it) of one branch, loop or mask."""
    if kind.startswith("mask") and not outcomes["some"]:
        yield f"the {kind} is never on for some lanes only", "a dim that is no multiple of the block"
    if kind == "branch":
        for outcome in ("taken", "not taken"):
            if not outcomes[outcome]:
                yield f"the branch is never {outcome}", "values or dims that decide it the other way"
    if kind == "loop":
        if not outcomes["0"]:
            yield "the loop never has 0 turns", IF_EMPTY if has_empty_dims else IF_NONE_EMPTY
        if not any(occurred for trips, occurred in outcomes.items() if trips not in ("0", "1")):
            yield "the loop never has 2 turns", "a dim longer than the block"


def find_launched(observed: Observations) -> set[SourceFunction]:
    """The kernels that were compiled for a launch, and the functions that these inline."""
    launched, fresh = set[SourceFunction](), {*observed.constants}
    while fresh:
        launched |= fresh
        fresh = {inner for kernel in fresh for inner in observed.inlined.get(kernel, ())} - launched
    return launched


def find_launch_blocker(kernel: SourceFunction, node: Definition) -> Blocker:
    """That a kernel was never launched, and is inlined in none that was."""
    what = f"{kernel.name} is never launched"
    return Blocker("function", kernel.file, node.lineno, what, "a case that launches it", statement_lines(node))


def statement_lines(node: Definition) -> frozenset[int]:
    """The lines at which the statements of a kernel begin."""
    return frozenset(part.lineno for part in ast.walk(node) if isinstance(part, ast.stmt) and part is not node)


def find_constant_blockers(
    function: SourceFunction, node: Definition, compiled: Iterable[Constants]
) -> Iterator[Blocker]:
    """Conditions on constants of compilation that had one outcome in everything that was compiled of a kernel."""
    values = [dict(constants) for constants in compiled]
    parameters = {each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    for statement in (part for part in ast.walk(node) if isinstance(part, ast.If)):
        outcomes = {_evaluate(statement.test, constants, parameters) for constants in values}
        if len(outcomes) == 1 and None not in outcomes:
            (outcome,) = outcomes
            behind = frozenset(lines_of(statement.orelse if outcome else statement.body))
            other = str(not outcome).lower()
            what = f"{function.name}: `{ast.unparse(statement.test)}` is never {other}"
            yield Blocker("constexpr", function.file, statement.lineno, what, f"a case in which it is {other}", behind)


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
