"""Puts together what a target never tried from what was observed of its cases."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fuzz.backends.base import portable_path
from fuzz.coverage_report.blockers import Blocker, explain, merge
from fuzz.coverage_report.collect import Collected
from fuzz.coverage_report.definitions import Definition, definition
from fuzz.coverage_report.kernel_code import count_masks, find_constant_blockers, find_counted_blockers
from fuzz.coverage_report.parameters import find_configuration_blockers, find_parameter_blockers
from fuzz.coverage_report.protocol import Observations, SourceFunction
from fuzz.coverage_report.python_code import Measured, find_python_blockers, measure_files, measure_function
from fuzz.coverage_report.report import CoverageReport, Ran
from fuzz.search.engines.launch_options import launch_space
from fuzz.target.spec import Target


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
    ran = [_count_python(each) for each in measured.values()]
    ran += [_count_kernel(function, node, blockers) for function, node in kernels.items()]
    lines, branches = (sum((counts[index] for counts in ran), Ran(0, 0)) for index in (0, 1))
    portable = (replace(blocker, file=portable_path(blocker.file)) for blocker in merge(blockers))
    return CoverageReport(
        target.name, len(collected.cases), observed.rejected, collected.crashed, lines, branches,
        count_masks(observed.counted, observed.happened),
        tuple(explain(portable, target.unreached)), sum(each.unreached_branches for each in measured.values()),
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
    for kernel, node in kernels.items():
        yield from find_constant_blockers(kernel, node, observed.constants.get(kernel, ()))
    has_empty_dims = any(dim.clamp(dim.low) == 0 for dim in target.sizes)
    yield from find_counted_blockers(observed.counted, observed.happened, has_empty_dims=has_empty_dims)
    yield from find_configuration_blockers(target, launch_space(target.launcher).configs, collected.cases)


def _count_python(measured: Measured) -> tuple[Ran, Ran]:
    lines, branches = len(measured.lines), len(measured.branches)
    return (
        Ran(lines - len(measured.missing_lines), lines),
        Ran(branches - len(measured.missing_branches), branches),
    )


def _count_kernel(kernel: SourceFunction, node: Definition, blockers: list[Blocker]) -> tuple[Ran, Ran]:
    """Lines of a kernel count as run but for those behind a constant of compilation that had one value only."""
    lines = {part.lineno for part in ast.walk(node) if isinstance(part, ast.stmt) and part is not node}
    inside = [each for each in blockers if each.file == kernel.file and each.line in lines]
    behind = {line for each in inside if each.kind == "constexpr" for line in each.lines}
    conditions = sum(isinstance(part, ast.If | ast.While | ast.For) for part in ast.walk(node))
    never = sum(each.kind in ("constexpr", "branch", "loop") for each in inside)
    return Ran(len(lines - behind), len(lines)), Ran(max(2 * conditions - never, 0), 2 * conditions)
