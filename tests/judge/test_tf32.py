"""Products of float32 may be in tf32 where a solution asks for that, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.processes.isolated_worker import IN_TF32
from fuzz.judge.processes.tf32 import Tf32Record, may_multiply_in_tf32
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import RIGHT, WRONG, Judgement
from tests.judge.problems import write

PRODUCT = """
import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


M = 16
K = 32
N = 16


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
"""
SOLUTION = """
import torch
import triton
import triton.language as tl


@triton.jit
def multiply(a, b, out, M, K, N, BLOCK: tl.constexpr):
    rows, columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * K + k, mask=(rows[:, None] < M) & (k < K), other=0.0)
        right = tl.load(b + k[:, None] * N + columns, mask=(k[:, None] < K) & (columns < N), other=0.0)
        total += PRODUCT
    tl.store(out + rows[:, None] * N + columns, total, mask=(rows[:, None] < M) & (columns < N))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        out = torch.empty(M, N, dtype=a.dtype, device=a.device)
        grid = triton.cdiv(M, 16), triton.cdiv(N, 16)
        multiply[grid](a.contiguous(), b.contiguous(), out, M, K, N, BLOCK=16)
        return out
"""
DOT = "  %7 = tt.dot %4, %5, %6{} : tensor<16x16x{}> * tensor<16x16x{}> -> tensor<16x16xf32>\n"


def judged(folder: Path, product: str) -> Judgement:
    files = write(folder, "problem", PRODUCT), write(folder, "solution", SOLUTION.replace("PRODUCT", product))
    return judge(JudgeOptions(*files, backend="cpu", seconds=0.0))


def test_a_product_as_triton_computes_it_by_default_is_right(tmp_path: Path) -> None:
    found = judged(tmp_path, "tl.dot(left, right)")
    assert found.verdict == RIGHT and IN_TF32 in found.notes


@pytest.mark.parametrize(
    "product",
    [
        "tl.dot(left.to(tl.float16), right.to(tl.float16))",  # as many bits as tf32, in another range
        "tl.dot(left.to(tl.bfloat16).to(tl.float32), right, input_precision='ieee')",
    ],
)
def test_a_product_of_other_bits_is_wrong_where_none_is_in_tf32(product: str, tmp_path: Path) -> None:
    found = judged(tmp_path, product)
    assert (found.verdict, found.severity) == (WRONG, "high") and IN_TF32 not in found.notes


@pytest.mark.parametrize(
    ("precision", "dtype", "expected"),
    [
        (", inputPrecision = tf32", "f32", True),
        (", inputPrecision = bf16x3", "f32", True),
        (", inputPrecision = tf32", "f16", False),
        ("", "f32", False),
    ],
)
def test_a_kernel_asks_for_tf32_by_its_text(precision: str, dtype: str, expected: bool) -> None:
    record = Tf32Record()
    record.look_at(SimpleNamespace(asm={"ttir": DOT.format(precision, dtype, dtype)}))
    assert record.may_use_tf32 is expected


def test_a_kernel_without_such_a_text_may_ask_for_it() -> None:
    record = Tf32Record()
    record.look_at(SimpleNamespace(asm={"ptx": ""}))
    assert record.may_use_tf32


def test_libraries_choose_the_arithmetic_of_convolutions_and_not_of_products() -> None:
    with Tf32Record() as record:
        torch.ones(2, 2) @ torch.ones(2, 2)
    assert not record.may_use_tf32
    with record:
        torch.nn.functional.conv1d(torch.ones(1, 1, 4), torch.ones(1, 1, 2))
    assert record.may_use_tf32


def test_what_is_set_or_built_is_looked_at(tmp_path: Path) -> None:
    record = Tf32Record()
    record.look_at_settings(tmp_path)
    record.look_at_settings(tmp_path / "removed")
    assert not record.may_use_tf32 and not may_multiply_in_tf32()
    (tmp_path / "extension.so").touch()
    record.look_at_settings(tmp_path)
    assert record.may_use_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert may_multiply_in_tf32()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
