"""Problems and solutions in KernelBench's format, small enough to be judged in tests."""

from __future__ import annotations

from pathlib import Path

LINEAR = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, outputs):
        super().__init__()
        self.linear = nn.Linear(features, outputs)
        self.scale = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return torch.relu(self.linear(x)) + self.scale


batch = 4096
features = 64
outputs = 32


def get_inputs():
    return [torch.rand(batch, features)]


def get_init_inputs():
    return [features, outputs]
"""
FILTERS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.filters = nn.Parameter(torch.rand(kernel[0], 300, 300))

    def forward(self, x):
        return torch.cat((x, self.filters.mean((1, 2))))


batch = 4
kernel = (3,)


def get_inputs():
    return [torch.rand(batch)]


def get_init_inputs():
    return [kernel]
"""
LABELS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, labels, mask):
        return torch.cumsum(x * mask, 1), nn.functional.cross_entropy(x, labels)


batch = 6
shape = (5,)


def get_inputs():
    x = torch.randn(batch, *shape)
    return [x, torch.randint(0, shape[0], (batch,)), torch.randint(0, 2, x.shape).bool()]


def get_init_inputs():
    return []
"""
GROUPS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, outputs, groups):
        super().__init__()
        self.conv = nn.Conv3d(channels, outputs, 3)
        self.norm = nn.GroupNorm(groups, outputs)

    def forward(self, x):
        return self.norm(self.conv(x))


batch, channels = 16, 16
outputs, groups = 2048, 64
depth, height, width = 16, 64, 64


def get_inputs():
    return [torch.rand(batch, channels, depth, height, width)]


def get_init_inputs():
    return [channels, outputs, groups]
"""
DROPOUT = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x)


def get_inputs():
    return [torch.rand(4, 8)]


def get_init_inputs():
    return []
"""


def write(folder: Path, name: str, source: str) -> Path:
    """A file with this source."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    return path


def as_solution(problem: str) -> str:
    """PyTorch itself as the solution: the problem's own module under the name of a solution."""
    return problem.replace("class Model(", "class ModelNew(")


RELU = """
import torch
import torch.nn as nn

N = 37


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""
