"""Which side is wrong, from the command line down: kernel, reference, neither, or nobody can tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import fuzz

from fuzz import corpus
from fuzz.model.case import Case
from fuzz.model.finding import Finding, Verdict
from fuzz.report.entry_text import format_entry
from fuzz.report.json import finding_json
from fuzz.run.findings.finding_handler import Disagreement, FindingHandler
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.run.watcher import Watcher
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug, Example, Origin
from fuzz.triage.triage import Triage
from fuzz.worker.protocol import WorkerConfig

GELU = """
import torch
from fuzz import size, target, tensor

N = size("N", 1, 64)

def reference(x):
    return dict(y=x * 0.5 * (1 + torch.erf(x * 0.7071067811865476)))

@target(x=tensor(N), dtypes=("float32",), constants=(-8.5,), reference=reference{more})
def gelu(x):
    return dict(y=x * 0.5 * torch.special.erfc(-x * 0.7071067811865476))

gelu.planted("twice", oracle="accuracy", outputs=("y",), change=("y=x * 0.5 * torch.special", "y=x * torch.special"))
"""
SOFTMAX = """
import torch
from fuzz import size, target, tensor

M, N = size("M", 1, 8), size("N", 1, 64)

def reference(x):
    e = torch.exp(x)
    return dict(y=e / e.sum(-1, keepdim=True))

@target(x=tensor(M, N), dtypes=("float32",), reference=reference)
def softmax(x):
    return dict(y=torch.softmax(x, -1))
"""
CONVOLUTION = """
import torch
from fuzz import size, target, tensor

N = size("N", 3, 64)

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=torch.conv1d(x[None, None], x[None, None, :3])))
def convolution(x):
    return dict(y=torch.conv1d(x[None, None], x[None, None, :3]) * 1.01)
"""
INTERPOLATION = """
import torch
from fuzz import size, target, tensor

N = size("N", 3, 64)

def interpolate(x):
    return torch.nn.functional.interpolate(x[None, None, None], scale_factor=2, mode="bicubic")

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=interpolate(x)))
def interpolation(x):
    return dict(y=interpolate(x) * 1.01)
