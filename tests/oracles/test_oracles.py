"""Every oracle: quiet on good kernels, and alone in catching what it is there for."""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fuzz
import fuzz.oracles.examine as examination
from fuzz.backends import BACKENDS
from fuzz.backends.execute import run
from fuzz.errors import TargetError
from fuzz.model import oracle_specs
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import recipe
from fuzz.oracles import ALWAYS, ORACLES, SAMPLED, Oracle
from fuzz.oracles.examine import examine
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.script_check import SavedFinding
from fuzz.report import sarif
from fuzz.search.engines import RandomEngine
from fuzz.target.arguments import size, tensor
from fuzz.target.spec import Launcher, Target, declare
from fuzz.worker.protocol import Examine, Report

Outputs = dict[str, torch.Tensor]
M, N = size("M", 1, 64), size("N", 1, 64)
TRANSPOSED = Layout(order=(1, 0))


def made(launcher: Launcher, **more: Any) -> Target:
    """A target that must double a matrix, row by row."""
    given: dict[str, Any] = {"dtypes": ("float32",), "batch": M, "reference": lambda x: dict(y=2 * x), **more}
    return declare(launcher, x=tensor(M, N), **given)


def matrix(layout: Layout = CONTIGUOUS, split: Split | None = None, calls: int = 1, rows: int = 4) -> Case:
    x = Argument(("M", "N"), "float32", recipe("normal", 1), layout)
    return Case("double", (Call({"M": rows, "N": 8}, {"x": x}),) * calls, split)


def judged(target: Target, case: Case, launcher: Launcher | None = None, *, everything: bool = True) -> Report:
    """What all oracles say of a case."""
    backend = BACKENDS["cpu"]
    chosen = launcher or target.launcher
    outcome = run(target, chosen, case.calls, backend)
    request = Examine(case, tuple(oracle.name for oracle in SAMPLED), everything)
    return examine(Examination(target, chosen, case, backend, outcome), request)


def off(y: torch.Tensor) -> torch.Tensor:
    """One unit in the last place further: other bits, but no wrong value."""
    return torch.nextafter(y, torch.full_like(y, torch.inf))


def good(x: torch.Tensor) -> Outputs:
    if x.shape[0] > 60:
        raise ValueError("too many rows")
    return {"y": x * 2}


def raises(x: torch.Tensor) -> Outputs:
    raise RuntimeError("a launch failed")


def writes_past_the_end(x: torch.Tensor) -> Outputs:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    y.copy_(x * 2)
    ctypes.c_float.from_address(y.data_ptr() + 4 * y.numel()).value = 7.0
    return {"y": y}


def writes_its_input(x: torch.Tensor) -> Outputs:
    y = x * 2
    x[0, 0] = 5.0
    return {"y": y}


def returns_its_input(x: torch.Tensor) -> Outputs:
    return {"y": x}


def accepts_anything(x: torch.Tensor) -> Outputs:
    return {"y": x * 2}


def a_little_wrong(x: torch.Tensor) -> Outputs:
    return {"y": x * 2.001}


def wrong_sign(x: torch.Tensor) -> Outputs:
    return {"y": x * -2}


def overflows(x: torch.Tensor) -> Outputs:
    return {"y": x * 2e30 * 1e30}


@dataclass
class Alternates:
    """Every second run has other bits."""

    runs: list[None] = field(default_factory=list)

    def __call__(self, x: torch.Tensor) -> Outputs:
        self.runs.append(None)
        return {"y": off(x * 2) if len(self.runs) % 2 else x * 2}


def depends_on_its_batch(x: torch.Tensor) -> Outputs:
    return {"y": off(x * 2) if x.shape[0] == 1 else x * 2}


def depends_on_its_layout(x: torch.Tensor) -> Outputs:
    return {"y": x * 2 if x.is_contiguous() else off(x * 2)}


def favours_its_first_row(x: torch.Tensor) -> Outputs:
    y = good(x)["y"].clone()
    y[:1] = torch.nextafter(y[:1], torch.full_like(y[:1], torch.inf))
    return {"y": y}


