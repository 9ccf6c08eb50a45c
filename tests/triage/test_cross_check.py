"""Other backends are heard on accuracy findings, where they can compute the case; a lone backend is not believed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz import cli, corpus
from fuzz.backends import BACKENDS
from fuzz.model.case import Argument, Call, Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.layout import Layout
from fuzz.model.recipes import Exact, recipe
from fuzz.run.findings.known_bugs import read_known_bugs
from fuzz.run.replay import open_triage, reproduces
from fuzz.target.loader import load
from fuzz.triage.bug import Example
from fuzz.triage.cross_check import AGREES, DISAGREES, cross_check, only_on_cpu
from fuzz.worker.protocol import WorkerConfig

WRONG = Finding("accuracy", ("dx",), "sign", "dx[0] is 1.0, should be -1.0")

TWICE = """
from fuzz import size, target, tensor


@target(x=tensor(size("N", 1, 8)), reference=lambda x: dict(y=2 * x))
def twice(x):
    return dict(y=2 * x)
"""


WARNS = """
import numpy as np
from fuzz import size, target, tensor


@target(x=tensor(size("N", 1, 8)), reference=lambda x: dict(y=2 * x))
def warns(x):
    np.float32(3e38) * np.float32(10)
    raise ValueError("a reason of very" + " many words" * 40)
"""


def gelu_case(dtype: str = "float32", layout: Layout | None = None, size: int = 1) -> Case:
    four, one = Exact((0xC0800000,) * size, "float32"), Exact((0x3F800000,) * size, "float32")
    arguments = {
        "dy": Argument(("N",), dtype, one if dtype == "float32" else recipe("ones"), layout or Layout()),
        "x": Argument(("N",), dtype, four if dtype == "float32" else recipe("ones")),
    }
    return Case("gelu_bw", (Call({"N": size}, arguments, {}),))


def heard(planted: str | None, finding: Finding = WRONG) -> dict[str, str]:
    return cross_check(gelu_case(), finding, WorkerConfig("gelu_bw", planted, "cpu"), 8 << 30, 60.0)


def test_the_interpreter_agrees_that_a_planted_bug_is_one() -> None:
    assert heard("erf_saturates")["interpreter"] == AGREES


def test_a_cross_check_prints_no_warnings_and_cuts_no_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "warnoptions", [])
    path = tmp_path / "warns.py"
    path.write_text(WARNS, encoding="utf-8")
    found = Finding("accuracy", ("y",), "value", "y[0] is 3.0, should be 2.0")
    case = Case("warns", (Call({"N": 1}, {"x": Argument(("N",), "float32", recipe("ones"))}, {}),))
    told = cross_check(case, found, WorkerConfig(str(path), None, "cpu"), 8 << 30, 60.0)["interpreter"]
    assert told.startswith("cannot run it: rejected: ValueError: a reason") and told.endswith((" many ..", " words .."))
    assert "Warning" not in capfd.readouterr().err


def test_the_interpreter_does_not_see_what_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "twice.py"
    path.write_text(TWICE, encoding="utf-8")
    one = {"x": Argument(("N",), "float32", recipe("ones"))}
    found = Finding("accuracy", ("y",), "value", "y[0] is 3.0, should be 2.0")
    case = Case("twice", (Call({"N": 1}, one, {}),))
    assert cross_check(case, found, WorkerConfig(str(path), None, "cpu"), 8 << 30, 60.0)["interpreter"] == DISAGREES


def test_only_wrong_values_are_asked_about() -> None:
    assert heard(None, Finding("invariance", ("dx",), "bits", "m")) == {}


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (gelu_case("bfloat16"), "cannot compute with dy in bfloat16"),
        (gelu_case(layout=Layout(reach=30), size=3), "cannot reach as far as dy does"),
        (gelu_case(size=4096), "would take too long"),
        (gelu_case(), ""),
    ],
)
def test_the_interpreter_is_not_asked_what_it_cannot_do(case: Case, why: str) -> None:
    assert BACKENDS["interpreter"].cross_check_refusal(case) == why


def test_a_backend_that_stands_alone_is_reported_and_not_the_kernel() -> None:
    differs, agrees = {"interpreter": DISAGREES}, {"interpreter": AGREES}
    assert not any(only_on_cpu(least, {}) for least in (agrees, {}, {"cuda": DISAGREES}))
    assert only_on_cpu(differs, {}) and only_on_cpu(differs, differs)
    assert only_on_cpu(differs, {"interpreter": "float8 is not computed"}) and not only_on_cpu(differs, agrees)
    told = WRONG.as_parity
    assert (told.oracle, told.symptom, told.outputs) == ("parity", "value", ("dx",))
    assert "do not compute the same" in told.message
    # It is seen again by the oracle that saw it.
    assert told.as_accuracy == replace(WRONG, symptom="value") and WRONG.as_accuracy is WRONG


def test_what_one_backend_sees_is_known_replayed_and_shrunk_as_its_accuracy(tmp_path: Path) -> None:
    case, target = gelu_case(size=2), load("gelu_bw")
    with open_triage(Entry(case, WRONG, planted="erf_saturates"), "gelu_bw", target, "cpu") as triage:
        seen = triage.examine(case, "accuracy").primary_finding
    assert seen is not None and seen.oracle == "accuracy"
    entry = Entry(case, seen.as_parity, planted="erf_saturates")
    path = corpus.save_entry(tmp_path, entry)
    assert corpus.read(path).finding.oracle == "parity" and reproduces(entry, "gelu_bw", target, "cpu")
    (known,) = read_known_bugs(tmp_path, target, "erf_saturates")
    assert seen.subjects <= known.subjects and known.least.reported_finding.oracle == "parity"
    assert cli.exit_code(["shrink", str(path), "--seconds", "300", "--backend", "cpu"]) == 0
    (left,) = corpus.entry_files([tmp_path])
    assert left != path and corpus.read(left).finding.oracle == "parity"


def test_an_entry_holds_the_cross_checks_and_the_diagnosis() -> None:
    checks = {"interpreter": AGREES, "cuda": DISAGREES}
    example = Example(gelu_case(), WRONG, diagnosis=("dx is negated",), cross_checks=checks)
    assert example.provenance.fields()["witnesses"] == "interpreter agrees; cuda disagrees"
    assert example.provenance.fields()["diagnosis"] == "dx is negated"
