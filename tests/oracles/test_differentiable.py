"""Autograd functions: gradients by the kernel's own backward are compared, for cotangents with layouts of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fuzz.backends.autodiff import as_gradient
from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call, Case
from fuzz.model.recipes import Exact, recipe
from fuzz.oracles.examine import make_handler
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.run.watcher import Watcher
from fuzz.search.engines import RandomEngine
from fuzz.target.loader import load
from fuzz.worker.protocol import Examine, Report, WorkerConfig

TARGET = """
import torch
from fuzz import size, target, tensor

N = size("N", 1, 64)

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return x * dy + x * dy

@target(x=tensor(N), dtypes=("float32",), differentiable=dict(y=tensor(N)), reference=lambda x: dict(y=x * x))
def square(x):
    return dict(y=Square.apply(x))

square.planted("half", oracle="accuracy", outputs=("dx",), change=("x * dy + x * dy", "x * dy"))
square.planted(
    "flat", oracle="accuracy", outputs=("dx",),
    change=("x * dy + x * dy", "2 * x * dy.as_strided(x.shape, (0,))"),
)
"""


def run(path: Path, planted: str | None) -> Result:
    asked, found = RunOptions(str(path), planted, "cpu", cases=60, max_findings=1), path.parent / "corpus"
    return Fuzzer(asked, load(str(path)), "cpu", found, Watcher(), {}, with_cross_checks=False).run()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "fuzz_square.py"
    place.write_text(TARGET, encoding="utf-8")
    return place


def test_good_gradient_is_silent(path: Path) -> None:
    result = run(path, None)
    assert result.bugs == [] and result.statistics.cases == 60


@pytest.mark.parametrize("planted", ["half", "flat"])
def test_wrong_gradient_is_found(path: Path, planted: str) -> None:
    bug = run(path, planted).bugs[0]
    assert (bug.finding.oracle, bug.finding.outputs) == ("accuracy", ("dx",))
    assert bug.case.last.dims == {"N": 1 if planted == "half" else 2}
    assert list(bug.case.last.cotangents) == ["y"]


def test_true_is_refused_with_what_would_be_right(tmp_path: Path) -> None:
    place = tmp_path / "fuzz_wrong.py"
    place.write_text(TARGET.replace("differentiable=dict(y=tensor(N))", "differentiable=True"), encoding="utf-8")
    with pytest.raises(TargetError, match="takes the outputs' shapes"):
        load(str(place))


DECLARED = """
from fuzz import by_option, option, size, target, tensor

M, N = size("M", 1, 8), size("N", 1, 8)

@target(
    x=tensor(M, N), mode=option("none", "sum"), dtypes=("float32",), differentiable=dict(y={shape}),
    reference=lambda x, mode: dict(y=x * 2 if mode == "none" else x.sum()),
)
def doubled(x, mode):
    return dict(y=x * 2 if mode == "none" else x.sum())
"""
BY_OPTION = 'by_option("mode", dict(none=tensor({dims}), sum=tensor()))'


def check_declared(folder: Path, shape: str) -> None:
    place = folder / "fuzz_doubled.py"
    place.write_text(DECLARED.format(shape=shape), encoding="utf-8")
    handle = make_handler(WorkerConfig(str(place), None, "cpu"))
    engine = RandomEngine(load(str(place)), 0)
    for number in range(20):
        handle(Examine(engine.case(number), ()))


@pytest.mark.parametrize(("shape", "message"), [
    ("tensor(M)", r"declares 'y' as tensor\(M\), \(2,\) at M=2; the reference returns \(2, 2\)$"),
    (BY_OPTION.format(dims="N"), r"declares 'y' as tensor\(N\), \(2,\) at N=2; the reference returns \(2, 2\)$"),
    (BY_OPTION.format(dims="N, M"), r"declares 'y' as tensor\(N, M\), \(\d, \d\) at N=\d, M=\d; the reference returns"),
])  # fmt: skip
def test_a_shape_that_the_reference_does_not_return_is_the_declarations_fault(
    tmp_path: Path, shape: str, message: str
) -> None:
    with pytest.raises(TargetError, match=f"^target 'doubled': differentiable {message}"):
        check_declared(tmp_path, shape)


def test_a_shape_by_option_that_the_reference_returns_is_in_order(tmp_path: Path) -> None:
    check_declared(tmp_path, BY_OPTION.format(dims="M, N"))


SHIFTED = """
import torch
from fuzz import size, target, tensor

N = size("N", 1, 16)

class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        return x + by

    @staticmethod
    def backward(ctx, dy):
        return dy, dy.double().sum().to(dy.dtype)

@target(
    x=tensor(N), by=tensor(), dtypes=("bfloat16",), differentiable=dict(y=tensor(N, dtypes=("float32",))),
    reference=lambda x, by: dict(y=x + by),
)
def shifted(x, by):
    return dict(y=Shifted.apply(x, by))
"""


def test_a_cotangent_is_rounded_to_its_outputs_dtype_before_a_backward_gets_it(tmp_path: Path) -> None:
    place = tmp_path / "fuzz_shifted.py"
    place.write_text(SHIFTED, encoding="utf-8")
    x = Argument(("N",), "bfloat16", recipe("zeros"))
    # bfloat16 has no -1.2226562, of which cancellation leaves the error.
    dy = Argument(("N",), "float32", Exact((0xBF9C8000, 0x3F800000), "float32"))
    case = Case("shifted", (Call({"N": 2}, {"x": x, "by": replace(x, shape=())}, {}, {"y": dy}),))
    report = make_handler(WorkerConfig(str(place), None, "cpu"))(Examine(case, ()))
    assert isinstance(report, Report) and "accuracy" in report.examined and report.findings == ()


MASKED = """
import torch
from fuzz import size, target, tensor

N = size("N", 1, 16)

class Positive(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x > 0)
        return x * (x > 0)

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]

@target(
    x=tensor(N), dtypes=("float16",), differentiable=dict(y=tensor(N, dtypes=("float32", "bfloat16"))),
    reference=lambda x: dict(y=torch.where(x > 0, x, 0.0)),
)
def positive(x):
    return dict(y=Positive.apply(x))
"""


@pytest.mark.parametrize("values", ["zeros", "ones"])
@pytest.mark.parametrize(("dtype", "words"), [("float32", (0x47800000, 0xF0000000)), ("bfloat16", (0x4780, 0xF000))])
def test_a_cotangent_beyond_its_outputs_dtype_is_the_largest_number_there(
    tmp_path: Path, dtype: str, words: tuple[int, ...], values: str
) -> None:
    """Infinities, times the zeros of a mask, would be NaN; the reference is given that number, too, in all digits."""
    place = tmp_path / "fuzz_positive.py"
    place.write_text(MASKED, encoding="utf-8")
    x, dy = Argument(("N",), "float16", recipe(values)), Argument(("N",), dtype, Exact(words, dtype))
    case = Case("positive", (Call({"N": 2}, {"x": x}, {}, {"y": dy}),))
    report = make_handler(WorkerConfig(str(place), None, "cpu"))(Examine(case, ()))
    assert isinstance(report, Report) and "accuracy" in report.examined and report.findings == ()


def test_a_cotangent_that_is_infinite_stays_so() -> None:
    given = torch.tensor([1.0, 65536.0, -1e30, float("inf"), float("nan")], dtype=torch.bfloat16)
    got = as_gradient(given, torch.zeros(5, dtype=torch.float16)).tolist()
    assert got[:4] == [1.0, 65504.0, -65504.0, float("inf")] and got[4] != got[4]
