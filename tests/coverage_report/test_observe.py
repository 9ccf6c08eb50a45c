"""What a worker observes of plain Python launchers: the functions below them, what they refer to, and their values."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fuzz.coverage_report.assemble import make_report
from fuzz.coverage_report.blockers import Blocker, add_reasons, merge
from fuzz.coverage_report.collect import Collected
from fuzz.coverage_report.observe import Observer, make_handler
from fuzz.coverage_report.protocol import Observations, SourceFunction, TensorKind
from fuzz.coverage_report.python_code import find_python_blockers, measure_files, measure_function
from fuzz.coverage_report.report import CoverageReport, Ran, format_report
from fuzz.model.outcome import Rejected, Returned
from fuzz.search.engines.random import RandomEngine
from fuzz.target.arguments import size, tensor
from fuzz.target.loader import load
from fuzz.target.spec import declare
from fuzz.worker.protocol import WorkerConfig

LIBRARY = """
from functools import wraps


def keep(function):
    @wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper


@keep
def scale(x, factor: float = 2.0, bias=None, exact=False):
    if bias is not None:
        x = x + bias
        x = x.clone()
    if x.numel() > 4:
        return slow(x, factor)
    return x * factor


def slow(x, factor):
    return x * factor


def never(x):
    y = x + 1
    return y


def choose(x, kind):
    return {"scale": scale, "never": never}[kind](x)
"""
TARGET = """
import library


def launcher(x):
    return dict(y=library.choose(x, "scale"))
