"""Replicas that run together, by the launches of one of them, are reported as each would be alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor
from fuzz.backends import backend, cpu
from fuzz.backends.cpu.backend import CpuBackend
from fuzz.backends.cuda.launch_recorder import CudaLaunch
from fuzz.backends.launch_trace.trace import trace_launch
from fuzz.model.case import Case
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.oracle_specs import SAMPLED_ORACLES
from fuzz.model.outcome import Returned
from fuzz.oracles import examine
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.rejects import RejectsOracle
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Launcher, Target
from fuzz.worker.protocol import Examine, ReplicaGroup, Report, WorkerConfig

N = size("N", 1, 64)
COUNT = 6
Outputs = Mapping[str, torch.Tensor]
EVERYTHING = SAMPLED_ORACLES


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a worker, which activates the backend for good; this process lives on."""
    monkeypatch.setattr(CpuBackend, "prepare", lambda self, counters=False: None)
    with cpu.active():
        yield


def small(declared: Target, count: int) -> list[Case]:
    """Later plans of one call, without huge layouts, that are small."""
    engine = RandomEngine(declared, 0)
    plans = (engine.case(number) for number in range(1000))
    fitting = (plan for plan in plans if plan.elements() < 500 and engine.count_replicas(999, plan) > 6)
    return list(islice(fitting, count))


def run_together(declared: Target, launcher: Launcher, plan: Case) -> list[bool]:
    """By replica whether it ran together with others."""
    exams = CaseRunner(declared, launcher, backend("cpu")).run_replicas(plan, COUNT)
    return [exam.stack is not None for exam in exams]


BUGS = (
    *("", "bessel", "atomic_order", "block_chosen_by_batch", "store_past_end", "partial_uninitialised"),
    *("assumes_contiguous_dy", "writes_dx_into_dy", "tail_unmasked", "low_precision_accumulate", "first_n_baked_in"),
)


@pytest.mark.parametrize("bug", BUGS)
def test_a_replica_is_reported_as_it_would_be_alone(layernorm: Target, bug: str) -> None:
    handle = examine.make_handler(WorkerConfig("layernorm_bw", bug or None, "cpu"))
    plans = small(layernorm, 3)
    if bug in ("", "bessel", "low_precision_accumulate", "block_chosen_by_batch"):
        launcher = load_planted(layernorm, bug)[1] if bug else layernorm.launcher
        assert all(all(run_together(layernorm, launcher, plan)) for plan in plans)
    for plan in plans:
        group = ReplicaGroup(plan, (EVERYTHING,) * COUNT)
        alone = tuple(handle(Examine(plan.replica(number), EVERYTHING)) for number in range(COUNT))
        assert comparable(handle(group)) == comparable(alone)


def comparable(reports: Any) -> list[tuple[Any, ...]]:
    """Of each report what does not depend on which stage of the envelope was reached."""
    assert isinstance(reports, tuple) and all(isinstance(report, Report) for report in reports)
    return [(report.outcome, report.findings, report.examined) for report in reports]


@triton.jit
def stores_beyond(out, x, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    value = tl.load(x + columns, mask=columns < n, other=0.0)
    tl.store(out + columns, 2 * value, mask=columns < n)
    tl.store(out + n, 1.0, mask=tl.max(value) > 2.5)


def stores_beyond_for_some(x: torch.Tensor) -> Outputs:
    out = torch.empty_like(x)
    stores_beyond[(1,)](out, x.contiguous(), x.numel(), BLOCK=triton.next_power_of_2(max(x.numel(), 1)))
    return {"y": out}


def twice(launcher: Launcher) -> Target:
    """A target that doubles its input."""
    declare: Any = target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=2 * x))
    declared: Target = declare(launcher)
    return declared


def writes_beyond(plan: Case) -> list[bool]:
    """By replica whether the kernel writes beyond its output."""
    words = (plan.replica(number).last.tensors["x"].bits(plan.last.dims) for number in range(COUNT))
    return [bool((torch.from_numpy(part.view("f4").copy()) > 2.5).any()) for part in words]


def test_a_replica_that_writes_beyond_its_output_runs_alone() -> None:
    declared = twice(stores_beyond_for_some)
    dense = [plan for plan in small(declared, 60) if plan.last.tensors["x"].layout == CONTIGUOUS]
    mixed = [plan for plan in dense if not writes_beyond(plan)[0] and any(writes_beyond(plan))]
    assert mixed
    for plan in mixed:
        assert run_together(declared, declared.launcher, plan) == [not beyond for beyond in writes_beyond(plan)]


def test_programs_run_in_the_order_that_is_given() -> None:
    declared = load("layernorm_bw")
    launcher = load_planted(declared, "atomic_order")[1]
    handle = examine.make_handler(WorkerConfig("layernorm_bw", "atomic_order", "cpu"))
    count = 0
    for plan in [plan for plan in small(declared, 60) if plan.last.dims["M"] > 2][:12]:
        assert any(run_together(declared, launcher, plan))
        reports = handle(ReplicaGroup(plan, (("deterministic",),) * COUNT))
        assert isinstance(reports, tuple)
        for report in reports:
            assert isinstance(report, Report)
            count += "deterministic" in [finding.oracle for finding in report.findings]
    assert count


@pytest.mark.parametrize("reads", [False, True])
def test_what_must_be_refused_is_tried_once_where_no_value_decides(reads: bool) -> None:
    refused = []

    def launcher(x: torch.Tensor, y: torch.Tensor) -> Outputs:
        if x.shape != y.shape:
            refused.append(x)
            if not reads or float(x[0]) < 1e30:
                raise ValueError("shapes differ")
        return dict(z=(x + y).contiguous())

    declared = target(
        x=tensor(N), y=tensor(N), reference=lambda x, y: dict(z=x + y), rejects=dict(short=lambda x, y: dict(y=y[:-1]))
    )
    plan = small(declared(launcher), 1)[0]
    exams = [
        Examination(declared(launcher), launcher, plan.replica(number), backend("cpu"), Returned(()))
        for number in range(COUNT)
    ]
    assert RejectsOracle().check(exams) == [None] * COUNT
    assert len(refused) == (COUNT if reads else 1)


@pytest.mark.parametrize(("offset", "repeatable"), [(-1, True), (0, False), (31, False), (32, True)])
def test_a_launch_on_a_gpu_with_an_address_among_its_numbers_is_not_repeated(offset: int, repeatable: bool) -> None:
    """Triton passes it as any other integer, of which the kernel may make a pointer."""
    x = torch.zeros(8)
    launch = CudaLaunch(None, lambda *_: None, (), (x, x.data_ptr() + offset, 3, True, 0.5))
    traced = trace_launch(launch, [(x.data_ptr(), x.data_ptr() + 32)], ())
    assert (traced is not None) == repeatable
