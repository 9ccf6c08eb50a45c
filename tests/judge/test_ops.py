"""Implementations of PyTorch's operations, judged on samples of its own test-suite."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fuzz.errors import UsageError
from fuzz.judge.formats.ops import OpsProblem, OpsSolution, WrongForm
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.ops import judge_ops, samples
from fuzz.judge.ops.judge_ops import judge_operations, judge_samples, list_files
from fuzz.judge.ops.registrations import folder_operation, load_registrations
from fuzz.judge.ops.report import format_table, operations_json
from fuzz.judge.ops.requests import FindSamples, SampleConfig, SampleFile
from fuzz.judge.ops.samples import SampleFinder
from fuzz.judge.ops.schemas import bind, find_counterpart, find_functional, find_overload, full_name
from fuzz.judge.problem.description import Setting
from fuzz.judge.processes.requests import Refusal, SolutionConfig
from fuzz.judge.result.judgement import ODD_VALUES, RIGHT, UNSUPPORTED, WRONG, Judgement
from fuzz.run.setup import start_worker_server
from fuzz.worker.worker import Worker
from tests.judge.problems import write

MODULE = """
import torch
import triton
import triton.language as tl

library = torch.library.Library("aten", "IMPL")


@triton.jit
def positive(x, out, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    values = tl.load(x + at, at < n)
    tl.store(out + at, tl.where(values < 0, 0, values), at < n)


def relu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        positive[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), B=64)
    return out


def neg(x):
    x.neg_()
    return x.clone()


def sigmoid(x):
    if x.dtype != torch.float32:
        raise NotImplementedError("only float32")
    return 1 / (1 + torch.exp(-x))


