"""Norms, gates, convolutions and rotary embeddings of fla-core. Interesting: strides of the upstream gradient."""

import torch
from _fla import checks, flash, found, one_dtype
from _rows import Unit
from torch.nn import functional

from fuzz import by_option, indices, option, prefix_sums, size, sizes, tensor

ASKED = "no function for users asks for it"
AGAIN = "a norm whose linear layer follows computes its output again, and has a target of its own"
SAME = "the gradient of the sum is stored apart where its dtype is another, which one dtype of all is not"
ELSEWHERE = "fla_residual_norm and fla_norm_linear add residuals and compute outputs again"
PLAIN = {
    **dict.fromkeys(("*RESIDUAL*", "*RECOMPUTE_OUTPUT*", "*residual*", "*prenorm*", "*`dres *"), ELSEWHERE),
    "*D > BD*": "it refuses rows of more than 64 KiB",
}
M, D, WIDTH = size("M", 1, 512), size("D", 1, 2048), size("WIDTH", 1, 256)
B, T, H = size("B", 1, 4), size("T", 1, 200), size("H", 1, 4)
ROWS, R = dict(y=tensor(M, D)), sizes("R", 0, 1, high=3)


class Standard(torch.autograd.Function):
    """Rows, minus their mean if the option says so, over their deviation, with the textbook gradient."""

    @staticmethod
    def forward(ctx, x, eps, centred):
        d = x - x.mean(-1, keepdim=True) if centred else x
        rstd = 1 / (d.square().mean(-1, keepdim=True) + eps).sqrt()
        ctx.save_for_backward(d * rstd, rstd)
        ctx.centred = centred
        return d * rstd

    @staticmethod
    def backward(ctx, dy):
        y, rstd = ctx.saved_tensors
        away = y * (y * dy).mean(-1, keepdim=True)
        return rstd * (dy - (away + dy.mean(-1, keepdim=True) if ctx.centred else away)), None, None


class Gate(torch.autograd.Function):
    """y times the sigmoid of g, and times g if the option says so, with the textbook gradient."""

    @staticmethod
    def forward(ctx, y, g, swish):
        sigmoid = g.sigmoid()
        ctx.save_for_backward(y, g, sigmoid)
        ctx.swish = swish
        return y * g * sigmoid if swish else y * sigmoid

    @staticmethod
    def backward(ctx, dz):
        y, g, sigmoid = ctx.saved_tensors
        if ctx.swish:
            return dz * (g * sigmoid), dz * y * (sigmoid + g * sigmoid * (1 - sigmoid)), None
        return dz * sigmoid, dz * y * sigmoid * (1 - sigmoid), None


def norm_reference(x, weight, bias, eps, rms):
    return dict(y=Standard.apply(x, eps, not rms) * weight + bias)


@flash(
    x=tensor(M, D), weight=tensor(D), bias=tensor(D),
    eps=option(1e-5, 1e-1), rms=option(False, True),
    batch=M, reference=norm_reference, differentiable=ROWS, unreached=PLAIN,
)  # fmt: skip
def fla_norm(x, weight, bias, eps, rms):
    """Layer norm and root-mean-square norm."""
    one_dtype(x, weight, bias)
    return dict(y=found(f"modules.norm.layernorm:{'rms' if rms else 'layer'}_norm")(x, weight, bias, eps=eps))


def norm_gated_reference(x, g, weight, bias, residual, eps, rms, activation, prenorm):
    total = x if residual is None else x + residual
    y = Standard.apply(total, eps, not rms)
    y = y if weight is None else y * weight
    y = Gate.apply(y if bias is None else y + bias, g, activation == "swish")
    return dict(y=y, total=total) if prenorm else dict(y=y)


