"""On a GPU: what was compiled ahead is what is loaded, and launches from C give the bits of Triton's launcher."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import backend
from fuzz.backends.cuda.backend import CudaBackend
from fuzz.backends.cuda.launch_recorder import CudaLaunch
from fuzz.backends.execute import CompletedCall, run
from fuzz.backends.launch_trace.trace import LaunchTrace, record_trace
from fuzz.model.case import Case
from fuzz.oracles import examine
from fuzz.oracles.comparison import expected
from fuzz.oracles.comparison.expected import FIRST_THOROUGH, SMALL, evaluate_reference
from fuzz.oracles.execution.case_runner import replica_values
from fuzz.oracles.execution.examination import Examination
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load
from fuzz.worker.precompile import COMPILE
from fuzz.worker.protocol import HANDLER, Precompile, WorkerConfig
from fuzz.worker.worker import Worker

if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

TARGET, COUNT = "layernorm_bw", 16
LEAST = 1e-50


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return tmp_path


def plans() -> Iterator[Case]:
    engine = RandomEngine(load(TARGET), 0)
    drawn = (engine.case(number) for number in range(300, 400))
    return (plan for plan in drawn if len(plan.calls) == 1 and plan.elements() < 1 << 12)


def test_what_is_compiled_ahead_is_not_compiled_again(cache: Path) -> None:
    case = next(plans())
    with Worker(COMPILE, WorkerConfig(TARGET, None, "cuda"), 16 << 30, 120.0, {"FUZZ": "anew"}) as helper:
        assert helper.call(Precompile(case)) == ""
    ahead = {path.parent for path in cache.rglob("*.cubin")}
    assert ahead
    with Worker(HANDLER, WorkerConfig(TARGET, None, "cuda"), 16 << 30, 120.0, {"FUZZ": "anew"}) as worker:
        report = worker.call(examine.Examine(case, ("layout", "invariance"), everything=True))
    assert report.outcome == "returned" and {path.parent for path in cache.rglob("*.cubin")} == ahead


def traces() -> Iterator[tuple[Case, LaunchTrace]]:
    made = load(TARGET)
    for plan in islice(plans(), 6):
        completed: list[CompletedCall] = []
        run(made, made.launcher, plan.calls, backend("cuda"), completed=completed)
        trace = record_trace(completed[0])
        assert trace is not None
        yield plan, trace


def test_launches_from_c_give_the_bits_of_tritons_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for plan, trace in traces():
        values = {name: replica_values(one, plan.last.dims, COUNT, "cuda") for name, one in plan.last.tensors.items()}
        assert all(isinstance(step.launch, CudaLaunch) and step.launch.loop for step in trace.steps)
        first = trace.replay(values)
        with monkeypatch.context() as patch:
            patch.setattr(CudaLaunch, "loop", None)
            for step in trace.steps:
                vars(step.launch).pop("loop", None)
            again = trace.replay(values)
        assert first.intact.all() and again.intact.all()
        for name, output in first.outputs.items():
            one, other = output.contiguous(), again.outputs[name].contiguous()
            assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


@triton.autotune([triton.Config({"B": size}) for size in (32, 64, 128)], key=["n"])
@triton.jit
def doubled(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def test_autotuners_take_a_drawn_configuration_and_launch_once() -> None:
    with CudaBackend().session(None) as session:
        x = torch.ones(100, device="cuda")
        out = torch.empty_like(x)
        doubled[lambda meta: (triton.cdiv(100, meta["B"]),)](x, out, 100)
        assert len(session.launches) == 1 and doubled.best_config.kwargs["B"] == 32
    assert out.sum().item() == 200


def test_a_reference_is_evaluated_on_the_gpu_as_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    made, gpu = load(TARGET), backend("cuda")
    engine = RandomEngine(made, 0)
    drawn = (engine.case(number) for number in range(300, 400))
    for case in islice((one for one in drawn if len(one.calls) == 1 and SMALL < one.elements() < 1 << 16), 4):
        exams = [Examination(made, made.launcher, case, gpu, run(made, made.launcher, case.calls, gpu)) for _ in "ab"]
        for stage in (0, FIRST_THOROUGH):
            there = evaluate_reference(exams[0], 0, stage)
            with monkeypatch.context() as patch:
                patch.setattr(expected, "SMALL", math.inf)
                here = evaluate_reference(exams[1], 0, stage)
            for name, one in there.items():
                assert one.value.is_cuda and not here[name].value.is_cuda
                # Sums are added up in another order there, and what cancels is as far off as its terms say. Far below
                # the least number of float32 nothing but float64's own errors is left.
                off = (one.value.cpu() - here[name].value).abs()
                assert bool((off <= 1e-6 * here[name].spread + LEAST).all())
                torch.testing.assert_close(one.spread.cpu(), here[name].spread, rtol=1e-2, atol=LEAST)


def test_memory_of_large_cases_is_released() -> None:
    torch.empty(4 << 30, dtype=torch.int8, device="cuda")
    before = torch.cuda.memory_reserved()
    CudaBackend().release_memory()
    assert before >= 4 << 30 > torch.cuda.memory_reserved()
