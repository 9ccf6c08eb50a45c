"""The C compiler's flags: long C is optimised less, and computes the same."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu
from fuzz.backends.cpu.runtime.compiler import LEVELS, build, compiler, flags

ARITHMETIC = """
float steps(float x, float y) { float s = 0; for (int i = 1; i < 40; i++) s = s * x + y / i - x * y; return s; }
"""


SIZES = [0, *(most for most, _ in LEVELS[:-1])]
"""Characters of C from which each level is taken."""


def test_long_c_is_optimised_less() -> None:
    command = tuple(compiler())
    for size, level in zip(SIZES, ("-O2", "-O1", "-Og"), strict=True):
        assert level in flags(command, size) and level in flags(command, size + 1)
        assert sum(flag.startswith("-O") for flag in flags(command, size)) == 1
    exact = [flag for flag in flags(command, 0) if flag.startswith("-f") and "vect" not in flag]
    assert all(set(exact) <= set(flags(command, size)) for size in SIZES)


@pytest.mark.parametrize("padding", SIZES)
def test_at_each_level_each_step_is_rounded_by_itself(padding: int, tmp_path: Path) -> None:
    """Contraction into a fused multiply-add would change the bits that a plain -O0 -ffp-contract=off gives."""
    text = '#define VISIBLE __attribute__((visibility("default")))\nVISIBLE' + ARITHMETIC
    (tmp_path / "plain.c").write_text(text)
    plain = [*compiler(), "-O0", "-ffp-contract=off", "-fPIC", "-shared", "-o", str(tmp_path / "plain.so")]
    subprocess.run([*plain, str(tmp_path / "plain.c")], check=True)
    (tmp_path / "made.so").write_bytes(build(text + " " * padding, "steps"))
    plainly, made = (ctypes.CDLL(str(tmp_path / f"{name}.so")).steps for name in ("plain", "made"))
    for function in (plainly, made):
        function.restype, function.argtypes = ctypes.c_float, (ctypes.c_float, ctypes.c_float)
    for x, y in ((0.9, 0.3), (-0.7, 1.1), (0.99, 1e-3)):
        assert made(x, y) == plainly(x, y)


@triton.jit
def halves(x, out):
    half = tl.reshape(tl.load(x + tl.arange(0, 4)).to(tl.float16), [2, 2, 1])
    product = tl.dot(half, tl.full([2, 1, 4], 1.5, tl.float16), out_dtype=tl.float32)
    tl.store(out + tl.arange(0, 16), tl.reshape(product, [16]))


def test_four_lanes_are_rounded_to_float16() -> None:
    """gcc 12 makes one vector of them, and takes the way to float16 and back for nothing where there is avx512fp16."""
    x, out = 2241.3 + torch.arange(4, dtype=torch.float32) / 8, torch.empty(16)
    with cpu.active():
        halves[(1,)](x, out)
    assert torch.equal(out.reshape(4, 4)[:, 0], x.half().float() * 1.5)