def keeps_its_output() -> Launcher:
    """Returns the same memory each time."""
    kept: dict[torch.Size, torch.Tensor] = {}

    def launcher(x: torch.Tensor) -> Outputs:
        y = kept.setdefault(x.shape, torch.empty(x.shape))
        return {"y": y.copy_(x * 2)}

    return launcher


class ScalesWhatItSaved(torch.autograd.Function):
    """2 * x, whose backward doubles what it saved, once more each time."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.factor = torch.full_like(x, 2)
        return x * 2

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        dx = dy * ctx.factor
        ctx.factor.mul_(2)
        return dx


def has_another_second_gradient(x: torch.Tensor) -> Outputs:
    return {"y": ScalesWhatItSaved.apply(x)}


def alternates() -> Launcher:
    runs = Alternates()

    def launcher(x: torch.Tensor) -> Outputs:
        return runs(x)

    return launcher


@dataclass(frozen=True)
class Bug:
    """A mistake, the one oracle that sees it, the symptom, and a case that shows it."""

    oracle: str
    symptom: str
    launcher: Callable[[], Launcher]
    case: Case = matrix()
    more: tuple[tuple[str, Any], ...] = ()


REJECTS = (("rejects", {"odd": lambda x: dict(x=x[:, :-1])}),)
NAMESAKE = (("reference", lambda x: dict(y=x)),)
DIFFERENTIABLE = (("differentiable", {"y": tensor(M, N)}),)
WITH_COTANGENT = replace(
    matrix(), calls=(replace(matrix().last, cotangents={"y": Argument(("M", "N"), "float32", recipe("normal", 2))}),)
)
OTHER_VALUES = matrix().last.with_argument("x", Argument(("M", "N"), "float32", recipe("normal", 2)))
TWO_CALLS = replace(matrix(), calls=(*matrix().calls, OTHER_VALUES))
BUGS = [
    Bug("fault", "raised", lambda: raises),
    Bug("bounds", "stray-write", lambda: writes_past_the_end),
    Bug("mutation", "written", lambda: writes_its_input),
    Bug("mutation", "aliased", lambda: returns_its_input, more=NAMESAKE),
    Bug("mutation", "overwritten", keeps_its_output, TWO_CALLS),
    Bug("rejects", "accepted", lambda: accepts_anything, more=REJECTS),
    Bug("accuracy", "value", lambda: a_little_wrong),
    Bug("accuracy", "sign", lambda: wrong_sign),
    Bug("accuracy", "nonfinite", lambda: overflows),
    Bug("autograd", "twice", lambda: has_another_second_gradient, WITH_COTANGENT, DIFFERENTIABLE),
    Bug("deterministic", "bits", alternates),
    Bug("invariance", "bits", lambda: depends_on_its_batch, matrix(split=Split(2, 1))),
    Bug("layout", "bits", lambda: depends_on_its_layout, matrix(TRANSPOSED), (("layout", "bitwise"),)),
    Bug("scaling", "permutation", lambda: favours_its_first_row),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.oracle}-{bug.symptom}")
def test_a_mistake_is_caught_by_its_oracle_alone(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    report = judged(made(bug.launcher(), **dict(bug.more)), bug.case)
    assert [(finding.oracle, finding.symptom) for finding in report.findings] == [(bug.oracle, bug.symptom)]
    # What differs from run to run also differs between any two runs that are compared.
    removed = {"deterministic", "scaling"} if bug.oracle == "deterministic" else {bug.oracle}
    for group in ("ALWAYS", "SAMPLED"):
        kept = tuple(oracle for oracle in getattr(examination, group) if oracle.name not in removed)
        monkeypatch.setattr(examination, group, kept)
    if bug.oracle != "fault":
        assert judged(made(bug.launcher(), **dict(bug.more)), bug.case).findings == ()


def test_every_oracle_has_a_mistake_that_only_it_sees() -> None:
    # Parity needs a kernel or a second backend: tests/oracles/test_parity.py and tests/triage/test_cross_check.py.
    assert {bug.oracle for bug in BUGS} == {oracle.name for oracle in ORACLES} - {oracle_specs.PARITY.name}


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_every_oracle_is_described_titled_and_examines_its_share_of_cases(oracle: Oracle) -> None:
    assert oracle.spec in oracle_specs.ORACLES and oracle.spec.symptoms
    assert type(oracle).__module__ == f"fuzz.oracles.{oracle.name}"
    assert sarif.rule(oracle.name)["shortDescription"]["text"] == oracle.spec.title != ""
    for replicas in (1, 8):
        asked = [oracle.name in oracle_specs.sample_oracles(index, replicas) for index in range(4800)]
        share = oracle.spec.share[replicas > 1] if oracle.spec.share else 0
        assert sum(asked) == (4800 // share if share else 0)


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_every_symptom_of_an_oracle_is_shown_by_a_script_of_its_own(oracle: Oracle) -> None:
    x = lambda x: {"x": x[:, :-1]}  # noqa: E731
    target = made(good, rejects={"y": x}, baseline=good, contract="bitwise", reference=None)
    case = replace(WITH_COTANGENT, split=Split(1, 1))
    for symptom in oracle.spec.symptoms:
        finding = Finding(oracle.name, ("y",), symptom, "m", change=("x", 2.0))
        check = oracle.script_check(SavedFinding(Entry(case, finding), finding, target))
        defined = {node.name for node in ast.parse(check.text).body if isinstance(node, ast.FunctionDef)}
        assert "check" in defined


def test_the_oracles_that_examine_every_case_come_first() -> None:
    assert [oracle.name for oracle in ORACLES] == list(oracle_specs.ORACLE_NAMES)
    assert {*ALWAYS, *SAMPLED} == set(ORACLES) and all(oracle.spec.share for oracle in SAMPLED)


OTHER_MEANINGS = {
    ("fuzz/backends/cpu/", "bounds"),
    ("fuzz/backends/triton_host/knobs.py", "bounds"),
    ("fuzz/corpus/codec/", "layout"),
    ("fuzz/coverage_report/", "layout"),
    ("fuzz/judge/", "layout"),
    ("fuzz/model/grade.py", "layout"),
    ("fuzz/triage/", "layout"),
    ("fuzz/reference/", "layout"),
    ("fuzz/target/", "invariance"),
    ("fuzz/target/", "layout"),
    ("fuzz/target/keywords.py", "deterministic"),
    ("fuzz/target/keywords.py", "rejects"),
}
"""(folder, word) where the name of an oracle means an instrument, a layout, a class of inputs, or a promise."""


def test_no_oracle_is_named_in_a_literal_but_where_it_is_described() -> None:
    root = Path(fuzz.__file__).parent
    for path in root.rglob("*.py"):
        name = path.relative_to(root.parent).as_posix()
        words = {part.value for part in ast.walk(ast.parse(path.read_text())) if isinstance(part, ast.Constant)}
        found = words & set(oracle_specs.ORACLE_NAMES)
        allowed = {word for folder, word in OTHER_MEANINGS if name.startswith(folder)}
        assert name == "fuzz/model/oracle_specs.py" or found <= allowed, name


CASES = [
    matrix(),
    matrix(TRANSPOSED, Split(0, 2, 3, 1)),
    matrix(calls=2),
    matrix(rows=1),
    matrix(Layout(expand=(0,)), Split(1, 1)),
    matrix(Layout(pad=3, offset=1), Split(0, 4)),
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_no_oracle_disagrees_with_a_good_kernel(case: Case) -> None:
    target = made(good, rejects={"many": lambda x: dict(x=x.repeat(80, 1)[:61])})
    report = judged(target, case)
    assert report.findings == () and report.outcome == "returned"
    applying = {oracle.name for oracle in ORACLES if oracle.applies(target, case)}
    assert set(report.examined) == applying >= {"fault", "bounds", "mutation", "accuracy"}


def test_no_oracle_disagrees_with_the_built_in_kernels(built_in: Target) -> None:
    engine = RandomEngine(built_in, 5)
    small = [case for case in map(engine.case, range(60)) if case.elements() < 2000][:10]
    for case in small:
        assert judged(built_in, case).findings == ()


def test_an_oracle_that_does_not_apply_is_not_asked() -> None:
    asked = judged(made(good), matrix(calls=2)).examined
    assert set(asked) == {"fault", "bounds", "mutation", "accuracy"}
    unsure = made(good, deterministic="atomics")
    assert "deterministic" not in judged(unsure, matrix()).examined
    unknown = made(good, reference=None, batch=None)
    assert set(judged(unknown, matrix(split=Split(0, 1))).examined) == {"fault", "bounds", "mutation", "deterministic"}


def test_findings_are_filed_in_the_order_of_oracles() -> None:
    def everything_wrong(x: torch.Tensor) -> Outputs:
        x[0, 0] = 5.0
        outputs = writes_past_the_end(x)
        return {"y": outputs["y"].mul_(-1)}

    report = judged(made(everything_wrong), matrix())
    assert [finding.oracle for finding in report.findings][:3] == ["bounds", "mutation", "accuracy"]
    assert report.primary_finding and report.primary_finding.oracle == "bounds"


def test_the_first_call_that_shows_a_bug_is_named() -> None:
    runs: list[None] = []

    def wrong_later(x: torch.Tensor) -> Outputs:
        runs.append(None)
        return {"y": x * (2 if len(runs) < 3 else -2)}

    report = judged(made(wrong_later), matrix(calls=3))
    assert report.primary_finding and (report.primary_finding.oracle, report.primary_finding.call) == ("accuracy", 2)


def test_what_a_later_call_writes_over_is_named_with_both_calls() -> None:
    found = judged(made(keeps_its_output()), TWO_CALLS).primary_finding
    assert found and (found.outputs, found.call, found.disagreeing) == (("y",), 1, 32)
    assert found.message == "y: elements of what call 1 returned that call 2 writes over: 32"
    assert found.elements[0].index == (0, 0) and found.elements[0].want.endswith(" as it was returned")


def test_what_belongs_to_the_caller_or_stays_as_it_was_is_not_overwritten() -> None:
    table = torch.arange(8.0)

    def doubles_in_place(x: torch.Tensor) -> Outputs:
        return {"y": x.mul_(2), "table": table, "part": (x * 2)[:, ::2]}

    reference = lambda x: dict(y=2 * x, table=torch.arange(8.0).double(), part=4 * x[:, ::2])  # noqa: E731
    target = made(doubles_in_place, in_place=("x",), batch=None, reference=reference)
    assert judged(target, TWO_CALLS).findings == ()


def test_an_accuracy_finding_holds_the_evidence() -> None:
    found = judged(made(wrong_sign), matrix()).primary_finding
    assert found and (found.outputs, found.symptom, found.disagreeing, found.compared) == (("y",), "sign", 32, 32)
    first = found.elements[0]
    assert first.output == "y" and float(first.got) == pytest.approx(-float(first.want)) != 0
    assert first.got_word.startswith("0x") and float(first.ulps) > 1e6 and float(first.bound) < 1e-5


def test_an_output_that_is_right_is_not_counted() -> None:
    def one_is_wrong(x: torch.Tensor) -> Outputs:
        return {"y": x * -2, "h": x * 1}

    def reference(x: torch.Tensor) -> Outputs:
        return {"y": x * 2, "h": x}

    promises: tuple[dict[str, Any], ...] = (
        dict(reference=reference),
        dict(contract="bitwise", baseline=reference, reference=None),
    )
    for promise in promises:
        found = judged(made(one_is_wrong, batch=None, **promise), matrix()).primary_finding
        assert found and (found.outputs, found.disagreeing, found.compared) == (("y",), 32, 32)
        assert found.message.startswith("y: 32 of 32 elements")


def test_what_a_targets_reference_returns_must_fit_its_launcher() -> None:
    for reference in (lambda x: dict(z=x), lambda x: dict(y=x[:1]), lambda x: 1 / 0):
        with pytest.raises(TargetError):
            judged(made(good, reference=reference), matrix())


def test_neighbours_do_not_matter_where_rows_are_promised_one_by_one() -> None:
    def sums(x: torch.Tensor) -> Outputs:
        return {"y": x * 2, "total": x.sum(0)}

    target = made(sums, batch=None, rows={"y": M}, reference=lambda x: dict(y=2 * x, total=x.sum(0)))
    assert judged(target, matrix(split=Split(1, 2, 3, 4))).findings == ()
