"""Operations that are computed by other ones give the same, and a problem with them is a solution of it."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.equal_operations import EqualOperations
from benchmarks.referee import with_equal_operations

RELU = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""


def test_other_operations_give_the_same_up_to_rounding() -> None:
    torch.manual_seed(0)
    layers = nn.Linear(7, 5), nn.GELU(), nn.GELU("tanh"), nn.LayerNorm(5), nn.SiLU(), nn.Softmax(1), nn.LogSoftmax(1)
    model, x = nn.Sequential(*layers, nn.ReLU()).double(), torch.randn(4, 7).double()

    def compute() -> list[torch.Tensor]:
        products = x @ x.T, torch.bmm(x[None], x.T[None]), x @ x[0]
        means = x.mean(), torch.mean(x, 1), x.mean((0, 1), keepdim=True)
        return [model[:-1](x), model(x), torch.sigmoid(x), *products, *means]

    with EqualOperations():
        other = compute()
    for one, same in zip(compute(), other, strict=True):
        assert one.shape == same.shape
        torch.testing.assert_close(one, same)


def test_a_problem_becomes_a_solution_whatever_its_last_line_is() -> None:
    problem = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n"
    )
    for text in (problem, f'{problem}"""The end."""'):
        names: dict[str, type[nn.Module]] = {"__name__": "solution"}  # type: ignore[dict-item]
        exec(compile(with_equal_operations(text), "solution.py", "exec"), names)
        assert names["ModelNew"]()(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]
