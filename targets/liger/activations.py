"""Activations and softmax of liger-kernel. Interesting: deep negatives, rows wider than a block, ties."""

from types import SimpleNamespace

import torch
from _formulas import Softmax, silu, sparsemax
from _liger import UNREACHED, applied, found, layer, liger, one_dtype, same_bits, takes

from fuzz import indices, option, size, sizes, tensor

M, S, N = size("M", 1, 256), sizes("S", 0, 1, high=3), size("N", 1, 40000)
ROWS = dict(y=tensor(M, S, N))


def swiglu_reference(a, b, gate, down):
    return dict(y=silu(a * gate) * b * down)


@liger(
    a=tensor(M, S, N, overlapping=True),
    b=tensor(M, S, N, overlapping=True),
    gate=option(1.0, 0.5),
    down=option(1.0, 2.0),
    in_place=("a", "b"),
    accumulate="inputs",
    reference=swiglu_reference,
    differentiable=ROWS,
)
def liger_swiglu(a, b, gate, down):
    """SiLU of one times the other, with multipliers of both."""
    one_dtype(a, b)
    return dict(y=applied("swiglu:LigerSiLUMulFunction", a=a, b=b, gate_multiplier=gate, down_multiplier=down))


def gate_up_reference(y, inplace):
    half = y.shape[-1] // 2
    return dict(z=silu(y[..., :half]) * y[..., half:])


@liger(
    y=tensor(M, S, 2 * N),
    inplace=option(False, True),
    dims=(N,),
    in_place={"y": "inplace"},
    accumulate="inputs",
    reference=gate_up_reference,
    differentiable=dict(z=tensor(M, S, N)),
)
def liger_swiglu_fused_gate_up(y, inplace):
    """SiLU of a row's first half times its second; in place the gradient takes the input's memory."""
    return dict(z=applied("swiglu:LigerFusedGateUpSiLUMulFunction", y=y, in_place=inplace))


def geglu_reference(a, b):
    inner = 0.7978845608028654 * (a + 0.044715 * a**3)
    return dict(y=0.5 * a * (1 + inner.tanh()) * b)


@liger(
    a=tensor(M, S, N, overlapping=True),
    b=tensor(M, S, N, overlapping=True),
    in_place=("a", "b"),
    accumulate="inputs",
    reference=geglu_reference,
    differentiable=ROWS,
)
def liger_geglu(a, b):
    """GELU of one, by tanh, times the other."""
    one_dtype(a, b)
    return dict(y=applied("geglu:LigerGELUMulFunction", a=a, b=b))


def relu_squared_reference(x):
    return dict(y=x.clamp(min=0).square())


@liger(x=tensor(M, S, N), reference=relu_squared_reference, differentiable=ROWS)
def liger_relu_squared(x):
    """The square of what is positive."""
    return dict(y=applied("relu_squared:LigerReLUSquaredFunction", X=x))


def dyt_reference(x, alpha, gamma, beta, module):
    y = gamma * (alpha * x).tanh()
    return dict(y=y if beta is None else y + beta)


@liger(
    x=tensor(M, S, N),
    alpha=tensor(1),
    gamma=tensor(N),
    beta=tensor(N) | None,
    module=option(False, True),
    accumulate="inputs",
    reference=dyt_reference,
    differentiable=ROWS,
)
def liger_dyt(x, alpha, gamma, beta, module):
    """A scaled tanh in a norm's place."""
    one_dtype(x, alpha, gamma, beta)
    if beta is None:
        takes(found("dyt:LigerDyT", "transformers"), "beta")
    if module:
        parameters = dict(alpha=alpha, gamma=gamma, beta=beta)
        return dict(y=layer("dyt:LigerDyT", parameters, x, hidden_size=x.shape[-1], beta=beta is not None))
    return dict(y=applied("dyt:LigerDyTFunction", x=x, alpha=alpha, gamma=gamma, beta=beta))


@liger(
    x=tensor(M, S, N),
    batch=M,
    accumulate="inputs",
    reference=lambda x: dict(y=Softmax.apply(x)),
    differentiable=ROWS,
)
def liger_softmax(x):
    """Softmax of rows."""
    return dict(y=applied("softmax:LigerSoftmaxFunction", input_=x))


@liger(
    x=tensor(M, S, N), dim=option(-1, 0, 1), accumulate="inputs", differentiable=ROWS,
    reference=lambda x, dim: dict(y=sparsemax(x.transpose(dim, -1)).transpose(dim, -1)),
)  # fmt: skip
def liger_sparsemax(x, dim):
    """The nearest point of the simplex."""
    return dict(y=applied("sparsemax:LigerSparsemaxFunction", x=x, dim=dim))


