"""Programs with Triton kernels, judged by what they do to memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge import script
from fuzz.judge.result.judgement import RIGHT, UNSUPPORTED, WRONG, Judgement
from fuzz.judge.script import judge_file
from tests.judge.problems import write

PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_one(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, MASK) + 1, MASK)


def compute(x):
    out = torch.empty_like(x)
    add_one[(triton.cdiv(len(x), 16),)](x, out, len(x), BLOCK=16)
    return out


result = compute(torch.INPUT(20, device="cuda"))
"""


def judged(folder: Path, mask: str, given: str = "ones") -> Judgement:
    return judge_file(write(folder, "program", PROGRAM.replace("MASK", mask).replace("INPUT", given)))


def test_a_program_whose_accesses_are_inside_is_right(tmp_path: Path) -> None:
    found = judged(tmp_path, "at < count")
    assert (found.verdict, found.launches, found.evidence) == (RIGHT, 1, []), found.reason


def test_accesses_outside_are_wrong_and_named(tmp_path: Path) -> None:
    found = judged(tmp_path, "at < count + 3")
    assert (found.verdict, found.severity) == (WRONG, "high")
    assert "add_one" in found.reason and "program.py" in found.reason


@pytest.mark.parametrize(("used", "verdict"), [("result", WRONG), ("", RIGHT)])
def test_unwritten_memory_counts_where_the_result_depends_on_it(tmp_path: Path, used: str, verdict: str) -> None:
    source = PROGRAM.replace("MASK", "at < count").replace("INPUT", "empty")
    if not used:
        source = source.replace("\nresult = compute", "\n_ = compute")
    found = judge_file(write(tmp_path, "program", source))
    assert (found.verdict, [one.symptom for one in found.evidence]) == (verdict, ["unwritten-read"])


def test_a_program_that_allocates_as_compiled_code_does_is_run(tmp_path: Path) -> None:
    allocate = "from torch._C._dynamo.guards import _empty_strided_cuda\n"
    source = allocate + PROGRAM.replace("torch.empty_like(x)", "_empty_strided_cuda((20,), (1,), torch.float32)")
    found = judge_file(write(tmp_path, "program", source.replace("MASK", "at < count").replace("INPUT", "ones")))
    assert found.verdict == RIGHT, found.reason


def test_a_program_without_launches_is_unsupported(tmp_path: Path) -> None:
    assert judge_file(write(tmp_path, "program", "x = 1\n")).verdict == UNSUPPORTED
    found = judge_file(write(tmp_path, "other", "import no_such_module\n"))
    assert found.verdict == UNSUPPORTED and "no_such_module" in found.reason


RACE = """
import torch
import triton
import triton.language as tl


@triton.jit
def scatter(index, values, out):
    at = tl.program_id(0)
    BODY


out, index = torch.zeros(4), torch.tensor([INDEX])
scatter[(4,)](index, torch.arange(4.0), out)
"""
ADD = "tl.store(out + tl.load(index + at), tl.load(out + tl.load(index + at)) + tl.load(values + at))"
SHARE = "tl.store(out + at // 2, tl.load(values + at))"
KEEP = "tl.store(out + tl.load(index + at), tl.load(values + at))"


@pytest.mark.parametrize(
    ("body", "index", "verdict"),
    [
        (SHARE, "0", WRONG),
        (KEEP, "0, 1, 1, 3", RIGHT),
        (KEEP, "0, 1, 2, 3", RIGHT),
        (SHARE.replace("tl.load(values + at)", "2.0"), "0", RIGHT),
        ("tl.atomic_add(out + tl.load(index + at), tl.load(values + at))", "0, 1, 1, 3", RIGHT),
        ("tl.atomic_xchg(out + at, 0.0)\n    " + SHARE, "0", RIGHT),
        (SHARE + "  # TODO use tl.atomic_xchg", "0", WRONG),
    ],
)
def test_races_count_where_the_order_of_programs_changes_the_result(
    tmp_path: Path, body: str, index: str, verdict: str
) -> None:
    found = judge_file(write(tmp_path, "program", RACE.replace("BODY", body).replace("INDEX", index)))
    assert found.verdict == verdict, found.reason
    if verdict == WRONG:
        assert [one.severity for one in found.evidence] == ["medium"] and "scatter" in found.reason
    elif body == KEEP and index == "0, 1, 1, 3":
        assert [one.severity for one in found.evidence] == ["low"]


def test_a_load_of_what_another_program_stores_is_a_race(tmp_path: Path) -> None:
    found = judge_file(write(tmp_path, "program", RACE.replace("BODY", ADD).replace("INDEX", "0, 1, 1, 3")))
    assert found.verdict == WRONG and "an update may be lost" in found.evidence[0].details
    shifted = "tl.store(out + at, tl.load(out + (at + 1) % 4) + tl.load(values + at))"
    found = judge_file(write(tmp_path, "other", RACE.replace("BODY", shifted).replace("INDEX", "0")))
    assert found.verdict == WRONG and found.evidence[0].symptom == "race"


WAITING = """
import torch
import triton
import triton.language as tl


@triton.jit
def pass_on(lock, out):
    at = tl.program_id(0)
    if at == 0:
        while tl.atomic_cas(lock, 1, 1) != 1:
            pass
    else:
        tl.atomic_xchg(lock, 1)
    tl.store(out + at + SHIFT, at)


pass_on[(2,)](torch.zeros(1, dtype=torch.int32), torch.zeros(2))
"""


@pytest.mark.parametrize(("shift", "verdict"), [("0", RIGHT), ("1", WRONG)])
def test_programs_that_wait_for_later_ones_run_in_the_reverse_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: str, verdict: str
) -> None:
    monkeypatch.setattr(script, "WAITING_SECONDS", 1.0)
    found = judge_file(write(tmp_path, "program", WAITING.replace("SHIFT", shift)))
    assert found.verdict == verdict, found.reason