@torch.library.custom_op("fuzzed::frobnicate", mutates_args=())
def frobnicate(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def define(name, function, factor):
    operation = torch.library.custom_op(f"fuzzed::{name}", mutates_args=())(function)
    operation.register_autograd(
        lambda ctx, grad: grad * factor(ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
    )


def cosh(x: torch.Tensor) -> torch.Tensor:
    return torch.cosh(x)


def exp(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x)


define("cosh", cosh, lambda y: y)
define("exp", exp, lambda y: y)
library.impl("relu", relu, "CUDA")
library.impl("tanh", lambda x: torch.tanh(x) * (1 + 1e-3), "CUDA")
library.impl("neg", neg, "CUDA")
library.impl("sigmoid", sigmoid, "CUDA")
"""


@pytest.fixture(scope="module")
def judgements(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Judgement]:
    path = write(tmp_path_factory.mktemp("ops"), "module", MODULE)
    start_worker_server()
    options = JudgeOptions(path, path, "ops", "cpu", seconds=0.0)
    return {one.problem: one for one in judge_operations(options, lambda text: None, most=(1, 1))}


def test_a_right_operation_is_right(judgements: dict[str, Judgement]) -> None:
    found = judgements["aten::relu"]
    assert (found.verdict, found.evidence) == (RIGHT, []), found.reason
    assert found.launches > 0 and found.cases >= 15 and found.refused == 0


def test_a_wrong_value_is_wrong(judgements: dict[str, Judgement]) -> None:
    found = judgements["aten::tanh"]
    assert (found.verdict, found.evidence[-1].oracle) == (WRONG, "accuracy"), found.reason


def test_gradients_of_registered_formulas_are_compared(judgements: dict[str, Judgement]) -> None:
    right, wrong = judgements["fuzzed::exp"], judgements["fuzzed::cosh"]
    assert (right.verdict, right.evidence) == (RIGHT, []) and "gradients" in right.kinds, right.reason
    assert wrong.verdict == WRONG and wrong.evidence[-1].outputs == ("dinput",), wrong.reason
    assert "gradients" not in judgements["aten::relu"].kinds


def test_an_argument_that_the_schema_does_not_mark_must_not_change(judgements: dict[str, Judgement]) -> None:
    found = judgements["aten::neg"]
    assert (found.verdict, found.evidence[-1].oracle) == (WRONG, "mutation"), found.reason


FORMS = """
import torch

library = torch.library.Library("aten", "IMPL")
library.impl("relu_", lambda x: x.clone().relu_(), "CUDA")
library.impl("add.out", lambda x, y, *, alpha=1, out: torch.add(x, y, alpha=alpha), "CUDA")
library.impl("floor", lambda x: torch.floor(x).double(), "CUDA")
library.impl("ceil", lambda x: torch.ceil(x).reshape(-1), "CUDA")
library.impl("trunc", lambda x: torch.trunc(x.t()).contiguous().t(), "CUDA")
library.impl("sin_", lambda x: x, "CUDA")
"""


@pytest.mark.parametrize(
    ("operation", "names", "text"),
    [
        ("aten::relu_", (), "it returns a tensor of its own where the schema returns self"),
        ("aten::add.out", ("out",), "it returns a tensor of its own where the schema returns out"),
        ("aten::floor", (), "out is torch.float64, and that of the operation torch.float32"),
        ("aten::ceil", (), r"out has shape \(6,\), and that of the operation \(2, 3\)"),
        ("aten::trunc", (), r"out has strides \(1, 2\), and that of the operation \(3, 1\)"),
    ],
)
def test_what_is_returned_has_the_form_that_schema_and_operation_give(
    tmp_path: Path, operation: str, names: tuple[str, ...], text: str
) -> None:
    call = OpsSolution(write(tmp_path, "module", FORMS)).build(Setting((operation, True)))
    x = torch.randn(2, 3)
    others = (x,) if names else ()
    with pytest.raises(WrongForm, match=text):
        call(x, *others, **{name: torch.empty(2, 3) for name in names})


VIEWS = """
import torch

library = torch.library.Library("aten", "IMPL")
library.impl("unsqueeze", lambda x, dim: torch.unsqueeze(x, dim).clone(), "CUDA")
library.impl("t", lambda x: torch.as_strided(x, (3, 2), (1, 3)), "CUDA")
library.impl("reshape", lambda x, shape: torch.reshape(x, shape), "CUDA")
library.impl("dropout", lambda x, p, train: x.clone(), "CUDA")
"""


def test_what_the_schema_calls_a_view_lies_in_the_memory_of_its_argument(tmp_path: Path) -> None:
    solution, x = OpsSolution(write(tmp_path, "module", VIEWS)), torch.randn(2, 3)
    with pytest.raises(WrongForm, match="out is a copy, and that of the operation a view of input"):
        solution.build(Setting(("aten::unsqueeze", True)))(x, 0)
    honest = {"t": (x,), "reshape": (x.t(), [6]), "dropout": (x, 0.5, False)}
    for name, arguments in honest.items():
        assert "out" in solution.build(Setting((f"aten::{name}", True)))(*arguments)
    assert "out" in solution.build(Setting(("aten::reshape", True)))(x, [6])


def test_a_form_that_differs_between_devices_is_not_checked(tmp_path: Path) -> None:
    """The mean and deviation of PyTorch's layer norm have the dtype of the input on a CPU, and float32 elsewhere."""
    norm = find_overload("aten::native_layer_norm")
    halves = [torch.ones(2, 4, dtype=torch.bfloat16), [4], torch.ones(4, dtype=torch.bfloat16), None, 1e-5]
    floats = [torch.ones(2, 4), [4], torch.ones(4), None, 1e-5]
    assert not samples.has_form(norm, (tuple(halves), {})) and samples.has_form(norm, (tuple(floats), {}))
    call = OpsSolution(write(tmp_path, "module", FORMS)).build(Setting(("aten::floor", False)))
    assert call(torch.ones(2))["out"].dtype == torch.float64


def test_an_argument_that_the_schema_marks_is_an_output(tmp_path: Path) -> None:
    call = OpsSolution(write(tmp_path, "module", FORMS)).build(Setting(("aten::sin_", True)))
    x = torch.randn(2, 3)
    assert {name: value is x for name, value in call(x).items()} == {"out": True, "input written": True}


def test_a_dtype_that_is_refused_is_said(judgements: dict[str, Judgement]) -> None:
    found = judgements["aten::sigmoid"]
    assert found.verdict == RIGHT and found.refused > 0, found.reason
    assert any(note.startswith("refuses bfloat16: ") and "only float32" in note for note in found.notes)


def test_an_operation_that_pytorch_does_not_have_is_unsupported(judgements: dict[str, Judgement]) -> None:
    found = judgements["fuzzed::frobnicate"]
    assert found.verdict == UNSUPPORTED and "PyTorch has no operation fuzzed::frobnicate" in found.reason


def test_an_operation_without_samples_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples.SampleFinder, "infos", ())
    found = SampleFinder(SampleConfig(tmp_path))(FindSamples("aten::square", "aten::square"))
    assert isinstance(found, Refusal) and "OpInfo has no sample that calls aten::square" in found.text


class Description:
    """As much of an OpInfo as is read: an operation on two tensors of the same shape."""

    name, aten_name, domain = "add", "add", (None, None)
    dtypes = (torch.float32,)

    class Sample:
        def __init__(self) -> None:
            self.input, self.args, self.kwargs = torch.rand(3, 4) * 18 - 9, (torch.rand(4) * 18 - 9,), {"alpha": 2}

    def sample_inputs(self, device: str, dtype: torch.dtype) -> list[Description.Sample]:
        return [self.Sample()]

    def __call__(self, *args: torch.Tensor, **kwargs: int) -> torch.Tensor:
        return torch.add(*args, **kwargs)


@pytest.mark.parametrize("operation", ["aten::add.Tensor", "aten::add_.Tensor", "aten::add.out"])
def test_samples_of_operations_that_write_are_made_of_those_that_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(samples.SampleFinder, "infos", (Description(),))
    found = SampleFinder(SampleConfig(tmp_path))(FindSamples(operation, operation))
    assert isinstance(found, tuple)
    (file,) = found
    assert isinstance(file, SampleFile) and file.dtype == "float32"
    problem = OpsProblem(file.path)
    assert set(problem.declared) == {"input", "other"} and len(problem.sample.draws) == 3
    tensors, _ = problem.make({}, 1)
    outputs = problem.compute({}, tensors, torch.float32)
    expected = tensors["input"] + 2 * tensors["other"]
    assert all(torch.equal(value, expected) for value in outputs.values())
    written = {"aten::add.Tensor": set(), "aten::add_.Tensor": {"input"}, "aten::add.out": {"out"}}[operation]
    assert problem.written == written and set(outputs) == {"out", *(f"{name} written" for name in written)}


def test_what_is_registered_for_aten_takes_no_effect(tmp_path: Path) -> None:
    source = (
        "import torch\n@torch.library.impl('aten::exp', 'CPU')\ndef exp(x):\n    return x\n"
        "library = torch.library.Library('aten', 'IMPL', 'CUDA')\nlibrary.impl(torch.ops.aten.add.Tensor, exp)\n"
        "library.impl('log', exp, 'Meta')\nlibrary.impl('sin', torch.library.fallthrough_kernel)\n"
    )
    functions = load_registrations(write(tmp_path, "module", source)).functions
    assert set(functions) == {"aten::exp", "aten::add.Tensor"}
    assert torch.exp(torch.zeros(1)).item() == 1


def test_a_folder_of_backendbench_is_one_operation_a_folder(tmp_path: Path) -> None:
    for name in ("add___Tensor", "_softmax__default", "empty"):
        (tmp_path / name).mkdir()
    write(tmp_path / "add___Tensor", "add___Tensor_implementation_v2", "")
    source = "def add___Tensor_kernel_impl(x, y, *, alpha=1):\n    return x.add_(y, alpha=alpha)\n"
    first = write(tmp_path / "add___Tensor", "add___Tensor_implementation_v1", source)
    softmax = write(tmp_path / "_softmax__default", "_softmax__default_implementation", "x = 1\n")
    assert list(list_files(tmp_path)) == [softmax, first]
    assert [folder_operation(one) for one in ("add___Tensor", "_softmax__default")] == [
        "add_.Tensor",
        "_softmax.default",
    ]
    assert set(OpsSolution(first).functions) == {"aten::add_.Tensor"}
    assert OpsSolution(softmax).functions == {}


def test_a_function_of_backendbench_is_found_in_a_file_that_lies_elsewhere(tmp_path: Path) -> None:
    source = "def relu__default_kernel_impl(x):\n    return x\n\n\ndef help_kernel_impl(x):\n    return x\n"
    assert set(OpsSolution(write(tmp_path, "solution", source)).functions) == {"aten::relu"}


def test_the_operations_of_a_module_are_a_table_and_one_value() -> None:
    def judgement(operation: str, verdict: str, cause: str = "") -> Judgement:
        found = Judgement(verdict, f"of {operation}", operation, "m.py", "cpu", 1.5, 2, own_rule=True, cause=cause)
        found.kinds.append(ODD_VALUES)
        return found

    found = [judgement("aten::relu", RIGHT), judgement("aten::exp", WRONG), judgement("x::y", UNSUPPORTED, "problem")]
    lines = format_table(found).splitlines()
    assert lines[0].split() == ["operation", "verdict", "severity", "own", "rule", "cases", "seconds", "reason"]
    assert lines[2].split() == ["aten::exp", "WRONG", "passes", "2", "1.5", "of", "aten::exp"]
    assert lines[-1] == "3 operations: 1 RIGHT, 1 UNSUPPORTED, 1 WRONG"
    value = operations_json(found)
    assert (value["verdict"], value["reason"], value["cases"]) == (WRONG, "aten::exp: of aten::exp", 6)
    assert [one["problem"] for one in value["operations"]] == ["aten::relu", "aten::exp", "x::y"]
    assert [operations_json(some)["score"] for some in (found, found[::2], found[:1])] == [0.0, None, 1.0]


def test_a_folder_without_implementations_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no implementation"):
        list(judge_operations(JudgeOptions(tmp_path, tmp_path, "ops", "cpu"), lambda text: None))


def test_there_is_a_folder_for_what_a_module_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[SolutionConfig] = []

    def start(config: SolutionConfig, *options: object) -> Worker:
        configs.append(config)
        raise UsageError("enough")

    monkeypatch.setattr(judge_ops, "start_solution", start)
    given = SampleFile(tmp_path / "0.sample", "float32")
    for name in ("first", "first", "second"):
        with pytest.raises(UsageError, match="enough"):
            judge_samples(JudgeOptions(tmp_path, tmp_path / f"{name}.py", "ops", "cpu"), "aten::relu", [given])
    assert all(one.build_folder.is_dir() for one in configs)
    assert len({one.build_folder for one in configs}) == 2


def test_counterparts_and_calls_follow_the_schema() -> None:
    library = torch.library.Library("fuzzed_ops", "DEF")
    library.define("silu(Tensor self) -> Tensor")
    library.define("tanh(Tensor(a!) self) -> Tensor(a!)")
    assert full_name(find_counterpart("fuzzed_ops::silu")) == "aten::silu"
    assert find_counterpart("fuzzed_ops::tanh") is None
    assert full_name(find_functional(find_overload("aten::add.out"))) == "aten::add.Tensor"
    x = torch.ones(2)
    add = find_overload("aten::add.Tensor")
    args, kwargs = bind(add, (x,), {"other": x, "alpha": 1})
    assert len(args) == 2 and kwargs == {} and bind(add, (x, x), {"alpha": 2})[1] == {"alpha": 2}
    with pytest.raises(TypeError, match="needs other"):
        bind(add, (x,), {})
