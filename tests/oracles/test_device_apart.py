"""Every request of a worker, with outputs and arguments on a device that is not the processor, as a GPU is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from device_apart import APART, MESSAGE, device_apart

from fuzz.backends import cpu
from fuzz.drift import measure as drift
from fuzz.drift.plan import make_plan as make_drift_plan
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.oracles import SAMPLED, examine
from fuzz.oracles.comparison import expected
from fuzz.search.engines import RandomEngine
from fuzz.sweep import measure as sweep
from fuzz.sweep.plan import make_plan as make_sweep_plan
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.target.loader import load
from fuzz.worker.protocol import (
    Adjudicate,
    CompareEager,
    Diagnose,
    EvaluateReference,
    Examine,
    ReplicaGroup,
    Report,
    TryInvalidInput,
    WorkerConfig,
)

NAMES = tuple(oracle.name for oracle in SAMPLED)
REPLICAS = 3
Handler = Callable[[Any], Any]
MakeHandler = Callable[[str, str | None], Handler]


@pytest.fixture
def mixtures() -> Iterator[list[str]]:
    """Where tensors of both devices met."""
    with device_apart() as found:
        yield found


@pytest.fixture
def handler(mixtures: list[str]) -> Iterator[MakeHandler]:
    """Makes the handler of a worker, which activates the backend for good; this process lives on."""
    yield lambda name, planted: examine.make_handler(WorkerConfig(name, planted, "cpu"))
    cpu.deactivate()


def ask_everything(handle: Handler, case: Case) -> list[Finding]:
    """The findings of a case and of its replicas, after everything that a run may ask of a worker about them."""
    report = handle(Examine(case, NAMES, everything=True))
    assert isinstance(report, Report)
    for finding in report.findings:
        handle(Diagnose(case, case, finding.oracle))
        if finding.oracle == "accuracy":
            handle(Adjudicate(case, 1.0))
            handle(CompareEager(case, len(case.calls) - 1, finding.outputs))
    handle(EvaluateReference(case))
    handle(TryInvalidInput(case))
    reports = handle(ReplicaGroup(case, (NAMES,) * REPLICAS)) if len(case.calls) == 1 else ()
    assert isinstance(reports, tuple)
    return [finding for one in (report, *reports) for finding in one.findings]


@pytest.mark.parametrize(
    "mixes",
    [
        lambda far, near: far + near,
        lambda far, near: near * far.sum(),
        lambda far, near: near.add_(far),
        lambda far, near: near[far > 0],
        lambda far, near: near.index_select(0, torch.tensor([0], device=APART)),
        lambda far, near: far.masked_fill(near > 0, 1.0),
        lambda far, near: torch.stack([far.sum(), near.sum()]),
        lambda far, near: torch.equal(far, near),
        lambda far, near: torch.bucketize(far, near),
    ],
)
def test_what_cuda_refuses_is_refused(
    mixes: Callable[[torch.Tensor, torch.Tensor], object], mixtures: list[str]
) -> None:
    with pytest.raises(RuntimeError, match=MESSAGE):
        mixes(torch.ones(3, device=APART), torch.ones(3))
    assert len(mixtures) == 1


@pytest.mark.parametrize("transform", ["none", "autograd", "vmap"])
def test_what_cuda_computes_is_computed_on_the_device(transform: str, mixtures: list[str]) -> None:
    near = torch.arange(3.0)
    far = near.to(APART)
    if transform == "autograd":
        far = torch.func.grad(lambda x: (x * x / 2).sum())(far)
    elif transform == "vmap":
        far = torch.func.vmap(lambda x: x * 1)(far)
    results = [far + torch.tensor(0.0), far[torch.arange(3)], far[[0, 1, 2]], torch.where(far < 0, near.sum(), far)]
    results += [
        torch.zeros(3, device=APART).copy_(near),
        torch.tensor([0.0, 1, 2], device=APART),
        far.new_tensor([0, 1, 2]),
    ]
    for result in results:
        assert result.device == APART and result.tolist() == [0, 1, 2] and torch.equal(result.cpu(), near)
    assert near.copy_(far).device == far.cpu().device == far.to("cpu").device == torch.device("cpu")
    with pytest.raises(TypeError, match="device type tensor to numpy"):
        far.numpy()
    assert not mixtures


@pytest.mark.parametrize(
    ("name", "planted", "oracles", "least"),
    [
        ("rms_norm", "squares_in_bfloat16", {"accuracy"}, expected.SMALL),
        ("matmul", "b_assumed_contiguous", {"accuracy", "layout"}, 0),
        ("matmul_split_k", None, set(), 0),
        ("cross_entropy_bw", "upstream_gradient_lost", {"accuracy", "scaling"}, 0),
        ("cross_entropy_function", "saves_behind_autograd", {"autograd"}, expected.SMALL),
        ("layernorm_bw", "first_n_baked_in", {"accuracy", "bounds"}, 0),
    ],
)
def test_nothing_meets_that_is_on_two_devices(
    name: str,
    planted: str | None,
    oracles: set[str],
    least: int,
    handler: MakeHandler,
    mixtures: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """References of calls with `least` elements are evaluated on the device as well."""
    monkeypatch.setattr(expected, "SMALL", least)
    handle, engine = handler(name, planted), RandomEngine(load(name), 1)
    found = [finding for number in range(3) for finding in ask_everything(handle, engine.case(number))]
    assert {finding.oracle for finding in found} >= oracles and not mixtures
    assert "fault" not in {finding.oracle for finding in found}


HOSTED = """
import torch
from fuzz import size, target, tensor

M, N = size("M", 1, 40), size("N", 1, 90)


def reference(x, w):
    return {"y": x * w, "rows": torch.tensor([x.shape[0]])}


@target(x=tensor(M, N), w=tensor(N), dtypes=("float32", "bfloat16"), reference=reference, batch=M)
def hosted(x, w):
    return {"y": x * w, "rows": torch.tensor([x.shape[0]]DEVICE)}
"""


@pytest.mark.parametrize("least", [0, expected.SMALL])
@pytest.mark.parametrize("device", ["", ", device=x.device"], ids=["host", "device"])
def test_an_output_may_be_on_the_host(
    handler: MakeHandler, mixtures: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, least: int
) -> None:
    """Of the reference, and of the launcher or not, beside one on the device, in cases of one call and of several."""
    monkeypatch.setattr(expected, "SMALL", least)
    file = tmp_path / "hosted.py"
    file.write_text(HOSTED.replace("DEVICE", device), encoding="utf-8")
    handle, engine = handler(str(file), None), RandomEngine(load(str(file)), 1)
    cases = [engine.case(number) for number in range(6)]
    assert {len(case.calls) > 1 for case in cases} == {False, True}
    assert not [finding for case in cases for finding in ask_everything(handle, case)] and not mixtures


def test_a_sweep_counts_there(mixtures: list[str]) -> None:
    plan = make_sweep_plan(load("gelu_bw"), "gelu_bw", dtype="bfloat16", backend="cpu", planted="erf_saturates")
    counts = sweep.make_handler(plan)(0)
    assert isinstance(counts, SweepCounts) and counts.count and not counts.failed and not mixtures


def test_a_drift_is_measured_there(mixtures: list[str]) -> None:
    plan = make_drift_plan(load("softmax"), "softmax", backend="cpu", layers=3, batches=(4,), settings={"N": "5"})
    assert len(drift.make_handler(plan)(4).layers) == 3 and not mixtures