@flash(
    x=tensor(M, D), g=tensor(M, D), weight=tensor(D) | None, bias=tensor(D) | None, residual=tensor(M, D) | None,
    eps=option(1e-5, 1e-1), rms=option(False, True), activation=option("swish", "sigmoid"),
    prenorm=option(False, True), accumulate="inputs", batch=M, reference=norm_gated_reference,
    differentiable=dict(y=tensor(M, D), total=tensor(M, D)),
    unreached={"*RECOMPUTE_OUTPUT*": AGAIN, "*STORE_DRESIDUAL*": SAME},
)  # fmt: skip
def fla_norm_gated(x, g, weight, bias, residual, eps, rms, activation, prenorm):
    """A norm times an activated gate, perhaps of a sum, with the sum."""
    one_dtype(x, g, weight, bias, residual)
    function = found(f"modules.norm.fused_norm_gate:{'rms' if rms else 'layer'}_norm_gated")
    value = function(x, g, weight, bias, activation=activation, residual=residual, prenorm=prenorm, eps=eps)
    # Without a residual the sum is x itself, which is returned as it is.
    return dict(y=value[0], total=value[1].clone()) if prenorm else dict(y=value)


def gated_linear_reference(x, g, weight, bias, residual, matrix, offset, eps, rms, prenorm):
    values = norm_gated_reference(x, g, weight, bias, residual, eps, rms, "swish", prenorm)
    y = values["y"] @ matrix.T
    return {**values, "y": y if offset is None else y + offset}


@flash(
    x=tensor(M, D), g=tensor(M, D), weight=tensor(D), bias=tensor(D) | None, residual=tensor(M, D) | None,
    matrix=tensor(WIDTH, D), offset=tensor(WIDTH) | None, eps=option(1e-5, 1e-1), rms=option(True, False),
    prenorm=option(False, True), accumulate="inputs", reference=gated_linear_reference,
    differentiable=dict(y=tensor(M, WIDTH), total=tensor(M, D)),
    unreached={"*ACTIVATION*": "its gate is always swish", "*STORE_DRESIDUAL*": SAME, "*D > BD*": PLAIN["*D > BD*"]},
)  # fmt: skip
def fla_rms_norm_gated_linear(x, g, weight, bias, residual, matrix, offset, eps, rms, prenorm):
    """A norm, a gate and a linear layer, whose backward computes the gated norm again."""
    one_dtype(x, g, weight, bias, residual, matrix, offset)
    name = "rms_norm_swish_gate_linear" if rms else "layer_norm_swish_gate_linear"
    function = found(f"modules.norm.fused_norm_gate:{name}")
    value = function(x, g, weight, bias, matrix, offset, residual=residual, eps=eps, prenorm=prenorm)
    return dict(y=value[0], total=value[1].clone()) if prenorm else dict(y=value)


def l2_norm_reference(x):
    return dict(y=Unit.apply(x))


@flash(x=tensor(M, D), batch=M, accumulate="inputs", reference=l2_norm_reference, differentiable=ROWS, unreached=PLAIN)
def fla_l2_norm(x):
    """Rows over their length."""
    return dict(y=found("modules.norm.l2norm:l2norm")(x))


def activation_reference(x, kind):
    if kind == "logsigmoid":
        return dict(y=functional.logsigmoid(x))
    return dict(y=x.sigmoid() if kind == "sigmoid" else x * x.sigmoid())


@flash(
    x=tensor(M, D),
    kind=option("swish", "sigmoid", "logsigmoid"),
    accumulate="inputs",
    reference=activation_reference,
    differentiable=ROWS,
)
def fla_activation(x, kind):
    """Swish, sigmoid and its logarithm."""
    return dict(y=found(f"modules.activations:{kind}")(x))


class SwiGLU(torch.autograd.Function):
    """x * sigmoid(x) * y, with the textbook gradient. In a gate's order of factors others would overflow first."""

    @staticmethod
    def forward(ctx, x, y):
        sigmoid = x.sigmoid()
        ctx.save_for_backward(x, y, sigmoid)
        return x * sigmoid * y

    @staticmethod
    def backward(ctx, dz):
        x, y, sigmoid = ctx.saved_tensors
        return dz * sigmoid * (1 + x * (1 - sigmoid)) * y, dz * (x * sigmoid)


