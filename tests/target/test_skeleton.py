"""What `fuzz new` writes: a declaration as wide as the launcher's signature, which loads as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fuzz.errors import TargetError
from fuzz.target.loader import load
from fuzz.target.skeleton.text import skeleton
from fuzz.target.spec import Target

LAUNCHERS = """
from __future__ import annotations
import enum
from typing import Literal, Optional
import torch
from torch import Tensor
from torch.library import triton_op

class Mode(enum.Enum):
    FAST = 1
    SLOW = 2

def attention(q: Tensor, cu_seqlens: "torch.Tensor", labels, bias: Optional[Tensor], num_heads, mask=None,
              causal: bool = False, scale: float | None = None, mode: Mode = Mode.SLOW,
              act: Literal["relu", "silu"] = "silu", *, out: Tensor | None = None,
              dtype: torch.dtype | None = None, eps=1e-5):
    return q

@triton_op("mine::add_", mutates_args={"x"})
def add_(x: Tensor, y: Tensor, n: int) -> None:
    x.add_(y)

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps=1e-5):
        return x

    @staticmethod
    def backward(ctx, dy):
        return dy, None, None

class MyNorm(torch.nn.Module):
    def __init__(self, hidden: int, eps: float = 1e-5, bias: bool = True):
        super().__init__()

    def forward(self, x: Tensor, residual: Tensor | None = None):
        return x * 2

class Nothing:
    pass
"""


def written(folder: Path, name: str) -> Target:
    """The target that the skeleton of a launcher declares."""
    launchers = folder / f"launchers_of_{name}.py"
    launchers.write_text(LAUNCHERS)
    path = folder / f"fuzz_{name}.py"
    path.write_text(skeleton(f"{launchers}:{name}"))
    return load(str(path))


def choices(target: Target) -> Mapping[str, tuple[object, ...]]:
    return {name: option.choices for name, option in target.options.items()}


def test_annotations_defaults_and_names_say_what_is_drawn(tmp_path: Path) -> None:
    target = written(tmp_path, "attention")
    kinds = {name: type(value).__name__ for name, value in target.tensors.items()}
    assert kinds == {
        "q": "TensorArgument", "cu_seqlens": "PrefixSumArgument", "labels": "IndexArgument", "bias": "TensorArgument",
        "mask": "TensorArgument",
    }  # fmt: skip
    assert [name for name, value in target.tensors.items() if value.optional] == ["bias", "mask"]
    assert target.tensors["mask"].dtypes == ("bool",) and target.passed_sizes == {"num_heads": "NUM_HEADS"}
    assert choices(target) == {
        "causal": (False, True), "scale": (None, 1.0), "mode": ("SLOW", "FAST"), "act": ("silu", "relu"),
        "eps": (1e-5,),
    }  # fmt: skip
    given = dict.fromkeys([*target.tensors, "num_heads", *target.options])
    assert target.launcher(**{**given, "q": 3, "mode": "FAST"}) == {"out": 3}


def test_the_schema_of_an_operator_says_what_it_writes(tmp_path: Path) -> None:
    target = written(tmp_path, "add_")
    assert tuple(target.in_place) == ("x",) and target.passed_sizes == {"n": "N"}


def test_an_autograd_function_is_differentiable(tmp_path: Path) -> None:
    target = written(tmp_path, "Square")
    assert (target.name, list(target.cotangents), list(target.tensors)) == ("square", ["out"], ["x", "weight"])


def test_a_module_is_made_with_what_is_drawn(tmp_path: Path) -> None:
    target = written(tmp_path, "MyNorm")
    assert target.name == "my_norm" and target.passed_sizes == {"hidden": "HIDDEN"}
    assert choices(target) == {"eps": (1e-5,), "bias": (True, False)}
    assert [(name, value.optional) for name, value in target.tensors.items()] == [("x", False), ("residual", True)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nothing", "class 'Nothing' has no forward"),
        ("Mode", "no function 'Mode'; there are attention, add_, Square, MyNorm, Nothing"),
        ("absent", "no function 'absent'"),
    ],
)
def test_what_is_no_launcher_is_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        written(tmp_path, name)
