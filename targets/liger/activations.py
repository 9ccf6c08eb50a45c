"""Activations and softmax of liger-kernel. Interesting: deep negatives, rows wider than a block, ties."""

from _formulas import Softmax, silu, sparsemax
from _liger import applied, liger, one_dtype

from fuzz import indices, option, size, tensor

M, N = size("M", 1, 256), size("N", 1, 40000)
ROWS = dict(y=tensor(M, N))


def swiglu_reference(a, b, gate, down):
    return dict(y=silu(a * gate) * b * down)


@liger(
    a=tensor(M, N),
    b=tensor(M, N),
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
    return dict(z=silu(y[:, :half]) * y[:, half:])


@liger(
    y=tensor(M, 2 * N),
    inplace=option(False, True),
    dims=(N,),
    in_place=("y",),
    accumulate="inputs",
    reference=gate_up_reference,
    differentiable=dict(z=tensor(M, N)),
)
def liger_swiglu_fused_gate_up(y, inplace):
    """SiLU of a row's first half times its second; in place the gradient takes the input's memory."""
    return dict(z=applied("swiglu:LigerFusedGateUpSiLUMulFunction", y=y, in_place=inplace))


def geglu_reference(a, b):
    inner = 0.7978845608028654 * (a + 0.044715 * a**3)
    return dict(y=0.5 * a * (1 + inner.tanh()) * b)


@liger(
    a=tensor(M, N),
    b=tensor(M, N),
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


@liger(x=tensor(M, N), reference=relu_squared_reference, differentiable=ROWS)
def liger_relu_squared(x):
    """The square of what is positive."""
    return dict(y=applied("relu_squared:LigerReLUSquaredFunction", X=x))


def dyt_reference(x, alpha, gamma, beta):
    return dict(y=gamma * (alpha * x).tanh() + beta)


@liger(
    x=tensor(M, N),
    alpha=tensor(1),
    gamma=tensor(N),
    beta=tensor(N),
    accumulate="inputs",
    reference=dyt_reference,
    differentiable=ROWS,
)
def liger_dyt(x, alpha, gamma, beta):
    """A scaled tanh in a norm's place."""
    one_dtype(x, alpha, gamma, beta)
    return dict(y=applied("dyt:LigerDyTFunction", x=x, alpha=alpha, gamma=gamma, beta=beta))


@liger(
    x=tensor(M, N),
    batch=M,
    accumulate="inputs",
    reference=lambda x: dict(y=Softmax.apply(x)),
    differentiable=ROWS,
)
def liger_softmax(x):
    """Softmax of rows."""
    return dict(y=applied("softmax:LigerSoftmaxFunction", input_=x))


@liger(x=tensor(M, N), accumulate="inputs", reference=lambda x: dict(y=sparsemax(x)), differentiable=ROWS)
def liger_sparsemax(x):
    """The nearest point of the simplex."""
    return dict(y=applied("sparsemax:LigerSparsemaxFunction", x=x, dim=-1))


V, D = size("V", 1, 512), size("D", 1, 512)


@liger(
    table=tensor(V, D),
    places=indices(M, below=V, dtypes=("int64",)),
    deterministic="the gradient of the table is a sum by atomic additions",
    accumulate="inputs",
    reference=lambda table, places: dict(y=table[places]),
    differentiable=dict(y=tensor(M, D)),
)
def liger_embedding(table, places):
    """Rows of a table."""
    return dict(y=applied("experimental.embedding:LigerEmbeddingFunction", embeddings=table, indices=places))