def swiglu_reference(x, y):
    return dict(z=SwiGLU.apply(x, y))


@flash(
    x=tensor(R, M, D),
    y=tensor(R, M, D),
    accumulate="inputs",
    reference=swiglu_reference,
    differentiable=dict(z=tensor(R, M, D)),
    unreached=dict.fromkeys(("*HAS_WEIGHT*", "*`use_weight`*", "*alloc_output*"), "fla_glu_linear has weights"),
)
def fla_swiglu(x, y):
    """Swish of one times the other."""
    one_dtype(x, y)
    return dict(z=found("modules.activations:swiglu")(x, y))


W = size("W", 2, 4)


def conv_reference(x, weight, bias, activation):
    width = weight.shape[1]
    padded = torch.cat([torch.zeros_like(x[:, :1]).expand(-1, width - 1, -1), x], 1)
    y = bias + sum(padded[:, step : step + x.shape[1]] * weight[:, step] for step in range(width))
    return dict(y=y * y.sigmoid() if activation == "silu" else y)


@flash(
    x=tensor(B, T, D), weight=tensor(D, W), bias=tensor(D), activation=option("none", "silu"),
    accumulate="inputs", reference=conv_reference, differentiable=dict(y=tensor(B, T, D)),
    unreached={"fla/modules/causal_conv1d/*:*": "fla_conv_with_states runs the rest"},
)  # fmt: skip
def fla_causal_conv1d(x, weight, bias, activation):
    """A convolution of each channel with what came before."""
    one_dtype(x, weight, bias)
    function = found("modules.causal_conv1d:causal_conv1d")
    return dict(y=function(x, weight, bias, activation=None if activation == "none" else activation)[0])


HALF, LATER, REST, N = size("HALF", 1, 32), size("LATER", 0, 8), size("REST", 0, 9), size("N", 1, 4)


def rotary_reference(x, cos, sin, starts, padding, interleaved, offset, inplace, ragged, ends):
    width, place = 2 * cos.shape[-1], torch.arange(x.shape[1], device=x.device)
    if ragged:
        place = place - ends.long()[torch.searchsorted(ends.contiguous(), place, right=True) - 1]
    begin = starts.new_full((1, 1), offset or 0) if ragged or offset is not None else (starts - padding).unsqueeze(1)
    place, rest, x = (place + begin).expand(len(x), -1), x[..., width:], x[..., :width]
    inside = ((place >= 0) & (place < len(cos))).unsqueeze(-1).unsqueeze(-1)
    place = place.clamp(0, len(cos) - 1)
    c, s = cos.detach()[place].unsqueeze(2), sin.detach()[place].unsqueeze(2)
    left, right = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    turned = left * c - right * s, left * s + right * c
    y = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    # What is never written in place is what was there.
    return dict(y=torch.cat([torch.where(inside, y, x if inplace else 0.0), rest], -1))


TURNED = by_option(
    "ragged", {False: tensor(B, T, H, 2 * HALF + REST), True: tensor(1, T, H, 2 * HALF + REST)}
)  # fmt: skip


@flash(
    x=TURNED, cos=tensor(T + LATER, HALF), sin=tensor(T + LATER, HALF), starts=indices(B, below=LATER + 1),
    padding=option(0, 3), interleaved=option(False, True), offset=option(None, 0, 2), inplace=option(False, True),
    ragged=option(False, True), ends=prefix_sums(N + 1, total=T), dims=(LATER, REST, N), in_place={"x": "inplace", "grad y": "inplace"},
    accumulate="inputs", reference=rotary_reference, differentiable=dict(y=TURNED),
)  # fmt: skip
def fla_rotary(x, cos, sin, starts, padding, interleaved, offset, inplace, ragged, ends):
    """Rotary embedding from a place of its own for each sequence; what lies before the first place is padding."""
    one_dtype(x, cos, sin)
    if ragged and offset is None:
        raise ValueError("sequences one after the other begin at one place")
    if offset is not None and offset + x.shape[1] > len(cos):
        raise ValueError("the tables are too short")
    place = "modules.rotary.ops:rotary_embedding"
    if offset is None and padding:
        checks(place, ">= 0")  # Where there is no such check, the layers of that release give no place before 0.
    y = found(place)(
        x, cos.detach(), sin.detach(), interleaved=interleaved, inplace=inplace,
        seqlen_offsets=starts - padding if offset is None else offset, cu_seqlens=ends if ragged else None,
    )  # fmt: skip
    return dict(y=y)


