"""Honest float32 computations stay inside the envelope, on adversarial inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuzz.reference.envelope import evaluate, make_precision

CPU = make_precision("libm")
SEEDS = range(6)
Outputs = dict[str, Tensor]
Inputs = Mapping[str, Any]


def layernorm_bw(dy: Tensor, x: Tensor, weight: Tensor) -> Outputs:
    """Two-pass layer-norm backward."""
    d = x - x.mean(1, keepdim=True)
    rstd = torch.rsqrt((d * d).mean(1, keepdim=True) + 1e-5)
    xhat, wdy = d * rstd, dy * weight
    dx = (wdy - wdy.mean(1, keepdim=True) - xhat * (xhat * wdy).mean(1, keepdim=True)) * rstd
    return {"dx": dx, "dweight": (dy * xhat).sum(0), "dbias": dy.sum(0)}


def softmax(x: Tensor) -> Outputs:
    """Softmax of rows."""
    e = torch.exp(x - x.amax(1, keepdim=True))
    return {"y": e / e.sum(1, keepdim=True)}


def rms_norm(x: Tensor, weight: Tensor) -> Outputs:
    """RMS norm of rows."""
    return {"y": x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * weight}


def gelu_bw(dy: Tensor, x: Tensor) -> Outputs:
    """Gradient of gelu by erfc."""
    pdf = torch.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return {"dx": dy * (0.5 * torch.erfc(x * -math.sqrt(0.5)) + x * pdf)}


def cross_entropy(x: Tensor, target: Tensor) -> Outputs:
    """log_softmax and negative log likelihood by gather."""
    d = x - x.amax(1, keepdim=True)
    logp = d - torch.log(torch.exp(d).sum(1, keepdim=True))
    return {"logp": logp, "loss": -logp.gather(1, target[:, None]).mean()}


def cumsum(x: Tensor) -> Outputs:
    """Prefix sums of rows."""
    return {"y": torch.cumsum(x, 1)}


def index_add(x: Tensor, index: Tensor) -> Outputs:
    """Rows added into 3 places."""
    return {"y": torch.zeros(3, x.shape[1], dtype=x.dtype).index_add(0, index, x)}


def group_norm(x: Tensor) -> Outputs:
    """Group norm without parameters: (N, groups, elements)."""
    d = x - x.mean(2, keepdim=True)
    return {"y": d * torch.rsqrt((d * d).mean(2, keepdim=True) + 1e-5)}


def softplus_bw(dy: Tensor, x: Tensor) -> Outputs:
    """Gradient of softplus by the exponential, safe for both signs."""
    e = torch.exp(-x.abs())
    return {"dx": dy * torch.where(x > 0, 1 / (1 + e), e / (1 + e))}


def matmul(a: Tensor, b: Tensor) -> Outputs:
    """A matrix product."""
    return {"y": a @ b}


def sequential_cumsum(x: Tensor) -> Outputs:
    """numpy adds one after another, each sum rounded to float32."""
    return {"y": torch.from_numpy(np.add.accumulate(x.numpy(), axis=1, dtype=np.float32))}


def sequential_index_add(x: Tensor, index: Tensor) -> Outputs:
    """Atomics in order."""
    y = np.zeros((3, x.shape[1]), np.float32)
    np.add.at(y, index.numpy(), x.numpy())
    return {"y": torch.from_numpy(y)}


def sequential_group_norm(x: Tensor) -> Outputs:
    """Blocks of 64 elements added lane by lane, then across lanes: how a looping kernel reduces."""
    n = x.shape[2]

    def mean(t: Tensor) -> Tensor:
        lanes = torch.zeros(*t.shape[:2], 64)
        for start in range(0, n, 64):
            lanes = lanes + F.pad(t[:, :, start : start + 64], (0, max(0, start + 64 - n)))
        return lanes.sum(2, keepdim=True) / n

    d = x - mean(x)
    return {"y": d * torch.rsqrt(mean(d * d) + 1e-5)}


Case = tuple[Callable[..., Outputs], Callable[..., Outputs], Mapping[str, Any]]
CASES: dict[str, Case] = {
    "layernorm_bw": (layernorm_bw, layernorm_bw, {"dy": (5, 67), "x": (5, 67), "weight": (67,)}),
    "layernorm_bw_wide": (layernorm_bw, layernorm_bw, {"dy": (2, 2048), "x": (2, 2048), "weight": (2048,)}),
    "softmax": (softmax, softmax, {"x": (4, 100)}),
    "rms_norm": (rms_norm, rms_norm, {"x": (4, 100), "weight": (100,)}),
    "gelu_bw": (gelu_bw, gelu_bw, {"dy": (3, 200), "x": (3, 200)}),
    "cross_entropy": (cross_entropy, cross_entropy, {"x": (6, 50), "target": ("index", 6, 50)}),
    "cumsum": (cumsum, sequential_cumsum, {"x": (3, 1000)}),
    "index_add": (index_add, sequential_index_add, {"x": (100, 17), "index": ("index", 100, 1)}),
    "group_norm": (group_norm, group_norm, {"x": (2, 3, 500)}),
    "group_norm_blocks": (group_norm, sequential_group_norm, {"x": (2, 3, 5000)}),
    "softplus_bw": (softplus_bw, softplus_bw, {"dy": (3, 100), "x": (3, 100)}),
    "matmul": (matmul, matmul, {"a": (7, 130), "b": (130, 5)}),
}


def made(shapes: Inputs, kind: str, seed: int, draw: Any) -> dict[str, Tensor]:
    """The inputs of a case: the last floating one of the kind, others of it, normal or huge by the seed."""
    out: dict[str, Tensor] = {}
    for n, (name, shape) in enumerate(shapes.items()):
        if shape[0] == "index":
            out[name] = torch.from_numpy(np.random.default_rng(seed).integers(0, shape[2], shape[1]))
        else:
            mixed = (kind, "normal", "huge")[seed % 3] if name in ("dy", "weight", "b") else kind
            out[name] = draw(mixed, shape, 10 * seed + n)
    return out


@pytest.mark.parametrize("name", CASES)
def test_inside(name: str, kind: str, draw: Any, ratio: Any) -> None:
    """No honest output exceeds 4*spread + half an ulp."""
    reference, kernel, shapes = CASES[name]
    worst = 0.0
    for seed in SEEDS:
        inputs = made(shapes, kind, seed, draw)
        expected = evaluate(reference, inputs, CPU, seed=seed, members=20)
        outputs = kernel(**inputs)
        worst = max([worst, *(ratio(outputs[key], expected[key]) for key in outputs)])
    assert worst <= 1.0


def test_equal_rows_added_in_order(draw: Any, ratio: Any) -> None:
    """100 equal rows added at one index: every rounding has the same sign."""
    for seed in range(20):
        row = draw("normal", (1, 64), seed).expand(100, 64).contiguous()
        inputs = {"x": row, "index": torch.zeros(100, dtype=torch.int64)}
        expected = evaluate(index_add, inputs, CPU, seed=seed)["y"]
        assert ratio(sequential_index_add(**inputs)["y"], expected) <= 1.0


def test_softplus_gradient_of_huge_cotangent(ratio: Any) -> None:
    """exp underflows in the middle, the cotangent lifts what was lost."""
    x = torch.linspace(-110, -80, 301)[None]
    inputs = {"dy": torch.full_like(x, 1e38), "x": x}
    assert ratio(softplus_bw(**inputs)["dx"], evaluate(softplus_bw, inputs, CPU)["dx"]) <= 1.0


def test_subnormal_terms_that_atomics_flush(ratio: Any) -> None:
    """Six equal subnormal terms, all lost on a GPU, beside one that is not; on the CPU they must all count."""
    x = torch.full((7, 1), 1.1e-38)
    x[0] = 4e-38
    inputs = {"x": x, "index": torch.zeros(7, dtype=torch.int64)}
    flushed = {"x": torch.where(x < 2**-126, 0.0, x), "index": inputs["index"]}
    assert ratio(index_add(**flushed)["y"], evaluate(index_add, inputs, make_precision("libdevice"))["y"]) <= 1.0
    assert ratio(index_add(**flushed)["y"], evaluate(index_add, inputs, CPU)["y"]) > 1.0
