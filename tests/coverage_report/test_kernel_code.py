"""What is said of kernels: by the counters of branches, loops and masks, and by constants of compilation."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fuzz.coverage_report.assemble import make_report
from fuzz.coverage_report.collect import Collected
from fuzz.coverage_report.compiled_code import find_constant_blockers
from fuzz.coverage_report.kernel_code import count_masks, find_counted_blockers
from fuzz.coverage_report.protocol import CompiledNode, Constants, Observations, Site, SourceFunction
from fuzz.coverage_report.report import Ran
from fuzz.target.arguments import size, tensor
from fuzz.target.spec import declare

KERNEL = """
def kernel(X, B, N, HAS: tl.constexpr, MODE: tl.constexpr):
    if HAS:
        a = 1
        b = 2
    if MODE == "sum" or B is not None:
        c = 3
    else:
        d = 4
    if N > 3:
        e = 5
"""
FUNCTION = SourceFunction("k.py", 2, "kernel")


def sites(kind: str, *outcomes: str) -> set[Site]:
    return {Site("k.py", 5, "kernel", kind, outcome) for outcome in outcomes}


@pytest.mark.parametrize(
    ("kind", "outcomes", "happened", "never"),
    [
        ("mask of load", ("none", "some", "all"), ("all",), ["the mask of load is never on for some lanes only"]),
        ("mask of load", ("none", "some", "all"), ("some",), []),
        ("branch", ("taken", "not taken"), ("taken",), ["the branch is never not taken"]),
        ("branch", ("taken", "not taken"), ("taken", "not taken"), []),
        ("loop", ("0", "1", "2", "3"), ("1",), ["the loop never has 0 turns", "the loop never has 2 turns"]),
        ("loop", ("0", "1", "2", "3"), ("0", "3"), []),
        ("branch", ("taken", "not taken"), (), []),
    ],
)
def test_outcomes_that_never_occurred(
    kind: str, outcomes: tuple[str, ...], happened: tuple[str, ...], never: list[str]
) -> None:
    blockers = [*find_counted_blockers(sites(kind, *outcomes), sites(kind, *happened))]
    assert [blocker.what for blocker in blockers] == [f"kernel: {what}" for what in never]
    assert all((blocker.file, blocker.line) == ("k.py", 5) and blocker.needs for blocker in blockers)


@pytest.mark.parametrize(("low", "needs"), [(0, "an empty dim, or"), (1, "no dim is declared to be 0")])
def test_an_empty_dim_is_asked_for_only_where_the_target_declares_one(low: int, needs: str) -> None:
    target = declare(lambda x: dict(y=x), x=tensor(size("N", low, 8)), reference=lambda x: dict(y=x))
    loop = dict(counted=sites("loop", "0", "1", "2"), happened=sites("loop", "2"))
    (blocker,) = make_report(target, Collected(Observations(**loop), [])).blockers
    assert blocker.what == "kernel: the loop never has 0 turns" and needs in blocker.needs


def find(*compiled: Constants) -> dict[str, int]:
    node = ast.parse(KERNEL).body[0]
    assert isinstance(node, ast.FunctionDef)
    return {blocker.what: blocker.behind for blocker in find_constant_blockers(FUNCTION, node, compiled)}


def test_a_condition_on_constants_with_one_outcome_is_a_blocker() -> None:
    found = find((("HAS", False), ("MODE", "sum")), (("HAS", False), ("MODE", "sum"), ("B", None)))
    assert found == {
        "kernel: `HAS` is never true": 2,
        "kernel: `MODE == 'sum' or B is not None` is never false": 1,
    }


def test_a_condition_with_both_outcomes_is_none() -> None:
    assert not find((("HAS", False), ("MODE", "sum")), (("HAS", True), ("MODE", "mean"), ("B", None)))


def test_an_argument_that_is_no_constant_was_not_none() -> None:
    assert find((("HAS", True), ("MODE", "mean")), (("HAS", False), ("MODE", "mean"))) == {
        "kernel: `MODE == 'sum' or B is not None` is never false": 1
    }


def test_nothing_is_said_of_a_kernel_that_was_never_compiled() -> None:
    assert not find()


def test_a_kernel_that_is_never_launched_has_not_run(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    text = "def launched():\n    helper()\n\n\ndef helper():\n    a = 1\n\n\ndef other():\n    if a:\n        b = 2\n"
    path.write_text(text)
    lines = {name: line for line, part in enumerate(text.splitlines(), 1) for name in (part[4:-3],)}
    functions = {name: SourceFunction(str(path), lines[name], name) for name in ("launched", "helper", "other")}
    observed = Observations(
        kernels={*functions.values()}, constants={functions["launched"]: {()}},
        compiled={functions["launched"]: {CompiledNode(2, 4)}, functions["helper"]: {CompiledNode(6, 4)}},
    )  # fmt: skip
    target = declare(lambda x: dict(y=x), x=tensor(size("N", 1, 8)), reference=lambda x: dict(y=x))
    report = make_report(target, Collected(observed, []))
    (blocker,) = report.blockers
    assert (blocker.kind, blocker.what, blocker.behind) == ("function", "other is never launched", 2)
    assert report.lines == Ran(2, 4)


def test_the_compiled_branches_decide_where_values_do_not() -> None:
    node = ast.parse(KERNEL).body[0]
    assert isinstance(node, ast.FunctionDef)
    first, last = CompiledNode(3, 4), CompiledNode(10, 4)
    compiled = {first, CompiledNode(6, 4), last, *(CompiledNode(line, 8) for line in (7, 11))}

    def find(*outcomes: CompiledNode) -> dict[str, int]:
        found = find_constant_blockers(FUNCTION, node, [(("HAS", True),)], compiled | {*outcomes})
        return {blocker.what: blocker.behind for blocker in found if blocker.kind == "constexpr"}

    one_branch = {"kernel: `HAS` is never true": 2}
    assert find(first._replace(outcome=False)) == one_branch
    assert not find(first._replace(outcome=False), first._replace(outcome=True))
    # An integer that is 1 is a constant of compilation, and none in other specialisations.
    once = first._replace(outcome=False), last._replace(outcome=True)
    assert find(*once) == {**one_branch, "kernel: `N > 3` is never false": 0}
    assert find(*once, last._replace(outcome=False)) == one_branch


def test_what_was_compiled_of_another_text_says_nothing() -> None:
    node = ast.parse(KERNEL).body[0]
    assert isinstance(node, ast.FunctionDef)
    assert not [*find_constant_blockers(FUNCTION, node, (), {CompiledNode(30, 4), CompiledNode(30, 4, True)})]


def test_masks_count_as_run_where_some_lanes_only_were_on_once() -> None:
    def sites(line: int, *outcomes: str) -> set[Site]:
        return {Site("k.py", line, "kernel", "mask of load", outcome) for outcome in outcomes}

    every = ("none", "some", "all")
    counted = sites(1, *every) | sites(2, *every) | sites(3, *every) | {Site("k.py", 1, "kernel", "branch", "taken")}
    assert count_masks(counted, sites(1, "some") | sites(2, "all")) == Ran(1, 2)
