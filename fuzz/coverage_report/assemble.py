"""Puts together what a target never tried from what was observed of its cases."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from fuzz.backends.base import portable_path
from fuzz.coverage_report.blockers import Blocker, add_reasons, merge
from fuzz.coverage_report.collect import Collected
from fuzz.coverage_report.compiled_code import find_constant_blockers
from fuzz.coverage_report.definitions import Definition, definition
from fuzz.coverage_report.kernel_code import (
    count_masks,
    find_counted_blockers,
    find_launch_blocker,
    find_launched,
    statement_lines,
)
from fuzz.coverage_report.parameters import find_configuration_blockers, find_parameter_blockers
from fuzz.coverage_report.protocol import Observations, SourceFunction
from fuzz.coverage_report.python_code import Measured, find_python_blockers, measure_files, measure_function
from fuzz.coverage_report.report import CoverageReport, Ran
from fuzz.search.engines.launch_options import launch_space
from fuzz.target.spec import Target

Lines = dict[str, tuple[frozenset[int], frozenset[int]]]
"""The lines of each file, and those of them that never ran."""


def make_report(target: Target, collected: Collected) -> CoverageReport:
    """The report on what a target's cases did."""
    observed = collected.observations
    functions = {each: node for each in observed.called | observed.referenced if (node := definition(each))}
    kernels = {each: node for each in observed.kernels if (node := definition(each))}
    functions = {each: node for each, node in functions.items() if each not in kernels}
    files = measure_files(observed.arcs, (function.file for function in functions))
    measured = {
        function: measure_function(node, files.get(function.file, Measured())) for function, node in functions.items()
    }
    blockers = [*_find_blockers(target, observed, functions, kernels, measured, collected)]
    lines = [(function.file, each.lines, each.missing_lines) for function, each in measured.items()]
    lines += [(kernel.file, *_kernel_lines(kernel, node, blockers)) for kernel, node in kernels.items()]
    by_file = _sum_lines(lines)
    branches = [Ran(len(each.branches - each.missing_branches), len(each.branches)) for each in measured.values()]
    in_kernels = [_count_branches(kernel, node, blockers) for kernel, node in kernels.items()]
    branches += [ran for ran, _ in in_kernels]
    portable = (replace(blocker, file=portable_path(blocker.file)) for blocker in merge(blockers))
    return CoverageReport(
        target.name, len(collected.cases), observed.rejected, collected.crashed,
        sum((Ran(len(each) - len(never), len(each)) for each, never in by_file.values()), Ran(0, 0)),
        sum(branches, Ran(0, 0)), count_masks(observed.counted, observed.happened),
        tuple(add_reasons(portable, target.unreached)),
        sum(each.unreached_branches for each in measured.values()) + sum(count for _, count in in_kernels), by_file,
    )  # fmt: skip


def _find_blockers(
    target: Target,
    observed: Observations,
    functions: Mapping[SourceFunction, Definition],
    kernels: Mapping[SourceFunction, Definition],
    measured: Mapping[SourceFunction, Measured],
    collected: Collected,
) -> Iterator[Blocker]:
    for function, node in functions.items():
        yield from find_python_blockers(function, node, measured[function])
        if function in observed.wrapped:
            yield from find_parameter_blockers(function, node, observed.values)
    launched = find_launched(observed)
    for kernel, node in kernels.items():
        if kernel not in launched:
            yield find_launch_blocker(kernel, node)
        constants, compiled = observed.constants.get(kernel, ()), observed.compiled.get(kernel, set())
        yield from find_constant_blockers(kernel, node, constants, compiled)
    has_empty_dims = any(dim.least == 0 for dim in target.sizes)
    yield from find_counted_blockers(observed.counted, observed.happened, has_empty_dims=has_empty_dims)
    yield from find_configuration_blockers(target, launch_space(target.launcher).configs, collected.cases)


def _kernel_lines(
    kernel: SourceFunction, node: Definition, blockers: list[Blocker]
) -> tuple[frozenset[int], frozenset[int]]:
    """The lines of a kernel, and those that never ran: all where it was not launched, else those behind a constant of
    compilation that had one value only, and others that were not compiled."""
    lines, inside = statement_lines(node), _inside(kernel, node, blockers)
    behind = {line for each in inside if each.kind in ("function", "constexpr", "line") for line in each.lines}
    return lines, lines & behind


def _count_branches(kernel: SourceFunction, node: Definition, blockers: list[Blocker]) -> tuple[Ran, int]:
    """Branches of a launched kernel count as run but for those that a blocker names, and for those in lines that never
    ran: how many these are."""
    inside = _inside(kernel, node, blockers)
    if any(each.kind == "function" for each in inside):
        return Ran(0, 0), 0
    _, missing = _kernel_lines(kernel, node, blockers)
    conditions = [part.lineno for part in ast.walk(node) if isinstance(part, ast.If | ast.While | ast.For)]
    unreached = 2 * sum(line in missing for line in conditions)
    never = sum(each.kind in ("constexpr", "branch", "loop") for each in inside if each.line not in missing)
    return Ran(max(2 * len(conditions) - unreached - never, 0), 2 * len(conditions)), unreached


def _inside(kernel: SourceFunction, node: Definition, blockers: list[Blocker]) -> list[Blocker]:
    """The blockers that stand in a kernel."""
    lines = {node.lineno, *statement_lines(node)}
    return [each for each in blockers if each.file == kernel.file and each.line in lines]


def _sum_lines(parts: Iterable[tuple[str, frozenset[int], frozenset[int]]]) -> Lines:
    """For each file, under its portable name, the lines of its parts and those that never ran."""
    found: Lines = {}
    for file, lines, missing in parts:
        name = portable_path(file)
        every, never = found.get(name, (frozenset[int](), frozenset[int]()))
        found[name] = every | lines, never | missing
    return found