"""


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A target's module, which calls a library of another folder."""
    library = tmp_path / "library" / "library.py"
    library.parent.mkdir()
    library.write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(library.parent))
    path = tmp_path / "target" / "target_module.py"
    path.parent.mkdir()
    path.write_text(TARGET)
    spec = importlib.util.spec_from_file_location("target_module", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["target_module"] = module
    spec.loader.exec_module(module)
    yield module
    for name in ("library", "target_module"):
        sys.modules.pop(name)


def observe(module: ModuleType, *inputs: torch.Tensor) -> Observations:
    observer, total = Observer(Path(module.__file__ or "")), Observations()
    for x in inputs:
        observer.observe(partial(module.launcher, x))
        total.add(observer.collect([Returned(())], ()))
    return total


def report(module: ModuleType, observed: Observations, **declaration: object) -> CoverageReport:
    target = declare(module.launcher, x=tensor(size("N", 1, 8)), reference=lambda x: dict(y=2 * x), **declaration)
    return make_report(target, Collected(observed, []))


def names(functions: set) -> set[str]:
    return {function.name for function in functions}


def whats(blockers: tuple[Blocker, ...], kind: str) -> set[str]:
    return {blocker.what for blocker in blockers if blocker.kind == kind}


def test_functions_below_the_launcher_are_called_or_referenced(launcher: ModuleType) -> None:
    observed = observe(launcher, torch.ones(2))
    assert names(observed.called) == {"launcher", "choose", "keep.<locals>.wrapper", "scale"}
    assert {"slow", "never", "scale"} <= names(observed.referenced)
    assert names(observed.wrapped) == {"choose"}


def test_values_of_parameters_are_kept_once(launcher: ModuleType) -> None:
    observed = observe(launcher, torch.ones(2), torch.ones(3), torch.ones(2, 2))
    values = {name: seen for (function, name), seen in observed.values.items() if function.name == "scale"}
    assert values["x"] == {TensorKind("float32", 1, True), TensorKind("float32", 2, True)}
    assert values["factor"] == {2.0} and values["bias"] == {None} and values["exact"] == {False}


def test_what_never_ran_is_a_blocker_with_what_it_needs(launcher: ModuleType) -> None:
    blockers = report(launcher, observe(launcher, torch.ones(2))).blockers
    assert whats(blockers, "function") == {"never is never called", "slow is never called"}
    assert "scale: `bias is not None` is never true" in whats(blockers, "branch")
    (bias,) = (blocker for blocker in blockers if "bias is not None" in blocker.what)
    assert bias.behind == 2 and bias.needs == "a case in which it is true"
    assert Path(bias.file).name == "library.py" and LIBRARY.splitlines()[bias.line - 1].strip().startswith("if bias")


def test_a_function_in_one_line_has_no_branches(tmp_path: Path) -> None:
    path = tmp_path / "one_line.py"
    long = "def g(x):\n    if x:\n        if x > 1:\n            return 1\n    return x\n"
    path.write_text(f"def f(x): return x\n\n\n{long}")
    # As coverage.py observes that the file is imported, and then a call of each function.
    measured = measure_files({str(path): {(1, -1), (-1, 1), (-4, 5), (5, 8), (8, -4)}}, [str(path)])[str(path)]
    short, other = (measure_function(node, measured) for node in ast.parse(path.read_text()).body)  # type: ignore[arg-type]
    assert short.lines == {1} and not short.branches and not short.missing_branches
    assert (len(other.branches), other.missing_branches, other.unreached_branches) == (4, {(5, 6), (6, 7), (6, 8)}, 2)


def test_what_ran_in_any_case_is_no_blocker(launcher: ModuleType) -> None:
    one, both = (
        report(launcher, observe(launcher, *inputs)) for inputs in ([torch.ones(2)], [torch.ones(2), torch.ones(5)])
    )
    assert "scale: `x.numel() > 4` is never true" in whats(one.blockers, "branch")
    assert not any("x.numel()" in blocker.what or "slow" in blocker.what for blocker in both.blockers)
    assert both.lines.run > one.lines.run and both.lines.all == one.lines.all


def test_parameters_of_what_the_target_calls_are_looked_at(launcher: ModuleType) -> None:
    blockers = report(launcher, observe(launcher, torch.ones(2))).blockers
    assert whats(blockers, "dtype") == {"choose: x is never bfloat16", "choose: x is never float16"}
    assert whats(blockers, "rank") == {"choose: x always has rank 1"}
    assert whats(blockers, "layout") == {"choose: x is always contiguous"}


def test_a_reason_puts_a_blocker_last(launcher: ModuleType) -> None:
    reasons = {"function never is never called": "it is for others", "*bfloat16": "not supported"}
    blockers = report(launcher, observe(launcher, torch.ones(2)), unreached=reasons).blockers
    assert {blocker.what for blocker in blockers[-2:]} == {"never is never called", "choose: x is never bfloat16"}
    assert [blocker.reason for blocker in blockers if not blocker.reason] == [""] * (len(blockers) - 2)


CHECKS = """
def f(x, kind):
    if HOPPER or not x.is_cuda:
        y = 1
    if shared("ampere", x.device.index) and kind:
        y = 2
    if kind == "old":
        message = "no"
        raise ValueError(message)
    if kind == "new":
        raise RuntimeError(kind)
    return x
"""


def test_what_the_machine_decides_and_what_refuses_an_input_is_said(tmp_path: Path) -> None:
    path = tmp_path / "checks.py"
    path.write_text(CHECKS)
    function, (node,) = SourceFunction(str(path), 2, "f"), ast.parse(CHECKS).body
    assert isinstance(node, ast.FunctionDef)
    arcs = {(-1, 2), (2, -1), (-2, 3), (3, 5), (5, 7), (7, 10), (10, 12), (12, -2)}
    measured = measure_function(node, measure_files({str(path): arcs}, [str(path)])[str(path)])
    found = {blocker.line: blocker for blocker in find_python_blockers(function, node, measured)}
    assert {line for line, blocker in found.items() if blocker.needs.startswith("another machine")} == {3}
    assert {line: blocker.behind for line, blocker in found.items() if blocker.reason} == {7: 2}
    assert not any(
        blocker.needs.startswith("another machine")
        for blocker in find_python_blockers(replace(function, name="g.<locals>.f"), node, measured)
    )


def test_a_line_has_the_reason_of_any_blocker_that_it_is_behind() -> None:
    outer, inner = (
        Blocker("branch", "f.py", first, "w", "n", frozenset(range(first, 6)), reason)
        for first, reason in ((2, "why"), (4, ""))
    )
    report = CoverageReport("t", 1, 0, 0, Ran(6, 10), Ran(1, 4), Ran(3, 5), (outer, inner))
    assert (report.accounted, report.as_json()["lines"]["accounted"]) == (10, 10)
    assert replace(report, blockers=(replace(outer, reason=""), inner)).accounted == 6


def test_a_refused_case_is_counted(launcher: ModuleType) -> None:
    observer = Observer(Path(launcher.__file__ or ""))
    observer.observe(dict)
    assert observer.collect([Rejected("no")], ()).rejected == 1


def test_blockers_with_most_lines_behind_come_first() -> None:
    few, many = (Blocker("line", "f.py", line, "w", "n", frozenset(range(behind))) for line, behind in ((1, 1), (2, 9)))
    assert add_reasons([few, many], {}) == [many, few]
    assert add_reasons([few, many], {"f.py:2": "why"})[-1].reason == "why"


def test_blockers_that_are_merged_have_the_lines_of_each_once() -> None:
    first, other = (Blocker("line", "f.py", line, "w", "n", frozenset(range(line, 8))) for line in (2, 5))
    (merged,) = merge([other, first])
    assert merged == replace(first, elsewhere=(5,)) and merged.behind == 6
    text = format_report(CoverageReport("t", 1, 0, 0, Ran(1, 9), Ran(1, 4), Ran(3, 5), (merged,), unreached=2))
    assert "f.py:2, also at 5, lines behind it: 6" in text
    assert "masks partly on 3 of 5" in text
    assert "branches 1 of 4 (25.0 %; 2 of the others in lines that never ran)" in text


GRAPHS = """
import torch
from fuzz import size, target, tensor

N = size("N", 1, 8)


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.again = False
        if any(ctx.needs_input_grad):
            return x / 2
        return x * 0.5  # inference

    @staticmethod
    def backward(ctx, gradient):
        if ctx.again:
            raise RuntimeError("again")  # second
        ctx.again = True
        return gradient / 2


@target(x=tensor(N), reference=lambda x: dict(y=x / 2), differentiable=dict(y=tensor(N)))
def halves(x):
    return dict(y=Halves.apply(x))
"""


def test_each_case_runs_in_one_graph_of_the_oracle_as_well(tmp_path: Path) -> None:
    path = tmp_path / "fuzz_halves.py"
    path.write_text(GRAPHS)
    handle, engine = make_handler(WorkerConfig(str(path), None, "cpu", counters=True)), RandomEngine(load(str(path)), 0)
    ends = [{end for _, end in handle(engine.propose().plan).arcs[str(path)]} for _ in range(3)]
    marked = [number for number, line in enumerate(GRAPHS.splitlines(), 1) if "#" in line]
    assert [[line in found for line in marked] for found in ends] == [[False, False], [True, False], [False, True]]
