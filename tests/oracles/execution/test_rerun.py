"""Reruns of replicas together have the calls, orders and values that the reruns of each alone have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor
from fuzz.backends import backend, cpu
from fuzz.backends.cpu.backend import CpuBackend
from fuzz.backends.launch_trace.trace import LaunchTrace
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.layout import Layout
from fuzz.model.recipes import recipe
from fuzz.model.recipes.torch_values import to_bits
from fuzz.oracles import SAMPLED, deterministic
from fuzz.oracles.base import RerunOracle, check_reruns
from fuzz.oracles.execution import rerun
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.execution.rerun import Rerun, run_again
from fuzz.oracles.invariance import InvarianceOracle
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load, load_planted

COUNT = 8
ORACLES = [oracle for oracle in SAMPLED if isinstance(oracle, RerunOracle)]
Requests = list[tuple[object, int | None, dict[str, bytes]]]
"""The structure of the call, the order of programs and the words by tensor, of each rerun of one replica."""


@pytest.fixture(autouse=True)
def active(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(CpuBackend, "prepare", lambda self, counters=False: None)
    with cpu.active():
        yield


def plans(name: str, count: int) -> list[Case]:
    engine = RandomEngine(load(name), 0)
    drawn = (engine.case(number) for number in range(300, 500))
    fitting = [plan for plan in drawn if plan.elements() < 600 and len(plan.calls) == 1]
    return [plan for plan in fitting if not any(value.layout.reach for value in plan.last.tensors.values())][:count]


def requests(oracle: RerunOracle, exams: Sequence[Examination]) -> list[Requests]:
    """The reruns by replica."""
    found: list[Requests] = [[] for _ in exams]
    for one in oracle.reruns(exams):
        for place, row in enumerate(one.rows):
            words = {name: to_bits(values[place]).tobytes() for name, values in one.values.items()}
            found[row].append((one.call.structure, one.order, words))
    return found


@pytest.mark.parametrize("name", ["layernorm_bw", "softmax", "gelu_bw", "rms_norm", "cross_entropy", "matmul"])
def test_replicas_run_again_together_as_each_would_alone(name: str) -> None:
    made, compared = load(name), set()
    runner = CaseRunner(made, made.launcher, backend("cpu"))
    for plan in plans(name, 6):
        exams = [exam for exam in runner.run_replicas(plan, COUNT) if exam.stack][1:]
        for oracle in ORACLES:
            if not exams or not oracle.applies(made, plan):
                continue
            alone = [requests(oracle, [runner.run(exam.case)])[0] for exam in exams]
            assert requests(oracle, exams) == alone, (oracle.name, plan)
            compared |= {oracle.name} if any(alone) else set()
    assert {"deterministic"} < compared


@pytest.mark.parametrize("bug", ["", "atomic_order"])
def test_only_replicas_that_differ_are_compared_element_by_element(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    made, findings = load("layernorm_bw"), []
    compare = Mock(side_effect=deterministic.compare_bits)
    monkeypatch.setattr(deterministic, "compare_bits", compare)
    runner = CaseRunner(made, load_planted(made, bug)[1] if bug else made.launcher, backend("cpu"))
    for plan in plans("layernorm_bw", 12):
        exams = [exam for exam in runner.run_replicas(plan, COUNT) if exam.stack]
        findings += deterministic.DeterministicOracle().check(exams)
    # Floating addition in another order need not differ: some replicas have a finding, some have none.
    assert sum(finding is not None for finding in findings) == compare.call_count
    assert bool(compare.call_count) == bool(bug) and compare.call_count < len(findings)


@pytest.mark.parametrize("bug", ["", "atomic_order"])
def test_reruns_of_all_oracles_repeat_the_launches_of_one_call_once(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    made, replays, compared = load("layernorm_bw"), list[int](), set()
    original = LaunchTrace.replay

    def replay(trace: LaunchTrace, *arguments: Any) -> Any:
        replays.append(id(trace))
        return original(trace, *arguments)

    monkeypatch.setattr(LaunchTrace, "replay", replay)
    runner = CaseRunner(made, load_planted(made, bug)[1] if bug else made.launcher, backend("cpu"))
    for plan in plans("layernorm_bw", 4):
        exams = [exam for exam in runner.run_replicas(plan, COUNT) if exam.stack]
        checks = [(oracle, exams[place:]) for place, oracle in enumerate(ORACLES) if oracle.applies(made, plan)]
        replays.clear()
        together = check_reruns(checks)
        assert len(replays) == len({*replays}) > 0
        assert together == [oracle.check(some) for oracle, some in checks]
        compared |= {oracle.name for oracle, _ in checks}
    assert {"deterministic", "scaling", "parity"} <= compared


@pytest.mark.parametrize("rows", [1, 3])
def test_a_rerun_that_is_too_large_repeats_the_launches_of_some_rows_at_a_time(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    def outputs(exams: Sequence[Examination], one: Rerun) -> dict[int, list[bytes]]:
        (results,) = run_again([(exams, one)])
        parts = [(some, {name: part.cpu() for name, part in found.items()}) for some, found in results]
        sizes.append([len(some) for some, _ in parts])
        return {
            row: [to_bits(found[name][place]).tobytes() for name in sorted(found)]
            for some, found in parts
            for place, row in enumerate(some)
        }

    made, sizes, compared = load("layernorm_bw"), list[list[int]](), 0
    runner = CaseRunner(made, made.launcher, backend("cpu"))
    for plan in plans("layernorm_bw", 6):
        exams = [exam for exam in runner.run_replicas(plan, COUNT) if exam.stack]
        for oracle in (oracle for oracle in ORACLES if exams and oracle.applies(made, plan)):
            for one in oracle.reruns(exams):
                sizes.clear()
                together = outputs(exams, one)
                with monkeypatch.context() as patch:
                    patch.setattr(rerun, "LARGEST_ARGUMENTS", rows * (one.size // len(one.rows)))
                    patch.setattr(Examination, "rerun", Mock(side_effect=AssertionError("it ran alone")))
                    assert outputs(exams, one) == together
                if len(one.rows) > rows and one.size and sizes[0] == [len(one.rows)]:
                    assert sizes[1] == [len(range(len(one.rows))[first : first + rows]) for first in one.rows[::rows]]
                    compared += 1
    assert compared > 5


@triton.jit
def double_rows(x, y, n, row, step, PLAIN: tl.constexpr, B: tl.constexpr):
    at, i = tl.program_id(0), tl.arange(0, B)
    value = 2 * tl.load(x + at * row + i * step, mask=i < n)
    tl.store(y + at * n + i, value if PLAIN else tl.where(value == 0, 1e-30, value * 1.0000001), mask=i < n)


def doubled(x: torch.Tensor) -> dict[str, torch.Tensor]:
    y = torch.empty(x.shape, device=x.device)
    double_rows[(x.shape[0],)](x, y, x.shape[1], *x.stride(), PLAIN=x.is_contiguous(), B=8)
    return dict(y=y)


@pytest.mark.parametrize("broken", [False, True])
def test_whether_the_layout_of_rows_decides_their_bits_is_asked_of_all_replicas_at_once(
    monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    def launcher(x: torch.Tensor) -> dict[str, torch.Tensor]:
        return doubled(x if len(x) > 1 or not broken else x[:, :1].expand(-1, x.shape[1]))

    M, N = size("M", 1, 64), size("N", 1, 8)
    made = target(x=tensor(M, N), batch=M, dtypes=("float32",), reference=lambda x: dict(y=2 * x))(launcher)
    x = Argument(("M", "N"), "float32", recipe("normal", 1), Layout(order=(1, 0)))
    plan = Case(made.name, (Call({"M": 4, "N": 5}, {"x": x}),), Split(2, 1))
    exams = [exam for exam in CaseRunner(made, launcher, backend("cpu")).run_replicas(plan, COUNT) if exam.stack]
    alone = Mock(side_effect=Examination.rerun, autospec=True)
    monkeypatch.setattr(Examination, "rerun", lambda *given, **more: alone(*given, **more))
    findings = InvarianceOracle().check(exams)
    assert len(findings) == COUNT and [finding is not None for finding in findings] == [broken] * COUNT
    # One run of each structure of calls shows what launches are to be repeated.
    assert alone.call_count == 3
