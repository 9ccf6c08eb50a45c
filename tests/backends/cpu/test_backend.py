"""What the compiled backend sees of a launcher's kernels, and what the bounds oracle makes of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import BACKENDS
from fuzz.backends.base import portable_path
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.oracle_specs import SYMPTOMS
from fuzz.model.outcome import Access, CallResult, Returned
from fuzz.model.recipes import recipe
from fuzz.oracles.bounds import BoundsOracle
from fuzz.oracles.execution.examination import Examination
from fuzz.target.arguments import size, tensor
from fuzz.target.spec import declare

Outputs = dict[str, torch.Tensor]


@triton.jit
def double(x, out, n, step, B: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * step + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2 + tl.program_id(0), mask=i < n)


@triton.jit(do_not_specialize=["stride"])
def last_row(x, out, row, stride, n, B: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + row * stride + i, mask=i < n), mask=i < n)


def good(x: torch.Tensor) -> Outputs:
    scratch, out = torch.empty_like(x), torch.empty_like(x)
    double[(4,)](x, scratch, 16, 4, B=4)
    double[(1,)](scratch, out, 16, 16, B=16)
    return {"y": out}


def reads_scratch_too_early(x: torch.Tensor) -> Outputs:
    scratch, out = torch.empty_like(x), torch.empty_like(x)
    double[(3,)](x, scratch, 16, 4, B=4)
    double[(1,)](scratch, out, 16, 16, B=16)
    return {"y": out}


def grows_scratch(x: torch.Tensor) -> Outputs:
    scratch, out = torch.empty(0).resize_(16), torch.empty_like(x)
    double[(4,)](x, scratch, 16, 4, B=4)
    double[(1,)](scratch, out, 16, 16, B=16)
    return {"y": out}


def reads_grown_scratch_too_early(x: torch.Tensor) -> Outputs:
    scratch, out = torch.empty(0).resize_(16), torch.empty_like(x)
    double[(3,)](x, scratch, 16, 4, B=4)
    double[(1,)](scratch, out, 16, 16, B=16)
    return {"y": out}


def stores_beyond_grown_scratch(x: torch.Tensor) -> Outputs:
    double[(4,)](x, torch.empty(0).resize_(15), 16, 4, B=4)
    return {"y": x * 2}


@triton.jit
def but_the_last(scratch, x, out, n, B: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, B)
    value = tl.where(i < n, tl.load(scratch + i), tl.load(x + i))
    tl.store(out + i, value + 0)


def drops_what_it_reads_too_early(x: torch.Tensor) -> Outputs:
    scratch, out = torch.empty_like(x), torch.empty_like(x)
    double[(3,)](x, scratch, 16, 4, B=4)
    but_the_last[(1,)](scratch, x, out, 12, B=16)
    return {"y": out}


def overlapping_programs(x: torch.Tensor) -> Outputs:
    out = torch.empty_like(x)
    double[(4,)](x, out, 16, 4, B=8)
    return {"y": out}


def int32_offset(x: torch.Tensor) -> Outputs:
    out = torch.empty_like(x)
    last_row[(1,)](x, out, 4, 2**30, 16, B=16)
    return {"y": out}


@pytest.mark.parametrize(
    ("launcher", "symptom", "argument", "line"),
    [
        (good, "", "", 0),
        (reads_scratch_too_early, "unwritten-read", "x", double.starting_line_number + 3),
        (grows_scratch, "", "", 0),
        (reads_grown_scratch_too_early, "unwritten-read", "x", double.starting_line_number + 3),
        (stores_beyond_grown_scratch, "stray-write", "out", double.starting_line_number + 3),
        (drops_what_it_reads_too_early, "", "", 0),
        (overlapping_programs, "write-conflict", "out", double.starting_line_number + 3),
        (int32_offset, "offset-overflow", "x", last_row.starting_line_number + 3),
    ],
)
def test_what_kernels_do_inside_of_their_buffers(
    launcher: Callable[[torch.Tensor], Outputs], symptom: str, argument: str, line: int
) -> None:
    n = size("N", 1, 64)
    target: Any = declare(launcher, x=tensor(n), dtypes=("float32",), reference=lambda x: dict(y=2 * x))
    case = Case("t", (Call({"N": 16}, {"x": Argument(("N",), "float32", recipe("normal", 1))}),))
    returned = run(target, launcher, case.calls, BACKENDS["cpu"])
    assert isinstance(returned, Returned)
    finding = BoundsOracle().check_case(Examination(target, launcher, case, BACKENDS["cpu"], returned))
    if not symptom:
        assert finding is None
        return
    assert finding is not None and (finding.symptom, finding.outputs) == (symptom, (argument,))
    assert finding.source_line == f"{portable_path(__file__)}:{line}"


def test_a_case_is_shown_as_what_may_be_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.oracles.bounds.result_depends_on_unwritten", lambda exam: True)
    kinds = ["load", "unwritten", "race", "store", "conflict", "overflow", "atomic"]
    shown = []
    while kinds:
        result = CallResult({}, accesses=tuple(Access(kind, kind, kind, kind) for kind in kinds))
        finding = BoundsOracle().check_case(SimpleNamespace(returned=Returned((result,))))  # type: ignore[arg-type]
        assert finding is not None and finding.symptom in SYMPTOMS["bounds"] and finding.disagreeing == len(kinds)
        shown.append(finding.source_line)
        kinds.remove(finding.source_line)
    assert shown == ["overflow", "store", "atomic", "conflict", "race", "load", "unwritten"]


def test_paths_are_those_of_any_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert portable_path("/a/.venv/lib/python3.11/site-packages/kernels/ops/rope.py") == "kernels/ops/rope.py"
    assert portable_path(str(tmp_path / "targets" / "mine.py")) == "targets/mine.py"
    assert portable_path("/elsewhere/mine.py") == "/elsewhere/mine.py"
    monkeypatch.syspath_prepend("/elsewhere/checkout/src")
    assert portable_path("/elsewhere/checkout/src/kernels/ops/rope.py") == "kernels/ops/rope.py"
    assert portable_path("/elsewhere/checkout/src/mine.py") == "/elsewhere/checkout/src/mine.py"