def shift_reference(x):
    return dict(y=torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1) - x)


@flash(
    x=tensor(B, T, D), batch=B, reference=shift_reference, differentiable=dict(y=tensor(B, T, D)),
    unreached={"fla/modules/token_shift.py:*": "fla_token_shift_cached and fla_token_shift_long run the rest"},
)  # fmt: skip
def fla_token_shift(x):
    """The token before minus each token."""
    return dict(y=found("modules.token_shift:token_shift")(x))


GLU = dict(swiglu=lambda x: x * x.sigmoid(), sigmoidglu=torch.sigmoid)


def unary_reference(x, kind):
    if kind == "elu_p1":
        return dict(y=torch.where(x >= 0, x + 1, x.clamp(max=0).exp()))
    return dict(y=x.clamp(min=0).square())


@flash(
    x=tensor(M, D), kind=option("elu_p1", "sqrelu"), accumulate="inputs", reference=unary_reference,
    differentiable=ROWS,
)  # fmt: skip
def fla_more_activations(x, kind):
    """ELU plus 1, and the square of what is positive."""
    return dict(y=found(f"modules.activations:{kind}")(x))


@flash(
    x=tensor(R, M, D), temperature=option(2.0, 16.0, 0.5), accumulate="inputs",
    differentiable=dict(y=tensor(R, M, D)),
    reference=lambda x, temperature: dict(y=functional.logsigmoid(x) / temperature),
)  # fmt: skip
def fla_logsigmoid_tempered(x, temperature):
    """The logarithm of sigmoid over a temperature."""
    return dict(y=found("modules.activations:logsigmoid")(x, temperature))


def glu_linear_reference(x, y, weight, bias, kind):
    z = (GLU[kind](x) * y) @ weight.T
    return dict(z=z if bias is None else z + bias)


@flash(
    x=tensor(M, WIDTH), y=tensor(M, WIDTH), weight=tensor(D, WIDTH), bias=tensor(D) | None,
    kind=option("swiglu", "sigmoidglu"), accumulate="inputs", reference=glu_linear_reference,
    differentiable=dict(z=tensor(M, D)),
    unreached={
        "*prepare_input*": "fla_swiglu has other ranks",
        **dict.fromkeys(("*HAS_WEIGHT*", "*use_weight*", "*_fwdbwd: line*", "*alloc_output*"), "fla_swiglu has no weights"),
    },
)  # fmt: skip
def fla_glu_linear(x, y, weight, bias, kind):
    """A gate and a linear layer, whose backward computes the gate again."""
    one_dtype(x, y, weight, bias)
    return dict(z=found(f"modules.activations:{kind}_linear")(x, y, weight, bias))


def residual_norm_reference(x, weight, bias, residual, eps, kind, prenorm):
    total = x if residual is None else x + residual
    y = Standard.apply(total, eps, kind != "rms")
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return dict(y=y, total=total) if prenorm else dict(y=y)


@flash(
    x=tensor(M, D), weight=tensor(D) | None, bias=tensor(D) | None, residual=tensor(M, D) | None,
    eps=option(1e-5, 1e-1), kind=option("layer", "rms"), prenorm=option(False, True), accumulate="inputs",
    reference=residual_norm_reference, differentiable=dict(y=tensor(M, D), total=tensor(M, D)),
)  # fmt: skip
def fla_residual_norm(x, weight, bias, residual, eps, kind, prenorm):
    """A norm of a sum, with the sum."""
    one_dtype(x, weight, bias, residual)
    function = found(f"modules.norm.layernorm:{kind}_norm")
    value = function(x, weight, bias, residual=residual, eps=eps, prenorm=prenorm)
    # Without a residual the sum is x itself, which is returned as it is.
    return dict(y=value[0], total=value[1].clone()) if prenorm else dict(y=value)