V, D = size("V", 1, 512), size("D", 1, 512)


@liger(
    table=tensor(V, D),
    places=indices(M, below=V, dtypes=("int64",)),
    deterministic=same_bits("experimental/embedding.py"),
    accumulate="inputs",
    reference=lambda table, places: dict(y=table[places]),
    differentiable=dict(y=tensor(M, D)),
)
def liger_embedding(table, places):
    """Rows of a table."""
    return dict(y=applied("experimental.embedding:LigerEmbeddingFunction", embeddings=table, indices=places))


R, LENGTH, WIDTH, INNER = sizes("R", 0, 1, high=3), size("LENGTH", 1, 70), size("WIDTH", 1, 70), size("INNER", 1, 150)
GATED = dict(
    LigerSwiGLUMLP="swiglu:silu", LigerGEGLUMLP="geglu:gelu_pytorch_tanh", LigerFalconH1SwiGLUMLP="swiglu:silu",
    LigerBlockSparseTop2MLP="swiglu:swish", LigerPhi3SwiGLUMLP="swiglu:silu", LigerQwen3MoeSwiGLUMLP="swiglu:silu",
    LigerHunyuanV1SwiGLUMLP="swiglu:silu", LigerSwiGLUMLPForMuseGlimmer="swiglu:silu",
    LigerGEGLUMLPForGemma4="geglu:gelu_pytorch_tanh",
)  # fmt: skip
TILED = dict(LigerTiledSwiGLUMLP="tiled_mlp:silu", LigerTiledGEGLUMLP="tiled_mlp:gelu_pytorch_tanh")
"""Modules with the file that they stand in and their activation."""
LAYERS = dict(
    x=tensor(R, LENGTH, WIDTH), gate=tensor(INNER, WIDTH), up=tensor(INNER, WIDTH), down=tensor(WIDTH, INNER),
    accumulate="inputs", timeout=120.0, differentiable=dict(y=tensor(R, LENGTH, WIDTH)),
    unreached={**UNREACHED, "*calculate_settings*": "liger_swiglu and liger_geglu draw rows as wide"},
)  # fmt: skip


def gated_mlp_reference(x, gate, up, down, kind):
    a, b = x @ gate.T, x @ up.T
    if "GEGLU" in kind:
        return dict(y=geglu_reference(a, b)["y"] @ down.T)
    first, last = (0.5, 2.0) if "Falcon" in kind else (1.0, 1.0)
    return dict(y=(silu(a * first) * b) @ down.T * last)


def configured(x, gate, activation):
    sizes = dict(hidden_size=x.shape[-1], intermediate_size=len(gate))
    shared = dict(num_hidden_layers=2, num_kv_shared_layers=1, use_double_wide_mlp=True)
    return SimpleNamespace(**sizes, hidden_act=activation, mlp_multipliers=(0.5, 2.0), **shared)


@liger(kind=option(*GATED), reference=gated_mlp_reference, **LAYERS)
def liger_gated_mlp(x, gate, up, down, kind):
    """Gated layers as modules."""
    one_dtype(x, gate, up, down)
    file, _, activation = GATED[kind].partition(":")
    if kind == "LigerBlockSparseTop2MLP":
        parameters = {"w1.weight": gate, "w3.weight": up, "w2.weight": down}
    elif kind == "LigerPhi3SwiGLUMLP":
        parameters = {"gate_up_proj.weight": torch.cat([gate, up]), "down_proj.weight": down}
    else:
        parameters = {"gate_proj.weight": gate, "up_proj.weight": up, "down_proj.weight": down}
    # The last of two layers, which shares keys and values with one before, is twice as wide in Gemma 4.
    place = dict(layer_idx=1) if kind == "LigerGEGLUMLPForGemma4" else {}
    return dict(y=layer(f"{file}:{kind}", parameters, x, config=configured(x, gate, activation), **place))


def tiled_mlp_reference(x, gate, up, down, kind, shards):
    return gated_mlp_reference(x, gate.detach(), up.detach(), down.detach(), kind)


@liger(kind=option(*TILED), shards=option(None, 1, 3), reference=tiled_mlp_reference, **LAYERS)
def liger_tiled_mlp(x, gate, up, down, kind, shards):
    """Gated layers that take a sequence in parts, and compute them again in the backward, which keeps weights' gradients."""
    one_dtype(x, gate, up, down)
    file, _, activation = TILED[kind].partition(":")
    module = found(f"{file}:{kind}", "transformers")(configured(x, gate, activation), num_shards=shards)
    for name, value in dict(gate_proj=gate, up_proj=up, down_proj=down).items():
        getattr(module, name).weight = torch.nn.Parameter(value.detach(), requires_grad=False)
    return dict(y=module(x))