"""


def written(folder: Path, source: str) -> Path:
    path = folder / "a_target.py"
    path.write_text(source)
    return path


def run(path: Path, planted: str | None = None) -> Result:
    asked, found = RunOptions(str(path), planted, "cpu", cases=60, max_findings=1), path.parent / "found"
    return Fuzzer(asked, load(str(path)), "cpu", found, Watcher(), {}, with_cross_checks=False).run()


def test_an_unstable_reference_is_reported_as_such_by_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, GELU.format(more=""))
    asked = ("run", path, "--backend", "cpu", "--cases", 60, "--json", "--corpus", tmp_path / "found")
    done = fuzz(*asked, "--fail-on", "low")
    (finding,) = done.json["findings"]
    assert done.code == 1 and finding["severity"] == "low"
    assert fuzz(*asked).code == 0
    assert (finding["symptom"], finding["verdict"], finding["dims"]) == ("reference", "reference", {"N": 1})
    assert finding["digits"] >= 100 and finding["message"].startswith("the reference of gelu is wrong in 1 of 1")
    entry = corpus.read(Path(finding["path"]))
    assert entry.provenance.verdict == Verdict("reference", digits=finding["digits"], proof="enclosure")
    (element,) = entry.finding.elements  # type: ignore[union-attr]
    assert abs(float(element.got) / float(element.exact) - 1) < 1e-5
    assert abs(float(element.want) / float(element.exact) - 1) > 1e-2
    shown = fuzz("show", finding["path"])
    assert shown.code == 0 and "the reference is wrong, certified by interval arithmetic at" in shown.out
    assert f"is exactly {element.exact}" in shown.out
    assert fuzz("replay", finding["path"], "--backend", "cpu").code == 0


def test_a_wrong_kernel_is_wrong_beside_an_unstable_reference_too(tmp_path: Path) -> None:
    result = run(written(tmp_path, GELU.format(more="")), "twice")
    (bug,) = result.bugs
    assert (bug.least.verdict.name, bug.finding.symptom) == ("kernel", "value")
    assert bug.finding.elements[0].exact


def test_gradients_by_autograd_are_adjudicated(tmp_path: Path) -> None:
    (bug,) = run(written(tmp_path, GELU.format(more=", differentiable=dict(y=tensor(N))"))).bugs
    assert bug.least.verdict.name == "reference" and set(bug.finding.outputs) <= {"y", "dx"}


def test_a_reference_that_overflows_is_wrong_where_the_exact_value_is_finite(tmp_path: Path) -> None:
    """The oracle files a NaN that the kernel does not have; the verdict says whose fault it is."""
    (bug,) = run(written(tmp_path, SOFTMAX)).bugs
    assert (bug.least.verdict.name, bug.finding.symptom) == ("reference", "reference")
    assert "nan by the reference, 1.0 in truth" in bug.finding.message
    assert Finding("accuracy", ("y",), "nonfinite", "").subjects <= bug.subjects


def test_an_operation_without_a_rule_is_named(tmp_path: Path) -> None:
    (bug,) = run(written(tmp_path, INTERPOLATION)).bugs
    told = finding_json(bug)
    assert told["verdict"] == "unadjudicated" and told["reason"].startswith("no rule for aten.upsample_bicubic2d")
    assert told["symptom"] == "value"
    text = format_entry(corpus.read(Path(bug.path)), bug.path, "fuzz replay")
    assert "verdict unadjudicated (no rule for aten.upsample_bicubic2d" in text


def test_intervals_certify_what_has_no_rule_for_exact_numbers(tmp_path: Path) -> None:
    (bug,) = run(written(tmp_path, CONVOLUTION)).bugs
    told = finding_json(bug)
    assert (told["verdict"], told["reason"], told["proof"]) == ("kernel", "", "intervals")
    text = format_entry(corpus.read(Path(bug.path)), bug.path, "fuzz replay")
    assert "the kernel is wrong, certified by interval arithmetic in float64" in text


@pytest.fixture
def cases(gelu: Target) -> tuple[Case, Case]:
    """A least case and the one that it was shrunk from."""
    one, other = (RandomEngine(gelu, 0).case(number) for number in (3, 4))
    return one, other


def appealing(bug: Bug, least: str, first: str, monkeypatch: pytest.MonkeyPatch) -> Bug:
    """The bug after adjudication where its least case and the first one have these verdicts."""

    def appeal(self: Triage, bug: Bug, case: Case) -> Verdict:
        name = least if case.key == bug.case.key else first
        return Verdict(name, digits=100, finding=replace(bug.finding, message=name))

    monkeypatch.setattr(Triage, "request_verdict", appeal)
    triage: Any = Triage(SimpleNamespace(), SimpleNamespace(), ())  # type: ignore[arg-type]
    triage.adjudicate(bug)
    return bug


def recorded(cases: tuple[Case, Case]) -> Bug:
    least, first = cases
    finding = Finding("accuracy", ("dx",), "value", "wrong")
    return Bug(Example(least, finding), Origin(first, "value"))


@pytest.mark.parametrize("first", ["kernel", "reference", "unadjudicated"])
def test_where_shrinking_led_to_a_close_call_the_first_case_is_kept(
    first: str, cases: tuple[Case, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug = appealing(recorded(cases), "undecided", first, monkeypatch)
    assert (bug.least.verdict.name, bug.case.key, bug.finding.message) == (first, cases[1].key, first)


def test_what_is_too_close_to_call_is_no_finding(
    cases: tuple[Case, Case], gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug = appealing(recorded(cases), "undecided", "undecided", monkeypatch)
    assert bug.least.verdict.name == "undecided" and bug.case.key == cases[0].key
    told: list[str] = []
    watcher: Any = SimpleNamespace(on_unconfirmed=lambda finding, index, why: told.append(why))
    triage: Any = SimpleNamespace(
        shows_with_usual_inputs=lambda case, finding: True, shrink=lambda bug, budget: None, explain=lambda bug: None
    )
    config = WorkerConfig("gelu_bw", None, "cpu")
    handler = FindingHandler(RunOptions("gelu_bw"), gelu, config, tmp_path, {}, triage, watcher, 0.0)
    handler.add_bug(bug, Disagreement(0, 0.0, bug.case, bug.finding))
    assert (handler.unconfirmed, handler.bugs, list(tmp_path.iterdir())) == (1, [], [])
    assert "by its exact value" in told[0]


def test_a_wrong_reference_and_a_wrong_kernel_are_two_causes(cases: tuple[Case, Case]) -> None:
    bug = recorded(cases)
    assert Finding("accuracy", ("dx",), "sign", "").subjects == bug.subjects
    assert not Finding("accuracy", ("dx",), "reference", "").subjects & bug.subjects
