"""The kernels of gpuemu's corpus (sarkar-dipankar/gpuemu-corpus, MIT or Apache-2.0), each by its own description.

The folder of a checkout is read from the environment variable GPUEMU; nothing of it is copied. A kernel takes and gives
arrays of numpy and asks for a GPU, in whose place it gets the device of the backend.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fuzz import size, target, tensor
from fuzz.backends import cpu


def over_deviation(x: torch.Tensor, eps: float) -> torch.Tensor:
    apart = x - x.mean(-1, keepdim=True)
    return apart / torch.sqrt((apart * apart).mean(-1, keepdim=True) + eps)


def softmax(x: torch.Tensor) -> torch.Tensor:
    grown = torch.exp(x - x.amax(-1, keepdim=True))
    return grown / grown.sum(-1, keepdim=True)


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


REFERENCES: dict[str, Callable[..., torch.Tensor]] = {
    "softmax": lambda eps, input: softmax(input),
    "layernorm": lambda eps, input: over_deviation(input, eps),
    "matmul": lambda eps, a, b: a @ b,
    "gelu_triton": lambda eps, input: gelu(input),
    "silu_triton": lambda eps, input: input * torch.sigmoid(input),
    "rmsnorm_triton": lambda eps, input: input / torch.sqrt((input * input).mean(-1, keepdim=True) + eps),
    "l2norm_triton": lambda eps, input: input / torch.sqrt((input * input).sum(-1, keepdim=True) + eps),
    "leaky_relu_triton": lambda eps, input: torch.where(input > 0, input, 0.01 * input),
    "relu_triton": lambda eps, input: torch.where(input > 0, input, torch.zeros_like(input)),
    "sigmoid_triton": lambda eps, input: 1 / (1 + torch.exp(-input)),
    "tanh_triton": lambda eps, input: torch.tanh(input),
    "elu_triton": lambda eps, input: torch.where(input >= 0, input, torch.exp(input) - 1),
    "matmul_triton": lambda eps, a, b: a @ b,
    "attention_triton": lambda eps, q, k, v: softmax(q @ k.T * q.shape[-1] ** -0.5) @ v,
}
"""The formulas of the corpus's own references, by their folders, with the constant that their files hold."""


class OnDevice(TorchFunctionMode):
    """Puts on a device what asks for a GPU."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self.device}
        return func(*args, **kwargs)


def load_file(path: Path) -> ModuleType:
    """A file of the corpus as a module. It defines its kernels only where there is a GPU."""
    spec = importlib.util.spec_from_file_location(f"gpuemu_{path.parent.name}_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with nullcontext() if torch.cuda.is_available() else cpu.active():
        spec.loader.exec_module(module)
    return module


def declare(folder: Path) -> Any:
    """The target of one kernel: sizes reach from the least to the largest of those that its description lists."""
    described = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    kernel, formula = load_file(folder / "kernel.py"), described["reference"].split("/")[0]
    text = (folder.parent / described["reference"]).read_text(encoding="utf-8")
    stated = [line.partition("=")[2] for line in text.splitlines() if line.startswith("EPS")]
    eps = float(stated[0].split("#")[0]) if stated else 0.0
    schema = described["op_schema"]
    dims = {one["name"]: size(one["name"], min(one["candidates"]), max(one["candidates"])) for one in schema["dims"]}

    def launch(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        if len({value.dtype for value in tensors.values()}) > 1:
            raise TypeError("the inputs need one dtype")
        device = next(iter(tensors.values())).device
        with OnDevice(device):
            found = kernel.run({name: value.detach().cpu().numpy() for name, value in tensors.items()})
        return dict(out=torch.from_numpy(found).to(device))

    return target(
        name=f"gpuemu_{folder.name}",
        dtypes=tuple(described["dtypes"]),
        accumulate="inputs",
        layout="envelope",
        reference=lambda **tensors: dict(out=REFERENCES[formula](eps, **tensors)),
        **{one["name"]: tensor(*(dims[name] for name in one["dims"])) for one in schema["inputs"]},
    )(launch)


for place in sorted(Path(os.environ.get("GPUEMU", "no folder")).glob("gpuemu_corpus/data/*/meta.json")):
    globals()[f"gpuemu_{place.parent.name}"] = declare(place.parent)
