"""The differential test by random kernels: some of them, and that it sees a fault."""

import os
from collections import Counter

import pytest

from benchmarks.random_kernels import build as builder
from benchmarks.random_kernels import run as runner
from benchmarks.random_kernels.build import compiled
from benchmarks.random_kernels.check import CRASHED, DIFFERS, INVALID, SAME, check
from benchmarks.random_kernels.draw import binary
from benchmarks.random_kernels.registry import OPERATIONS
from benchmarks.random_kernels.run import run, run_batch, smallest
from benchmarks.random_kernels.source import source
from benchmarks.random_kernels.statements import kernel
from benchmarks.random_kernels.tree import Buffer, Expr, Kernel, Let, Store, Type, walk
from fuzz.backends import cpu
from fuzz.backends.cpu.compilers.compiler import build
from fuzz.backends.cpu.ops import elementwise

# Python 3.12 warns of it where torch has threads; the children use none of them.
FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def subtraction():
    """Two loads, a difference, and what has nothing to do with it."""
    type = Type("float32", (8,))
    index = Expr("arange", Type("int32", (8,)), data=(0, 8))
    a, b = (Expr("load", type, (index,), (name, 1)) for name in ("a", "b"))
    buffers = (Buffer("a", "float32", 8), Buffer("b", "float32", 8), Buffer("out", "float32", 8, True))
    value = binary("mul", binary("sub", Expr("abs", type, (a,)), b), Expr("const", type, data=(2.0, "full")))
    body = (Let("unused", binary("add", a, b)), Store("out", index, value))
    return Kernel(1, "difference", (1, 1), buffers, (), body)


def test_random_kernels_give_the_bits_that_numpy_gives():
    report = run_batch(range(24))
    assert not report.findings
    assert report.outcomes == Counter({SAME: 24})


def test_random_kernels_give_the_same_bits_in_quick_code():
    with cpu.knobs.set(compiler="quick"):
        report = run_batch(range(60))
    assert not report.findings
    assert report.outcomes == Counter({SAME: 60})


def test_many_kernels_share_one_call_of_the_compiler(monkeypatch):
    calls = []
    monkeypatch.setattr(builder, "build", lambda *given: calls.append(given) or build(*given))
    batch = compiled([kernel(seed) for seed in range(4)])
    assert len(calls) == 1 and all(item.function for item in batch)


def test_a_wrong_operation_is_seen_and_shrunk(monkeypatch):
    monkeypatch.setitem(elementwise.FLOAT_OPERATORS, "subf", "+")
    (item,) = compiled([subtraction()])
    outcome = check(item)
    assert outcome.what == DIFFERS
    finding = smallest(item.kernel, outcome)
    assert finding.outcome.what == DIFFERS
    assert "-" in finding.source and "unused" not in finding.source and "tl.abs" not in finding.source


def test_a_rounding_left_out_is_seen(monkeypatch):
    """In some of a few drawn kernels, without choosing them."""
    monkeypatch.setattr(elementwise, "rounded", lambda type, text: text)
    assert run_batch(range(100, 132), small=False).outcomes[DIFFERS] > 0


def test_a_kernel_that_triton_refuses_is_not_counted_as_the_same():
    type = Type("float32", (8,))
    index = Expr("arange", Type("int32", (8,)), data=(0, 8))
    wrong = Expr("and", type, (Expr("const", type, data=(1.0, "full")),) * 2)
    refused = Kernel(1, "refused", (1, 1), (Buffer("out", "float32", 8, True),), (), (Store("out", index, wrong),))
    assert check(compiled([refused])[0]).what == INVALID


@pytest.mark.parametrize("seed", [3, 17])
def test_a_seed_is_one_kernel(seed):
    assert source(kernel(seed)) == source(kernel(seed))


def test_every_operation_is_drawn_and_evaluated():
    """Of those that the evaluator knows none is never drawn."""
    drawn = {node.op for seed in range(400) for node in walk(kernel(seed)) if isinstance(node, Expr)}
    assert drawn == set(OPERATIONS)


@FORKS
def test_a_process_that_dies_is_an_outcome(monkeypatch):
    """The batches behind the one that ended it are run all the same."""
    monkeypatch.setattr(runner, "run_batch", dying)
    reports = list(run(0, 4 * runner.BATCH, processes=2, seconds=3600))
    total = sum((report.outcomes for report in reports), Counter())
    assert total == Counter({SAME: 3 * runner.BATCH, CRASHED: 1})


def dying(seeds):
    if 40 in seeds:
        os._exit(1)
    return runner.Report(Counter({SAME: len(seeds)}))


@FORKS
def test_processes_share_the_seeds():
    reports = list(run(500, 3, processes=2, seconds=3600))
    assert sum(report.outcomes[SAME] for report in reports) == 3
