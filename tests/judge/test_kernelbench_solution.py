"""Files that hold solutions in KernelBench's format."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fuzz.judge.formats.kernelbench_solution import KernelBenchSolution
from fuzz.judge.formats.weights import Weight
from fuzz.judge.problem.description import Setting, Unsupported
from tests.judge.problems import LINEAR, RELU, as_solution, write


def test_a_solution_is_the_module_model_new_or_model_where_there_is_no_other(tmp_path: Path) -> None:
    assert KernelBenchSolution(write(tmp_path, "new", RELU + as_solution(RELU))).model.__name__ == "ModelNew"
    assert KernelBenchSolution(write(tmp_path, "plain", RELU)).model.__name__ == "Model"


def test_a_file_without_a_module_is_no_solution(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no class ModelNew"):
        KernelBenchSolution(write(tmp_path, "none", "x = 1\n"))


def test_weights_of_other_names_are_set_and_differentiated(tmp_path: Path) -> None:
    source = as_solution(LINEAR).replace("self.linear", "self.project")
    solution = KernelBenchSolution(write(tmp_path, "linear", source))
    module = solution.build(Setting((3, 2)))
    state = {"scale": torch.ones(2), "linear.weight": torch.ones(2, 3), "linear.bias": torch.zeros(2)}
    wanted = [Weight("scale", (2,), "zeros"), Weight("linear.weight", (2, 3)), Weight("linear.bias", (2,))]
    solution.set_state(module, state, wanted)
    assert module(torch.ones(1, 3)).tolist() == [[4.0, 4.0]]
    assert solution.renamed == (
        "weights by shape and order: project.weight for linear.weight, project.bias for linear.bias"
    )
    followed = {name: value.clone().requires_grad_() for name, value in state.items()}
    solution.call_differentiably(module, followed, (torch.ones(1, 3),), {}).sum().backward()
    assert followed["linear.bias"].grad is not None and followed["linear.bias"].grad.tolist() == [1.0, 1.0]
