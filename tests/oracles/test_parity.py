"""What another order of sums shows, and what products in the precision that a kernel asks for show."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import run_programs

from fuzz.backends import BACKENDS
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.entry import Entry
from fuzz.model.recipes import recipe
from fuzz.oracles import SAMPLED, find_oracle
from fuzz.oracles.examine import examine
from fuzz.oracles.execution.examination import Examination
from fuzz.report.reproducer.script import script
from fuzz.run.replay import reproduces
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Target
from fuzz.triage.cross_check import AGREES, cross_check
from fuzz.worker.protocol import Examine, Report, WorkerConfig

TARGET = '''"""Sums the distances of a row's elements from its first one, and multiplies matrices."""
import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

M, N, K = size("M", 1, 16), size("N", 1, 16), size("K", 1, 16)


@triton.jit
def distances_kernel(x, out, n, B: tl.constexpr):
    i, row = tl.arange(0, B), tl.program_id(0)
    first = tl.load(x + row * n)
    value = tl.load(x + row * n + i, mask=i < n, other=first)
    tl.store(out + row, tl.sum(value - first, 0))


@triton.jit
def one_sum_kernel(x, out, n, B: tl.constexpr):
    """Where element i is first combined with element i + 2B, the constants cancel; in another order digits are lost."""
    i, row = tl.arange(0, 4 * B), tl.program_id(0)
    first = tl.load(x + row * n)
    value = tl.load(x + row * n + i - B, mask=(i >= B) & (i < B + n), other=first) - first
    far = tl.where(i < n, 1e9, tl.where((i >= 2 * B) & (i < 2 * B + n), -1e9, 0.0))
    tl.store(out + row, tl.sum(value + far, 0))


def summed(kernel, x):
    x = x.contiguous()
    out = x.new_empty(x.shape[0])
    kernel[(x.shape[0],)](x, out, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
    return dict(out=out)


@target(x=tensor(M, N), dtypes=("float32",), batch=M, reference=lambda x: dict(out=(x - x[:, :1]).sum(1)))
def distances(x):
    return summed(distances_kernel, x)


@distances.planted("one_sum", oracle="parity", outputs=("out",))
def one_sum(x):
    return summed(one_sum_kernel, x)


@triton.jit
def product_kernel(a, b, out, m, n, k, PRECISION: tl.constexpr):
    i = tl.arange(0, 16)
    left = tl.load(a + i[:, None] * k + i[None, :], mask=(i[:, None] < m) & (i[None, :] < k), other=0)
    right = tl.load(b + i[:, None] * n + i[None, :], mask=(i[:, None] < k) & (i[None, :] < n), other=0)
    total = tl.dot(left, right, input_precision=PRECISION)
    tl.store(out + i[:, None] * n + i[None, :], total, mask=(i[:, None] < m) & (i[None, :] < n))


def multiplied(a, b, precision):
    a, b = a.contiguous(), b.contiguous()
    out = a.new_empty(a.shape[0], b.shape[1])
    product_kernel[(1,)](a, b, out, *out.shape, a.shape[1], PRECISION=precision)
    return dict(out=out)


@target(a=tensor(M, K), b=tensor(K, N), dtypes=("float32",), reference=lambda a, b: dict(out=a @ b))
def product(a, b):
    return multiplied(a, b, "ieee")


@product.planted("default_precision", oracle="accuracy", outputs=("out",))
def default_precision(a, b):
    return multiplied(a, b, None)
'''


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("targets") / "fuzz_sums.py"
    file.write_text(TARGET, encoding="utf-8")
    return file


def case_of(target: Target) -> Case:
    """4 rows of 16 far from 0, or two matrices of 16 x 16."""
    dims = {name: size for name, size in (("M", 4), ("N", 16), ("K", 16)) if name in {dim.name for dim in target.sizes}}
    values = recipe("mean_shift", 1, mean=12) if target.name == "distances" else recipe("normal", 1)
    arguments = {name: Argument(value.shape, "float32", values) for name, value in target.tensors.items()}
    return Case(target.name, (Call(dims, arguments),))


def examined(target: Target, plant: str = "") -> Report:
    """What all oracles say of the good kernel or a planted bug."""
    launcher, case = load_planted(target, plant)[1] if plant else target.launcher, case_of(target)
    outcome = run(target, launcher, case.calls, BACKENDS["cpu"])
    request = Examine(case, tuple(oracle.name for oracle in SAMPLED), True)
    return examine(Examination(target, launcher, case, BACKENDS["cpu"], outcome), request)


@pytest.mark.parametrize(
    ("name", "plant", "oracle", "symptom"),
    [("distances", "one_sum", "parity", "drift"), ("product", "default_precision", "accuracy", "value")],
)
def test_what_only_one_instrument_sees_is_found_replayed_and_shown_by_a_script(
    path: Path, tmp_path: Path, name: str, plant: str, oracle: str, symptom: str
) -> None:
    target = load(f"{path}:{name}")
    assert examined(target).findings == ()
    (finding,) = examined(target, plant).findings
    assert (finding.oracle, finding.symptom, finding.outputs) == (oracle, symptom, ("out",))
    entry = Entry(case_of(target), finding, planted=plant)
    assert reproduces(entry, f"{path}:{name}", target, "cpu")
    (ended,) = run_programs(tmp_path, [script(entry, target, load_planted(target, plant)[0], "again")])
    assert ended.code == 1 and "out" in ended.out, ended


def test_the_interpreter_cuts_the_operands_of_tf32_products_too(path: Path) -> None:
    target = load(f"{path}:product")
    (finding,) = examined(target, "default_precision").findings
    config = WorkerConfig(f"{path}:product", "default_precision", "cpu")
    assert cross_check(case_of(target), finding, config, 8 << 30, 60.0)["interpreter"] == AGREES


def test_another_order_is_asked_of_backends_that_have_one_and_kept_out_of_cases(path: Path) -> None:
    parity = find_oracle("parity")
    assert [name for name, backend in BACKENDS.items() if parity.runs_on(backend)] == ["cpu"]
    assert "parity" in examined(load(f"{path}:distances")).examined
