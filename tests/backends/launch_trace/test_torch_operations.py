"""Replicas run together also where torch computes between the launches, with the bits that each has alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from fuzz import indices, size, target, tensor
from fuzz.backends import backend, cpu
from fuzz.backends.execute import CompletedCall, run
from fuzz.backends.launch_trace.trace import record_trace
from fuzz.model.case import Case
from fuzz.model.outcome import Returned
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.search.engines import RandomEngine
from fuzz.target.spec import Launcher, Target

N = size("N", 2, 40)
COUNT = 8
Outputs = Mapping[str, torch.Tensor]
KEPT = torch.zeros(64)


@pytest.fixture(autouse=True)
def active() -> Iterator[None]:
    """As in a worker."""
    with cpu.active():
        yield


@triton.jit
def double(out, x, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    tl.store(out + columns, 2 * tl.load(x + columns, mask=columns < n), mask=columns < n)


@triton.jit
def add(out, x, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    tl.atomic_add(out + columns, tl.load(x + columns, mask=columns < n), mask=columns < n)


def doubled(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    double[(1,)](out, x, x.numel(), BLOCK=64)
    return out


def computes_before_and_after(x: torch.Tensor) -> Outputs:
    parts = torch.cat([x[1:], x[:1] * 3])
    y = doubled(parts.roll(1, dims=0))
    y[0] -= 4 * x.flip(0)[-1]
    return {"y": y.reshape(-1, 1).contiguous()[:, 0]}


def computes_alone(x: torch.Tensor) -> Outputs:
    return {"y": torch.sub(x, x, alpha=-1)}


def draws_what_it_does_not_use(x: torch.Tensor) -> Outputs:
    noise = torch.empty(3).uniform_()
    return {"y": doubled(x.contiguous()) + 0 * noise[0]}


def writes_what_it_keeps(x: torch.Tensor) -> Outputs:
    KEPT[: len(x)] = x
    return {"y": doubled(KEPT[: len(x)].clone())}


def lists_values(x: torch.Tensor) -> Outputs:
    return {"y": doubled(x.contiguous()) if x.tolist() else x}


def reads_array(x: torch.Tensor) -> Outputs:
    return {"y": doubled(x.contiguous()) if x.numpy().size else x}


def computes_with_sparse_tensors(x: torch.Tensor) -> Outputs:
    return {"y": (doubled(x.contiguous())[None].to_sparse().to_dense())[0]}


def tabulates_addresses(x: torch.Tensor) -> Outputs:
    table = torch.tensor([0, x.data_ptr()]).clone()
    return {"y": doubled(x.contiguous()) + 0 * table[0]}


def writes_an_address(x: torch.Tensor) -> Outputs:
    table = torch.zeros(2, dtype=torch.int64)
    table[1] = x.data_ptr()
    return {"y": doubled(x.contiguous()) + 0 * table[0]}


def declare(launcher: Launcher, **more: Any) -> Target:
    """A target that doubles its input."""
    made: Any = target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=2 * x), **more)
    declared: Target = made(launcher)
    return declared


def plans_of(declared: Target, count: int = 12) -> list[Case]:
    """Plans of one call whose tensors have elements of their own."""
    engine = RandomEngine(declared, 0)
    plans = (engine.case(number) for number in range(1000))
    return list(islice((plan for plan in plans if plan.elements() < 500 and len(plan.calls) == 1), count))


def run_together(declared: Target, plan: Case) -> list[bool]:
    """By replica whether it ran together with others, with the very outputs of a run of its own."""
    runner = CaseRunner(declared, declared.launcher, backend("cpu"))
    together = []
    for row, exam in enumerate(runner.run_replicas(plan, COUNT)):
        together.append(exam.stack is not None)
        alone = runner.run(plan.replica(row))
        assert isinstance(alone.outcome, Returned)
        for name, output in exam.outputs.items():
            assert torch.equal(output.view(torch.int32), alone.outputs[name].view(torch.int32))
    return together


@pytest.mark.parametrize("launcher", [computes_before_and_after, computes_alone, draws_what_it_does_not_use])
def test_operations_of_torch_are_repeated(launcher: Launcher) -> None:
    declared = declare(launcher)
    for plan in plans_of(declared):
        assert run_together(declared, plan) == [True] * COUNT


LEFT_ALONE = [
    *(writes_what_it_keeps, lists_values, reads_array, computes_with_sparse_tensors),
    *(tabulates_addresses, writes_an_address),
]


@pytest.mark.parametrize("launcher", LEFT_ALONE)
def test_what_depends_on_more_than_shapes_is_not_repeated(launcher: Launcher) -> None:
    declared = declare(launcher)
    completed: list[CompletedCall] = []
    plan = plans_of(declared, 1)[0]
    assert isinstance(run(declared, launcher, plan.calls, backend("cpu"), completed=completed), Returned)
    assert record_trace(completed[0]) is None


def test_a_replica_for_which_python_gets_another_number_runs_alone() -> None:
    def launcher(x: torch.Tensor) -> Outputs:
        return {"y": doubled(x.contiguous())} if bool(x[0] > 0) else {"y": x + x}

    declared, mixed = declare(launcher), 0
    for plan in plans_of(declared, 40):
        words = [plan.replica(row).last.tensors["x"].bits(plan.last.dims) for row in range(COUNT)]
        positive = [bool(torch.from_numpy(part.view("f4").copy()).flatten()[0] > 0) for part in words]
        expected = [one == positive[0] for one in positive]
        mixed += not all(expected)
        assert run_together(declared, plan) == (expected if sum(expected) >= COUNT // 2 else [False])
    assert mixed > 5


def test_replicas_that_share_their_integers_run_together_where_python_reads_them() -> None:
    @target(x=tensor(N), n=indices(N, below=7), dtypes=("float32",), reference=lambda x, n: dict(y=x * int(n[0])))
    def scaled(x: torch.Tensor, n: torch.Tensor) -> Outputs:
        return {"y": doubled(x.contiguous()) * (n[0].item() / 2)}

    plans = plans_of(scaled)
    assert all(all(run_together(scaled, replace(plan, shares_integers=True))) for plan in plans)
    assert not all(all(run_together(scaled, plan)) for plan in plans)


def test_a_grid_of_tensors_is_a_number_that_python_gets() -> None:
    @target(x=tensor(N), n=indices(N, below=3), dtypes=("float32",), reference=lambda x, n: dict(y=x * int(n[0] + 1)))
    def counted(x: torch.Tensor, n: torch.Tensor) -> Outputs:
        out = torch.zeros_like(x, memory_format=torch.contiguous_format)
        add[(n[0] + 1,)](out, x.contiguous(), x.numel(), BLOCK=64)
        return {"y": out}

    plans = plans_of(counted)
    assert all(all(run_together(counted, replace(plan, shares_integers=True))) for plan in plans)
    assert not all(all(run_together(counted, plan)) for plan in plans)


def test_a_replica_that_fails_in_torch_makes_all_run_alone() -> None:
    def launcher(x: torch.Tensor) -> Outputs:
        place = (x[:1] > 1e3).long() * 100
        return {"y": doubled(x.contiguous()) + 0 * x.index_select(0, place)}

    declared = declare(launcher)
    runner = CaseRunner(declared, launcher, backend("cpu"))
    alone = [len(runner.run_replicas(plan, COUNT)) == 1 for plan in plans_of(declared, 60)]
    assert any(alone) and not all(alone)


def test_an_argument_that_is_written_in_place_is_written_for_every_replica() -> None:
    def launcher(x: torch.Tensor) -> Outputs:
        x.mul_(2)
        return {"y": x}

    declared = declare(launcher, in_place=("x",))
    dense = [plan for plan in plans_of(declared, 40) if not plan.last.tensors["x"].layout.expand]
    assert len(dense) > 5
    for plan in dense:
        assert run_together(declared, plan) == [True] * COUNT