def norm_linear_reference(x, weight, bias, residual, matrix, offset, eps, kind, prenorm):
    values = residual_norm_reference(x, weight, bias, residual, eps, kind, prenorm)
    y = values["y"] @ matrix.T
    return {**values, "y": y if offset is None else y + offset}


@flash(
    x=tensor(M, D), weight=tensor(D) | None, bias=tensor(D) | None, residual=tensor(M, D) | None,
    matrix=tensor(WIDTH, D), offset=tensor(WIDTH) | None, eps=option(1e-5, 1e-1), kind=option("layer", "rms"),
    prenorm=option(False, True), accumulate="inputs", reference=norm_linear_reference,
    differentiable=dict(y=tensor(M, WIDTH), total=tensor(M, D)), unreached={"*D > BD*": PLAIN["*D > BD*"]},
)  # fmt: skip
def fla_norm_linear(x, weight, bias, residual, matrix, offset, eps, kind, prenorm):
    """A norm of a sum and a linear layer, whose backward computes the norm again."""
    one_dtype(x, weight, bias, residual, matrix, offset)
    function = found(f"modules.norm.layernorm:{kind}_norm_linear")
    value = function(x, weight, bias, matrix, offset, residual=residual, eps=eps, prenorm=prenorm)
    return dict(y=value[0], total=value[1].clone()) if prenorm else dict(y=value)


GROUPS, EACH = size("GROUPS", 1, 4), size("EACH", 1, 600)


def grouped_reference(x, weight, bias, eps, rms, groups):
    y = Standard.apply(x.unflatten(-1, (groups, -1)), eps, not rms).flatten(-2)
    y = y if weight is None else y * weight
    return dict(y=y if bias is None else y + bias)


@flash(
    x=tensor(M, GROUPS * EACH), weight=tensor(GROUPS * EACH) | None, bias=tensor(GROUPS * EACH) | None,
    eps=option(1e-5, 1e-1), rms=option(False, True), groups=GROUPS, dims=(EACH,), reference=grouped_reference,
    differentiable=dict(y=tensor(M, GROUPS * EACH)), unreached=PLAIN,
)  # fmt: skip
def fla_group_norm(x, weight, bias, eps, rms, groups):
    """Norms of groups of a row."""
    one_dtype(x, weight, bias)
    function = found("modules.norm.layernorm:group_norm")
    return dict(y=function(x, weight, bias, eps=eps, is_rms_norm=rms, num_groups=groups))


def gated_group_reference(x, weight, bias, z, eps, rms, before):
    gate = None if z is None else z * z.sigmoid()
    x = x * gate if gate is not None and not before else x
    y = Standard.apply(x, eps, not rms) * weight
    y = y if bias is None else y + bias
    return dict(y=y * gate if gate is not None and before else y)


@flash(
    x=tensor(M, D), weight=tensor(D), bias=tensor(D) | None, z=tensor(M, D) | None, eps=option(1e-5, 1e-1),
    rms=option(False, True), before=option(True, False), accumulate="inputs", reference=gated_group_reference,
    differentiable=ROWS,
    unreached=dict.fromkeys(("*RECOMPUTE_OUTPUT*", "*recompute_output*", "*`dz is*", "*`out is*", "*_size > BD*"), ASKED),
)  # fmt: skip
def fla_mamba_norm(x, weight, bias, z, eps, rms, before):
    """A norm with a gate before or after it."""
    one_dtype(x, weight, bias, z)
    function = found("modules.norm.layernorm_gated:layernorm_fn")
    return dict(y=function(x, weight, bias, z=z, eps=eps, norm_before_gate=before, is_rms_norm=rms))
