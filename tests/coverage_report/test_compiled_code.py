"""What Triton compiles of kernels: lines behind constants that no parameter of the kernel decides, and helpers."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton

from fuzz.coverage_report import code_generation
from fuzz.coverage_report.assemble import make_report
from fuzz.coverage_report.collect import Collected
from fuzz.coverage_report.observe import make_handler
from fuzz.coverage_report.protocol import Observations
from fuzz.coverage_report.report import CoverageReport
from fuzz.search.engines.random import RandomEngine
from fuzz.target.loader import load
from fuzz.worker.protocol import WorkerConfig

TARGET = '''
import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

N = size("N", 1, 40)


@triton.constexpr_function
def doubled(n):
    return 2 * n


@triton.jit
def combine(a, b):
    return a + b


@triton.jit
def unused(v):
    return v + 5.0  # unused is never launched


@triton.jit
def used(v):
    return v + 0.0


@triton.jit
def scale(v, KIND: tl.constexpr):
    """Scales a tensor."""
    if KIND == 0:
        v = v * 2.0
    elif KIND == 1:  # scale: `KIND == 0` is never false
        v = v * 3.0  # scale: `KIND == 0` is never false
    else:
        v = v * 4.0  # scale: `KIND == 0` is never false
    return v


@triton.jit
def early(v, FLAG: tl.constexpr):
    if FLAG:
        return v
    w = v * 9.0  # early: `FLAG` is never false
    return w  # early: `FLAG` is never false


@triton.jit
def kernel(x, y, n, DT: tl.constexpr, B: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    value = early(scale(tl.load(x + columns, mask=columns < n, other=0.0), 0), True)
    BIG: tl.constexpr = doubled(BLOCK) > 1000
    if BIG:
        value = unused(value)  # kernel: `BIG` is never true
    if DT == tl.float32:
        tl.static_assert(BLOCK == 64)
    else:
        value += 1.0  # kernel: `DT == tl.float32` is never false
    if columns.shape[0] > 999:
        """Not here."""  # kernel: `columns.shape[0] > 999` is never true
        pass  # kernel: `columns.shape[0] > 999` is never true
    if B is None: pass
    else:
        KIND: tl.constexpr = 3  # kernel: `B is None` is never false
    for _ in tl.static_range(BLOCK // 100):
        value = value * 2.0  # kernel: the loop over `tl.static_range(BLOCK // 100)` is never entered
        if BLOCK == 1:  # kernel: the loop over `tl.static_range(BLOCK // 100)` is never entered
            value = value * 3.0  # kernel: the loop over `tl.static_range(BLOCK // 100)` is never entered
    if n > 20:
        other = value
    else:
        other = used(value)
    if n == 7000:
        other = value + tl.reduce(value, 0, combine)
    tl.store(y + columns, other, mask=columns < n)
    return
    tl.store(y + columns, value)  # kernel: line {dead} never runs


def reference(x):
    return dict(y=x * 2)


@target(x=tensor(N), dtypes=("float32",), reference=reference)
def double(x):
    y, x = torch.empty_like(x), x.contiguous()
    kernel[(1,)](x, y, x.shape[0], DT=tl.float32, B=None, BLOCK=64)
    return dict(y=y.contiguous())
'''
MARKS = {
    number: mark
    for number, line in enumerate(TARGET.splitlines(), 1)
    for _, found, mark in (line.partition("# "),)
    if found
}
"""The lines that are never compiled, and what blocks each."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compiled") / "fuzz_double.py"
    path.write_text(TARGET)
    return path


def report(path: Path) -> CoverageReport:
    target, observed = load(str(path)), Observations()
    target.launcher.__globals__["kernel"].device_caches.clear()
    handle, engine = make_handler(WorkerConfig(str(path), None, "cpu", counters=True)), RandomEngine(target, 0)
    for _ in range(4):
        observed.add(handle(engine.propose().plan))
    return make_report(target, Collected(observed, []))


def test_lines_that_were_never_compiled_did_not_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[object] = []
    generate = code_generation._generate
    monkeypatch.setattr(code_generation, "_generate", lambda kernel: (again.append(kernel), generate(kernel)))
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "cache"))
    compiled, cached = (report(path), bool(again)), (report(path), bool(again))
    assert compiled[0] == cached[0] and (compiled[1], cached[1]) == (False, True)
    ((lines, missing),) = compiled[0].files.values()
    assert missing == MARKS.keys() and missing < lines
    blockers = [each for each in compiled[0].blockers if each.kind in ("function", "constexpr", "line")]
    for line, mark in MARKS.items():
        assert mark.format(dead=line) in {each.what for each in blockers if line in each.lines}
    in_dead_code = {"kernel: `BLOCK == 1` is never true", "scale: `KIND == 1` is never false"}
    whats = {each.what for each in blockers} - in_dead_code
    assert whats == {mark.format(dead=line) for line, mark in MARKS.items()}
