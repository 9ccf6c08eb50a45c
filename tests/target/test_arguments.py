"""Kinds of arguments: the examples of docs/targets.md are drawn, run, shrunk, saved and read again as they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest

from fuzz.corpus import codec
from fuzz.errors import CorpusError, TargetError
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import Size
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.recipes import recipe
from fuzz.oracles.examine import make_handler
from fuzz.report.reproducer.inputs import call_lines
from fuzz.search.engines import RandomEngine
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.mutations import MUTATIONS, MutationContext, mutate
from fuzz.shrink.passes import COARSE, FINE
from fuzz.shrink.shrinker import Budget, Shrinker
from fuzz.target.arguments import TensorArgument, size, tensor
from fuzz.target.legal import make_legal
from fuzz.target.loader import check_fits, load
from fuzz.target.prefix_sums import prefix_sums
from fuzz.target.spec import Target, declare
from fuzz.triage.input_classes import plans
from fuzz.worker.protocol import Examine, WorkerConfig

DOCS = Path(__file__).parents[2] / "docs" / "targets.md"
BLOCKS = re.findall(r"^```python\n(import torch\n.*?)^```", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
EXAMPLES = {re.findall(r"^def (\w+)\(", block, re.MULTILINE)[-1]: block for block in BLOCKS}
SAMPLED = ("layout", "invariance", "autograd", "deterministic", "rejects")


def example(name: str, folder: Path) -> Target:
    """The target of an example of the documents."""
    path = folder / f"fuzz_{name}.py"
    path.write_text(EXAMPLES[name], encoding="utf-8")
    return load(str(path))


def drawn(target: Target, count: int) -> list[Case]:
    """Cases as a run has them: drawn, mutated, and those of the classes of inputs."""
    engine, context = RandomEngine(target, 0), MutationContext(target, Dictionary(), Random(0))
    plain = [engine.case(number) for number in range(count)]
    mutated = [mutate(case, context, MUTATIONS, 3) for case in plain]
    return [*plain, *mutated, *islice(plans(plain[0], target, "special"), 10)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_cases_of_an_example_of_the_documents_are_right_and_legal(name: str, tmp_path: Path) -> None:
    target = example(name, tmp_path)
    handle = make_handler(WorkerConfig(f"{target.path}:{target.name}", None, "cpu"))
    for number, case in enumerate(drawn(target, 40)):
        assert make_legal(case, target) is case
        check_fits(case, target, tmp_path)
        assert codec.loads(codec.dumps(Entry(case)).encode()).case.key == case.key
        if case.elements() < 1 << 12 and number % 3 == 0:
            report = handle(Examine(case, SAMPLED))
            assert report.findings == () and not report.rejected, report  # type: ignore[union-attr]


@pytest.mark.parametrize("name", EXAMPLES)
def test_passes_over_an_example_propose_what_fits_its_declaration(name: str, tmp_path: Path) -> None:
    target = example(name, tmp_path)
    for case in [case for case in drawn(target, 30) if case.elements() < 600][:8]:
        for simplify in dict.fromkeys((*COARSE, *FINE)):
            for candidate in islice(simplify(case, target), 40):
                check_fits(candidate, target, tmp_path)


def shrunk(target: Target, shows: Callable[[Case], bool]) -> Case:
    """The least case that shows something, from the first drawn one that does."""
    start = next(case for case in drawn(target, 60) if shows(case))
    finding = Finding("accuracy", ("y",), "value", "wrong")
    return Shrinker(target, start, finding, lambda case: finding if shows(case) else None, Budget(2000)).run()


def test_an_argument_may_be_none(tmp_path: Path) -> None:
    target = example("bias_relu", tmp_path)
    present = [len(call.arguments) for case in drawn(target, 40) for call in case.calls]
    assert set(present) == {1, 2} and present.count(2) > present.count(1)
    least = shrunk(target, lambda case: case.last.dims["N"] > 1)
    assert list(least.last.arguments) == ["x"] and least.last.options == {"limit": None}
    assert "options_0 = dict(limit=None, bias=None)" in list(call_lines(least.calls, target))
    with_bias = shrunk(target, lambda case: "bias" in case.last.arguments)
    assert list(with_bias.last.arguments) == ["x", "bias"] and with_bias.elements() == 2


def test_prefix_sums_go_from_0_to_the_total_and_shrink_to_few_parts(tmp_path: Path) -> None:
    target = example("segment_sums", tmp_path)
    sums = [
        (call.dims, call.arguments["cu_seqlens"].bits(call.dims)) for case in drawn(target, 40) for call in case.calls
    ]
    for dims, ends in sums:
        assert len(ends) == dims["S"] + 1 and (ends[0], ends[-1]) == (0, dims["T"]) and (ends[1:] >= ends[:-1]).all()
    assert any((ends[1:] == ends[:-1]).any() for _, ends in sums), "no part is empty"
    assert {call.arguments["x"].layout.kind for case in drawn(target, 40) for call in case.calls} == {
        "contiguous",
        "misaligned",
    }
    least = shrunk(target, lambda case: bool(np.diff(case.last.arguments["cu_seqlens"].bits(case.last.dims))[0] == 0))
    assert least.last.dims["S"] == 2 and least.last.dims["T"] == 1


@pytest.mark.parametrize(("declared", "message"), [
    (lambda N: prefix_sums(N, total=3), "less than the two elements 0 and 3"),
    (lambda N: prefix_sums(N + 1, total=N, dtypes=("float32",)), "prefix_sums.. are integers, not float32"),
])  # fmt: skip
def test_prefix_sums_that_cannot_be_are_named(declared: Callable[[Size], TensorArgument], message: str) -> None:
    N = size("N", 1, 8)
    with pytest.raises(TargetError, match=message):
        declare(lambda x: {"y": x}, name="t", x=declared(N), dims=(N,))


def test_an_argument_that_must_be_there_may_not_lack_in_an_entry(tmp_path: Path) -> None:
    target = example("bias_relu", tmp_path)
    bias = {"bias": Argument(("N",), "float32", recipe("zeros"))}
    with pytest.raises(CorpusError, match="its arguments are bias; those of target 'bias_relu' are bias, x"):
        check_fits(Case(target.name, (Call({"M": 1, "N": 1}, bias, {"limit": None}),)), target, tmp_path)


def test_a_target_needs_a_tensor_that_is_always_there() -> None:
    optional = tensor(size("N", 1, 8)) | None
    with pytest.raises(TargetError, match="one of its tensors at least"):
        declare(lambda x: {"y": x}, name="t", x=optional)
