"""Finds what kernels never did: branches, loops and masks, by their counters; whether they ran at all."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set

from fuzz.coverage_report.blockers import Blocker
from fuzz.coverage_report.definitions import Definition
from fuzz.coverage_report.protocol import Observations, Site, SourceFunction
from fuzz.coverage_report.report import Ran

Place = tuple[str, int, str, str]
"""File, line, kernel and kind of a site."""
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
    """The kernels that were compiled for a launch, and the functions that were compiled into these or called by the
    compiler (`triton.constexpr_function`)."""
    return {*observed.constants, *observed.compiled, *observed.called}


def find_launch_blocker(kernel: SourceFunction, node: Definition) -> Blocker:
    """That a kernel was never launched, and is inlined in none that was."""
    what = f"{kernel.name} is never launched"
    return Blocker("function", kernel.file, node.lineno, what, "a case that launches it", statement_lines(node))


def statement_lines(node: Definition) -> frozenset[int]:
    """The lines at which the statements of a kernel begin."""
    return frozenset(part.lineno for part in ast.walk(node) if isinstance(part, ast.stmt) and part is not node)
