"""Programs with Triton kernels, judged by what they do to memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge.judgement import RIGHT, UNSUPPORTED, WRONG, Judgement
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


def test_a_program_without_launches_is_unsupported(tmp_path: Path) -> None:
    assert judge_file(write(tmp_path, "program", "x = 1\n")).verdict == UNSUPPORTED
    found = judge_file(write(tmp_path, "other", "import no_such_module\n"))
    assert found.verdict == UNSUPPORTED and "no_such_module" in found.reason
