"""Kinds of arguments: the examples of docs/targets.md are drawn, run, shrunk, saved and read again as they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import fuzz
from fuzz.corpus import codec
from fuzz.errors import CorpusError, TargetError
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import Size
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.recipes import recipe
from fuzz.oracles.examine import make_handler
from fuzz.oracles.execution.probe import probe_reference
from fuzz.report.reproducer.script import call_texts
from fuzz.search.engines import RandomEngine
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.mutations import MUTATIONS, MutationContext, mutate
from fuzz.shrink.passes import COARSE, FINE
from fuzz.shrink.shrinker import Budget, Shrinker
from fuzz.target.arguments import TensorArgument, by_option, option, size, tensor
from fuzz.target.inputs import given_case
from fuzz.target.legal import make_legal
from fuzz.target.loader import check_fits, load
from fuzz.target.prefix_sums import prefix_sums
from fuzz.target.shapes import sizes
from fuzz.target.spec import Target, declare
from fuzz.triage.input_classes import plans
from fuzz.worker.protocol import Examine, WorkerConfig

DOCS = Path(__file__).parents[2] / "docs" / "targets.md"
BLOCKS = re.findall(r"^```python\n(import torch\n.*?)^```", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
EXAMPLES = {re.findall(r"^def (\w+)\(", block, re.MULTILINE)[-1]: block for block in BLOCKS}
TENSORS = ("x", "residual", "gate", "bias")
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
        if case.elements() < 1 << 12 and number % 6 == 0:
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
    assert call_texts(least.last, target)["options"] == "limit=None, bias=None"
    with_bias = shrunk(target, lambda case: "bias" in case.last.arguments)
    assert list(with_bias.last.arguments) == ["x", "bias"] and with_bias.elements() == 2


def test_a_reference_is_tried_with_prefix_sums_that_reach_the_total() -> None:
    S, T = size("S", 1, 5), size("T", 3, 9)

    def reference(x, ends):
        assert ends.tolist() == [0, 1, 3]
        return dict(y=torch.cat([part * 2 for part in x.split(ends.diff().tolist())]))

    def doubled(x, ends):
        return dict(y=2 * x)

    declared = fuzz.target(x=tensor(T), ends=prefix_sums(S + 1, total=T), dims=(S,), reference=reference)(doubled)
    assert probe_reference(declared)["y"].tolist() == [2.0, 2.0, 2.0]


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
    (lambda N: prefix_sums(N + 1, total=size("T", 1, 128), dtypes=("int8",)), "up to 128, and int8 ends at 127"),
    (lambda N: prefix_sums(N + 1, total=300, dtypes=("uint8",)), "a total of up to 300, and uint8 ends at 255"),
])  # fmt: skip
def test_prefix_sums_that_cannot_be_are_named(declared: Callable[[Size], TensorArgument], message: str) -> None:
    N = size("N", 1, 8)
    with pytest.raises(TargetError, match=message):
        declare(lambda x: {"y": x}, name="t", x=declared(N), dims=(N,))


def test_a_total_beyond_a_dtype_that_is_an_expression_is_named_when_it_is_drawn() -> None:
    N = size("N", 1, 80)
    target = declare(lambda x: {"y": x}, name="t", x=prefix_sums(N + 1, total=2 * N, dtypes=("int8",)), dims=(N,))
    with pytest.raises(TargetError, match="end at a total of up to [0-9]+, and int8 ends at 127"):
        drawn(target, 200)


def test_ranks_vary_and_dims_are_1_or_full(tmp_path: Path) -> None:
    target = example("gated_bias", tmp_path)
    shapes = {
        name: {call.arguments[name].shape for case in drawn(target, 60) for call in case.calls} for name in TENSORS
    }
    runs = {("M", "N"), ("B0", "M", "N"), ("B0", "B1", "M", "N")}
    assert shapes["x"] == shapes["residual"] == runs and shapes["bias"] == {("M", "N"), ("N",), ()}
    assert shapes["gate"] == {("M", "N"), ("1", "N"), ("M", "1"), ("1", "1")}
    for case in drawn(target, 60):
        alike = {case.last.tensors[name].shape for name in ("x", "residual", "grad y")}
        assert len(alike) == 1, "tensors of a call have as many dims of a run"
    least = shrunk(target, lambda case: len(case.last.arguments["x"].shape) > 2)
    assert [value.shape for value in least.last.arguments.values()] == [("B0", "M", "N")] * 2 + [("1", "1"), ()]
    least = shrunk(target, lambda case: case.last.arguments["gate"].shape[0] == "M" and case.last.dims["M"] > 1)
    assert [value.shape for value in least.last.arguments.values()] == [("M", "N")] * 2 + [("M", "1"), ()]


def test_a_given_tensor_has_the_shape_that_fits_it(tmp_path: Path) -> None:
    target = example("gated_bias", tmp_path)
    x = np.ones((5, 1, 3), np.float32)
    call = given_case(target, [dict(x=x, residual=x, gate=np.ones((1, 1), np.float32), bias=x[0, 0])]).last
    assert call.dims == {"B0": 5, "B1": 1, "M": 1, "N": 3}
    assert call.arguments["gate"].shape in (("M", "1"), ("1", "1")) and call.arguments["bias"].shape == ("N",)
    assert call.cotangents["y"].shape == ("B0", "M", "N")
    with pytest.raises(TargetError, match=r"bias has the shape \(2,\), where \(3,\) is due"):
        given_case(target, [dict(x=x, residual=x, gate=x[0], bias=x[0, 0, :2])])


K = size("K", 1, 8)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: tensor(size("N", 1, 8) | 2), "a dim is full or 1"),
    (lambda: tensor((K, 2 * K)), r"without brackets: tensor\(K, 2\*K\)$"),
    (lambda: tensor([K, 3]), r"without brackets: tensor\(K, 3\)$"),
    (lambda: tensor("K", "N"), r'a dim of a shape is a size, such as N = size\("N", 1, 64\), .* and not \'K\''),
    (lambda: tensor(2.0), "an expression of sizes or a whole number, and not 2.0$"),
    (lambda: prefix_sums((K,), total=3), r"without brackets: tensor\(K\)$"),
    (lambda: sizes("B", 0, 2.0), r"sizes\('B', ..\) takes whole numbers, and not 2.0: write 2$"),
    (lambda: sizes(0, 1, 2), r'a dim begins with its name, as in size\("N", 1, 64\), and not with 0'),
    (lambda: sizes("B", 2, 2), "0 <= least < most"),
    (lambda: sizes("B", 0, 2, low=3, high=2), "no size lies between 3 and 2"),
    (lambda: tensor(size("N", 1, 8)) | tensor(size("N", 1, 8), dtypes=("int64",)), "only the shape may be another one"),
])  # fmt: skip
def test_shapes_that_cannot_be_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        make()


def test_an_option_decides_a_shape(tmp_path: Path) -> None:
    target = example("relu_loss", tmp_path)
    for call in [call for case in drawn(target, 40) for call in case.calls]:
        assert call.arguments["weight"].shape == (("2*N",) if call.options["gated"] else ("N",))
        assert call.cotangents["loss"].shape == (("M",) if call.options["reduction"] == "none" else ())
    least = shrunk(target, lambda case: case.last.options["gated"] is True)
    assert least.last.arguments["weight"].shape == ("2*N",) and least.last.options["reduction"] == "mean"
    given = dict(x=np.ones((2, 3), np.float32), weight=np.ones(6, np.float32), gated=True, reduction="none")
    assert given_case(target, [given]).last.cotangents["loss"].shape == ("M",)


@pytest.mark.parametrize(("choices", "message"), [
    (([False, True],), r"of \[False, True\] alone; .* without brackets: option\(False, True\)$"),
    (((1, "a"),), r"of \(1, 'a'\) alone; .* without brackets: option\(1, 'a'\)$"),
    ((1, (16, 16)), r"of \(16, 16\): bool, int, float, str or None is due$"),
])  # fmt: skip
def test_a_list_of_choices_is_no_choice(choices: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TargetError, match=f"^argument 'mode' is an option {message}"):
        declare(lambda x, mode: {"y": x}, name="t", x=tensor(size("N", 1, 8)), mode=option(*choices))


def test_a_shape_by_option_needs_every_choice() -> None:
    x = by_option("mode", {"a": tensor(size("N", 1, 8))})
    with pytest.raises(TargetError, match=r"needs the shape for each choice: \('a', 'b'\)"):
        declare(lambda x, mode: {"y": x}, name="t", x=x, mode=option("a", "b"))
    with pytest.raises(TargetError, match="needs the shape for each choice"):
        declare(lambda x: {"y": x}, name="t", x=x)
    with pytest.raises(TargetError, match="takes one shape for each choice"):
        by_option("mode", {"a": x})


def test_an_argument_that_must_be_there_may_not_lack_in_an_entry(tmp_path: Path) -> None:
    target = example("bias_relu", tmp_path)
    bias = {"bias": Argument(("N",), "float32", recipe("zeros"))}
    with pytest.raises(CorpusError, match="its arguments are bias; those of target 'bias_relu' are bias, x"):
        check_fits(Case(target.name, (Call({"M": 1, "N": 1}, bias, {"limit": None}),)), target, tmp_path)


def test_a_target_needs_a_tensor_that_is_always_there() -> None:
    optional = tensor(size("N", 1, 8)) | None
    with pytest.raises(TargetError, match="one of its tensors at least"):
        declare(lambda x: {"y": x}, name="t", x=optional)
