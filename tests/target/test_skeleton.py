"""What `fuzz new` writes: a declaration as wide as the launcher's signature, which loads as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from fuzz.errors import TargetError
from fuzz.target.loader import load
from fuzz.target.skeleton.text import skeleton
from fuzz.target.spec import KEYWORDS, Target

LAUNCHERS = """
from __future__ import annotations
import enum, math
from typing import Literal, Optional, Union
import torch
from torch import Tensor
from torch.library import triton_op

EPS = 1e-6
BLOCK: int = 1 << 4
TWICE = 2
TWICE = 3
HALF = torch.float16

class Mode(enum.Enum):
    FAST = 1
    SLOW = 2

class Level(enum.Enum):
    LOW: int = 1
    HIGH = 2
    value: int

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

def launcher(x: Tensor, launcher: int = 3):
    return x

class power(torch.autograd.Function):
    @staticmethod
    def forward(x, block=(16, 16), dtype=HALF, w: Tensor | None = None):
        return x, block, dtype, w

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, dy):
        return dy, None, None, None
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


def declared_of(folder: Path, parameters: str) -> Target:
    """The target of a function with these parameters, which returns its arguments by name."""
    launchers = folder / f"launchers_{abs(hash(parameters))}.py"
    launchers.write_text(f"{LAUNCHERS}\ndef mine({parameters}):\n    return locals()\n")
    path = folder / f"fuzz_{launchers.stem}.py"
    path.write_text(skeleton(f"{launchers}:mine"))
    return load(str(path))


INF = float("inf")
UNKNOWN = (
    "HALF", "torch.float16", "(16, 16)", "lambda v: v", "TWICE", "2 ** 9999", "2 ** 64", "-(2 ** 63) - 1",
    "torch.finfo(HALF).eps",
)  # fmt: skip
DEFAULTS = {
    "eps=EPS": (1e-6,),
    "n=BLOCK": (16,),
    "n=-BLOCK // 3": (-6,),
    "s=math.sqrt(4)": (2.0,),
    "s=1 / math.sqrt(4)": (0.5,),
    "s=math.pi": (3.141592653589793,),
    "s=-float('inf')": (-INF,),
    "s=torch.inf": (INF,),
    "mode=Mode.SLOW": ("SLOW", "FAST"),
    "mode: Mode = Mode.FAST": ("FAST", "SLOW"),
    "mode: Optional[Mode] = None": (None, "FAST", "SLOW"),
    "level: Level = Level.LOW": ("LOW", "HIGH"),
    "n=2**64 - 1": (2**64 - 1,),
    "act: Literal['a', 'b', Mode] = EPS": (1e-6, "a", "b"),
    "n: Optional[int] = None": (None, 1),
    "n: 'Union[int, float]' = 3": (3,),
    "flag: 'bool' = True": (True, False),
}


@pytest.mark.parametrize("parameter", DEFAULTS)
def test_a_default_is_read_from_the_source(tmp_path: Path, parameter: str) -> None:
    target = declared_of(tmp_path, f"x: Tensor, {parameter}")
    assert [*choices(target).values()] == [DEFAULTS[parameter]]


@pytest.mark.parametrize("default", UNKNOWN)
def test_a_default_that_is_no_plain_value_or_unknown_is_left_to_the_launcher(tmp_path: Path, default: str) -> None:
    target = declared_of(tmp_path, f"x: Tensor, given={default}, eps=1e-5")
    assert choices(target) == {"eps": (1e-5,)}
    assert target.launcher(x=1, eps=2.0)["out"].keys() == {"x", "given", "eps"}


@pytest.mark.parametrize(
    ("annotation", "optional"),
    [
        ("Optional['torch.Tensor']", True), ("Union[Tensor, None]", True), ("'Optional[Tensor]'", True),
        ("'Tensor | None'", True), ("Union[None, float, 'torch.Tensor']", True), ("Union[float, Tensor]", False),
    ],
)  # fmt: skip
def test_a_tensor_is_found_inside_of_a_union(tmp_path: Path, annotation: str, optional: bool) -> None:
    target = declared_of(tmp_path, f"x: Tensor, other: {annotation}")
    assert target.tensors["other"].optional is optional


def test_one_of_several_optional_tensors_is_always_there(tmp_path: Path) -> None:
    target = declared_of(tmp_path, "x: Tensor | None = None, y: Tensor | None = None")
    assert [value.optional for value in target.tensors.values()] == [False, True]


def test_parameters_with_names_that_the_target_uses_itself_are_called_otherwise_there(tmp_path: Path) -> None:
    names = [*KEYWORDS, "launcher"]
    target = declared_of(tmp_path, f"x: Tensor, batch_: int, *, {', '.join(f'{name}: int' for name in names)}")
    renamed = {"batch": "batch__"} | {name: f"{name}_" for name in names if name != "batch"}
    assert set(target.passed_sizes) == {"batch_", *renamed.values()} and target.batch == "M"
    given = dict.fromkeys(renamed.values(), 5)
    passed = target.launcher(x=1, batch_=2, **given)["out"]
    assert passed == {"x": 1, "batch_": 2, **dict.fromkeys(names, 5)}


def test_a_launcher_may_have_the_name_by_which_others_are_called(tmp_path: Path) -> None:
    target = written(tmp_path, "launcher")
    assert choices(target) == {"launcher": (3,)} and target.launcher(x=1, launcher=2) == {"out": 1}


def test_a_function_with_setup_context_has_no_context_in_forward(tmp_path: Path) -> None:
    target = written(tmp_path, "power")
    assert list(target.tensors) == ["x", "w"] and list(target.cotangents) == ["out"]
    x = torch.ones(2, 3)
    # By position alone: what is left out before another argument has its default.
    assert target.launcher(x=x, w=None)["out"][1:] == ((16, 16), torch.float16, None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nothing", "class 'Nothing' has no forward"),
        ("Mode", "no function 'Mode'; there are attention, add_, Square, MyNorm, Nothing, launcher"),
        ("absent", "no function 'absent'"),
    ],
)
def test_what_is_no_launcher_is_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        written(tmp_path, name)
