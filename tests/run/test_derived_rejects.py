"""Inputs that a declaration rules out: a launcher that checks is silent, one that does not is named once a cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import pytest
from commands import fuzz

from fuzz.model.outcome import Died, Hung, Outcome, OutOfMemory
from fuzz.report.json import run_json
from fuzz.run.derived_rejects import AcceptedInput, DerivedRejects, InvalidInputs
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.search.engines import RandomEngine
from fuzz.search.statistics import RunStatistics
from fuzz.target.loader import load
from fuzz.worker.protocol import HANDLER, Report, TryInvalidInput, WorkerConfig
from fuzz.worker.worker import Worker, WorkerCrash

TARGETS = '''
"""Adds rows of two tables; one launcher checks its inputs, the other its shapes only."""
import torch
import triton
import triton.language as tl

from fuzz import indices, size, target, tensor

V, W, N, D = size("V", 1, 20), size("W", 1, 20), size("N", 1, 40), size("D", 1, 32)


@triton.jit
def gather_kernel(table, other, first, second, y, D, BLOCK: tl.constexpr):
    n, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    mask = lanes < D
    row, column = tl.load(first + n), tl.load(second + n)
    value = tl.load(table + row * D + lanes, mask=mask) + tl.load(other + column * D + lanes, mask=mask)
    tl.store(y + n * D + lanes, value, mask=mask)


def gather(table, other, first, second):
    table, other, first, second = (each.contiguous() for each in (table, other, first, second))
    y = table.new_empty(len(first), table.shape[1])
    gather_kernel[(len(first),)](table, other, first, second, y, table.shape[1], BLOCK=32)
    return dict(y=y)


def reference(table, other, first, second):
    return dict(y=table[first.long()] + other[second.long()])


DECLARED = dict(
    table=tensor(V, D), other=tensor(W, D), first=indices(N, below=V), second=indices(N, below=W),
    dtypes=("float32",), reference=reference,
)


@target(**DECLARED)
def unchecked(table, other, first, second):
    if other.shape[1:] != table.shape[1:] or len(first) != len(second):
        raise ValueError("shapes disagree")
    return gather(table, other, first, second)


@target(**DECLARED)
def checked(table, other, first, second):
    if (table.ndim, other.ndim, first.ndim) != (2, 2, 1) or first.shape != second.shape:
        raise ValueError("ranks or lengths are wrong")
    if table.shape[1] != other.shape[1]:
        raise ValueError("widths disagree")
    for index, entries in ((first, len(table)), (second, len(other))):
        if index.is_floating_point() or not 0 <= int(index.min()) <= int(index.max()) < entries:
            raise ValueError("an index is out of range")
    return gather(table, other, first, second)
'''
PLANS = 40
GOOD = Report("returned", False, (), ())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("derived") / "fuzz_gather.py"
    file.write_text(TARGETS)
    return file


def try_plans(path: Path, name: str) -> InvalidInputs:
    """What the first plans of a target show."""
    text = f"{path}:{name}"
    target, config = load(text), WorkerConfig(text, None, "cpu")
    with DerivedRejects(target, Worker(HANDLER, config, 1 << 32, 300.0)) as rejects:
        for proposal in islice(proposals(path, name), PLANS):
            rejects.try_next(proposal)
        return rejects.results


def proposals(path: Path, name: str) -> Iterator[object]:
    engine = RandomEngine(load(f"{path}:{name}"), 0)
    while True:
        yield engine.propose().plan


def test_each_index_that_is_not_checked_is_named_once_and_low(path: Path) -> None:
    found = try_plans(path, "unchecked")
    assert [(each.input.argument, each.input.kind) for each in found.accepted] == [
        ("first", "index"),
        ("second", "index"),
    ]
    first, second = found.accepted
    assert "first is " in first.message and "where an index is from 0 to " in first.message
    assert "out-of-bounds load" in first.message and "'table' in kernel gather_kernel" in first.message
    assert "'other' in kernel gather_kernel" in second.message and second.harm.source_line.endswith("fuzz_gather.py:17")
    assert found.tried > 20
    result = Result(RunOptions(f"{path}:unchecked"), "cpu", RunStatistics(), [], 1.0, invalid_inputs=found)
    assert not result.fails()
    (one, _) = run_json(result)["derived_rejects"]["accepted"]
    assert (one["argument"], one["kind"], one["severity"]) == ("first", "index", "low")
    assert set(one["dims"]) == {"V", "W", "N", "D"} and one["input"] in first.message


def test_a_launcher_that_refuses_what_is_invalid_is_silent(path: Path) -> None:
    found = try_plans(path, "checked")
    assert found.tried > 20 and found.accepted == ()


def test_a_run_tries_them_by_default_and_does_not_fail(path: Path, tmp_path: Path) -> None:
    options = ["--cases", "12", "--engine", "random", "--corpus", tmp_path / "found", "--json", "--fail-on", "low"]
    done = fuzz("run", f"{path}:unchecked", *options)
    assert done.code == 0 and done.json["derived_rejects"]["tried"] == 1 and done.json["findings"] == []
    left_out = fuzz("run", f"{path}:unchecked", *options, "--no-derived-rejects")
    assert left_out.json["derived_rejects"] == {"tried": 0, "accepted": []}
    assert left_out.json["distribution"] == done.json["distribution"]


@dataclass
class CrashingWorker:
    """Answers with these outcomes of a process, one after another."""

    outcomes: list[Outcome | None]
    config: WorkerConfig = field(default_factory=lambda: WorkerConfig("x", None, "cpu"))
    calls: int = 0

    def call(self, request: TryInvalidInput) -> WorkerCrash | None:
        self.calls += 1
        outcome = self.outcomes.pop(0) if self.outcomes else None
        return outcome and WorkerCrash(outcome)


def try_crashing(path: Path, outcomes: list[Outcome | None], plans: int = 1) -> tuple[tuple[AcceptedInput, ...], int]:
    worker = CrashingWorker(outcomes)
    rejects = DerivedRejects(load(f"{path}:unchecked"), worker)  # type: ignore[arg-type]
    for proposal in islice(proposals(path, "unchecked"), plans):
        rejects.try_next(proposal)  # type: ignore[arg-type]
    return rejects.results.accepted, worker.calls


def test_the_end_of_the_process_counts_where_it_repeats(path: Path) -> None:
    (accepted,), calls = try_crashing(path, [Died("SIGSEGV"), Died("SIGSEGV")])
    assert calls == 2 and accepted.message.endswith("the worker process died of SIGSEGV")
    assert try_crashing(path, [Died("SIGKILL"), None]) == ((), 2)
    assert try_crashing(path, [OutOfMemory("4 GiB")]) == ((), 1)


def test_after_an_input_that_hangs_no_other_is_tried(path: Path) -> None:
    (accepted,), calls = try_crashing(path, [Hung(30.0)], plans=10)
    assert calls == 1 and accepted.message.endswith("did not return within 30 s")


def test_only_plans_without_findings_are_taken(path: Path) -> None:
    worker = CrashingWorker([])
    rejects = DerivedRejects(load(f"{path}:unchecked"), worker, period=1)  # type: ignore[arg-type]
    plan = next(proposals(path, "unchecked"))
    rejected = Report("rejected: too short", True, (), ())
    assert rejects.takes(plan, (GOOD, GOOD)) and not rejects.takes(plan, (GOOD, rejected))  # type: ignore[arg-type]
    on_gpu = DerivedRejects(rejects.target, CrashingWorker([], WorkerConfig("x", None, "cuda")), period=1)  # type: ignore[arg-type]
    assert not on_gpu.takes(plan, (GOOD,))  # type: ignore[arg-type]
