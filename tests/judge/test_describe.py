"""What is found out of a problem: its dims, the shapes that follow from them, how its values may be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fuzz.errors import UsageError
from fuzz.judge.formats.kernelbench import KernelBenchProblem
from fuzz.judge.problem.description import OWN, RANDOM, ProblemDescription, TensorSlot, Unsupported
from fuzz.judge.processes.describe import PROBE_ELEMENTS, classify, classify_argument, describe, expression
from fuzz.judge.processes.requests import FLOPS
from fuzz.judge.processes.scale_down import count_flops, run_eagerly, scale_down
from fuzz.model.dims import resolve
from tests.judge.problems import FILTERS, GROUPS, LABELS, LINEAR, RELU, write


def test_dims_shapes_and_domains_of_a_module_with_weights(tmp_path: Path) -> None:
    found = describe(KernelBenchProblem(write(tmp_path, "linear", LINEAR)), 1 << 14, 5.0)
    shapes = {name: one.shape for name, one in found.arguments.items()}
    assert shapes == {
        "x": ("batch", "features"), "scale": ("outputs",),
        "linear.weight": ("outputs", "features"), "linear.bias": ("outputs",),
    }  # fmt: skip
    assert {size.name for size in found.sizes} == {"batch", "features", "outputs"}
    assert found.own_dims == {"batch": 4096, "features": 64, "outputs": 32}
    assert found.is_scaled and found.dims["batch"] < 4096
    x, weight, scale = (found.arguments[name] for name in ("x", "linear.weight", "scale"))
    assert x.declared is not None and x.declared.text() == "uniform/1 seed=0 exponent=0 signed=0"
    assert weight.is_state and weight.domain == RANDOM and not x.is_state
    assert scale.declared is not None and scale.declared.name == "zeros"


def test_labels_and_masks_are_made_by_the_problem_alone(tmp_path: Path) -> None:
    found = describe(KernelBenchProblem(write(tmp_path, "labels", LABELS)), 1 << 20, 5.0)
    assert {name: one.domain for name, one in found.arguments.items()} == {"x": RANDOM, "labels": OWN, "mask": OWN}
    assert found.arguments["x"].shape == ("batch", "shape_0") and not found.is_scaled


def test_the_setting_has_slots_for_tensors(tmp_path: Path) -> None:
    problem = KernelBenchProblem(write(tmp_path, "linear", LINEAR))
    setting = problem.setting({"batch": 2, "features": 3, "outputs": 4})
    assert setting.construct == (3, 4) and setting.call == (TensorSlot("x"),)


def test_values_with_a_structure_are_not_replaced_by_random_ones() -> None:
    torch.manual_seed(0)
    one, two = torch.rand(64, 64), torch.rand(64, 64)
    assert classify(one, two, is_state=False)[0] == RANDOM
    for structured in (torch.triu, lambda x: x + x.T, lambda x: x.softmax(1), torch.sign):
        assert classify(structured(one), structured(two), is_state=False)[0] == OWN


@pytest.mark.parametrize("fill", [float("-inf"), float("inf"), float("nan")])
@pytest.mark.parametrize("is_state", [False, True])
def test_values_that_are_not_finite_are_made_by_the_problem_alone(fill: float, is_state: bool) -> None:
    torch.manual_seed(0)
    for values in (torch.full((4, 4), fill), torch.randn(4, 4).fill_diagonal_(fill), torch.full((4, 4), fill).triu(1)):
        assert classify(values, values, is_state) == (OWN, None)


def test_an_argument_that_holds_nan_is_not_written_by_that(tmp_path: Path) -> None:
    source = RELU.replace("[torch.randn(N)]", "[torch.full((N,), float('nan'))]")
    path = write(tmp_path, "problem", source.replace("torch.relu(x)", "torch.nan_to_num(x)"))
    assert describe(KernelBenchProblem(path), 1 << 10, 5.0).in_place == ()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_values_of_16_bits_that_are_equal_by_chance_have_no_structure(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    one, two = torch.randn(64, 512).to(dtype), torch.randn(64, 512).to(dtype)
    domain, declared = classify(one, two, is_state=False)
    assert domain == RANDOM and declared is not None and declared.name == "normal"
    for structured in (torch.sign, lambda x: x.round()):
        assert classify(structured(one), structured(two), is_state=False)[0] == OWN


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> ProblemDescription:
    path = write(tmp_path_factory.mktemp("problem"), "groups", GROUPS)
    return describe(KernelBenchProblem(path), 1 << 17, 5.0)


def test_small_constants_are_halved_where_capping_the_large_ones_is_not_enough(groups: ProblemDescription) -> None:
    sizes = {name: one.shape for name, one in groups.arguments.items()}
    assert sizes["x"] == ("batch", "channels", "depth", "height", "width")
    assert groups.is_scaled and groups.dims["height"] < 64


def test_channels_in_groups_are_a_multiple_and_groups_shrink_in_proportion(groups: ProblemDescription) -> None:
    outputs = next(size for size in groups.sizes if size.name == "outputs")
    assert outputs.multiple == groups.dims["groups"] < 64 and groups.dims["outputs"] % outputs.multiple == 0
    assert groups.arguments["norm.weight"].shape == ("outputs",) and not groups.unvaried


def test_the_least_size_is_one_at_which_the_problem_runs(groups: ProblemDescription) -> None:
    assert {size.name: size.low for size in groups.sizes if size.name in ("depth", "height", "batch")} == {
        "depth": 3, "height": 3, "batch": 1,
    }  # fmt: skip


def test_large_results_between_operations_scale_a_problem_down(tmp_path: Path) -> None:
    source = RELU.replace("N = 37", "B, N = 64, 512").replace("torch.randn(N)", "torch.randn(B, N)")
    source = source.replace("torch.relu(x)", "(x[:, :, None] * x[:, None, :]).sum(-1)")
    found = describe(KernelBenchProblem(write(tmp_path, "outer", source)), 1 << 19, 60.0)
    assert found.is_scaled and found.dims["B"] * found.dims["N"] ** 2 <= 1 << 23


def test_operations_scale_a_problem_down_no_further_than_they_must(tmp_path: Path) -> None:
    problem = KernelBenchProblem(write(tmp_path, "linear", LINEAR))
    most = 1 << 20
    found = describe(problem, 1 << 20, 60.0, most)
    assert most // 4 < count_flops(problem, found.dims) <= most
    assert not describe(problem, 1 << 20, 60.0).is_scaled


def test_constants_that_cannot_be_varied_are_named(tmp_path: Path) -> None:
    source = LINEAR.replace("torch.rand(batch, features)", "torch.rand(batch * batch, features)")
    found = describe(KernelBenchProblem(write(tmp_path, "square", source)), 1 << 14, 5.0)
    assert list(found.unvaried) == ["batch"] and {size.name for size in found.sizes} == {"features", "outputs"}


def test_shapes_hold_for_a_constant_that_was_lowered_only_to_find_the_dims(tmp_path: Path) -> None:
    problem = KernelBenchProblem(write(tmp_path, "filters", FILTERS))
    assert scale_down(problem, PROBE_ELEMENTS, 60.0, FLOPS)["kernel_0"] == 1
    found = describe(problem, 1 << 20, 60.0)
    assert found.dims == found.own_dims and {size.name for size in found.sizes} == {"batch"}
    arguments, state = problem.make(found.dims, 0)
    tensors = {**arguments, **state, **run_eagerly(problem, found.dims)}
    shapes = {name: resolve(one.shape, found.dims) for name, one in {**found.arguments, **found.outputs}.items()}
    assert shapes == {name: value.shape for name, value in tensors.items()}


def test_a_problem_that_raises_is_unsupported(tmp_path: Path) -> None:
    source = LINEAR.replace("torch.relu", "torch.no_such_function")
    with pytest.raises(Unsupported, match="no_such_function"):
        describe(KernelBenchProblem(write(tmp_path, "broken", source)), 1 << 14, 5.0)


def test_a_file_without_a_model_is_no_problem(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no class Model"):
        KernelBenchProblem(write(tmp_path, "other", "x = 1\n"))


def test_memory_for_truth_values_is_filled_by_the_problem(tmp_path: Path) -> None:
    problem = KernelBenchProblem(write(tmp_path, "relu", RELU))
    problem.scratch = frozenset({"out"})
    mask, numbers = torch.zeros(2, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
    assert classify_argument(problem, "out", mask, mask, is_state=False) == (OWN, None)
    assert classify_argument(problem, "out", numbers, numbers, is_state=False)[0] == RANDOM


def test_a_size_may_shrink_with_a_dim(tmp_path: Path) -> None:
    source = RELU.replace("torch.randn(N)", "torch.randn(N), torch.rand(80 - N)").replace("(self, x)", "(self, x, y)")
    found = describe(KernelBenchProblem(write(tmp_path, "shrinking", source)), 1 << 14, 5.0)
    assert found.arguments["y"].shape == ("80 - N",)
    assert [size.high for size in found.sizes] == [64]
    assert expression(5, {"K": -1, "M": 2}, {"K": 3, "M": 4}) == "2*M - K"
    assert expression(9, {"M": -2}, {"M": 4}) == "17 - 2*M"
