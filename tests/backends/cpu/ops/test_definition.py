"""What the record of an operation says is all that the backend needs to know of it."""

import re

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu
from fuzz.backends.cpu import translate as translate_module
from fuzz.backends.cpu.codegen.index import Coordinate, IndexMap, same_axes
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.ops.definition import OpDef
from fuzz.backends.cpu.ops.table import OPERATIONS
from fuzz.backends.cpu.runtime import triton_backend
from fuzz.backends.cpu.translate import Program, translate


def flipped(op: Op) -> IndexMap:
    *others, last = op.result.type.shape
    return (*same_axes(len(others)), Coordinate(len(others), step=-1, start=last - 1))


@triton.jit
def reads_flipped(x, out, n, B: tl.constexpr):
    """`i ^ ..` stands for an operation that does not exist: it reverses i."""
    i = tl.arange(0, B)
    offset = i ^ (i * 3 + n)
    mask = (i ^ (i * 5 + n)) < n
    tl.store(out + i, tl.load(x + offset, mask=mask, other=-1.0))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """The translations of kernels whose `^` is the invented operation `tt.flip_last`."""
    translated: list[Program] = []
    definition = OpDef("tt.flip_last", [1], index_map=flipped)
    monkeypatch.setattr(translate_module, "OPERATIONS", OPERATIONS | {definition.name: definition})

    def translate_invented(text: str, instruments: tuple[str, ...]) -> Program:
        text = re.sub(r"arith\.xori (%\w+), %\w+ : (tensor<\S+>)", r"tt.flip_last \1 : \2", text)
        translated.append(translate(text, instruments))
        return translated[-1]

    monkeypatch.setattr(triton_backend, "translate", translate_invented)
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    return translated


def test_an_operation_that_moves_elements_is_its_index_map(programs: list[Program]) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    with cpu.observe(overflow=True) as log:
        reads_flipped[(1,)](x, out, 6, B=8)
    assert not log.violations and out.tolist() == [-1.0] * 2 + [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    # The block is checked as a whole: the address of a lane follows from its index.
    assert "_0 + (i64)d0 * -4)" in programs[0].c


def test_a_mask_is_followed_through_the_index_map(programs: list[Program]) -> None:
    """Active lanes are in bounds although the first element of the block is not."""
    x, out = torch.arange(8.0)[:5], torch.zeros(8)
    with cpu.knobs.set(bounds="view"), cpu.observe() as log:
        reads_flipped[(1,)](x, out, 5, B=8)
    assert not log.violations and out.tolist() == [-1.0] * 3 + [4.0, 3.0, 2.0, 1.0, 0.0]
    with cpu.knobs.set(bounds="view"), cpu.observe() as log:
        reads_flipped[(1,)](x, out, 6, B=8)
    assert [(violation.offset, violation.lane) for violation in log.violations] == [(5, (2,))]
