"""Rotary embeddings of liger-kernel, which turn what they are given in place. Interesting: strides, few heads."""

import torch
from _liger import UNREACHED, applied, beyond, found, liger, one_dtype, takes

from fuzz import by_option, option, size, tensor

HALF, LENGTH, HEADS, B = size("HALF", 1, 64), size("LENGTH", 1, 64), size("HEADS", 1, 4), size("B", 1, 4)


GROUPS, REST = size("GROUPS", 1, 4), size("REST", 0, 32)
SHAPES = dict(
    rows=tensor(LENGTH, HALF), one=tensor(1, LENGTH, HALF), each=tensor(B, LENGTH, HALF),
    before=tensor(B, 1, LENGTH, HALF), after=tensor(B, LENGTH, 1, HALF),
)  # fmt: skip
TABLE = by_option("table", SHAPES)
TABLES = dict(
    cos=TABLE, sin=TABLE, whole=option(True, False), table=option(*SHAPES), axis=option(1, 2), dims=(REST, GROUPS),
)  # fmt: skip
QUERIES, KEYS = (
    tensor(B, heads, LENGTH, 2 * HALF + REST, overlapping=True) for heads in (GROUPS * HEADS, HEADS)
)  # fmt: skip


def rope_reference(q, k, cos, sin, whole, table, axis):
    width = 2 * cos.shape[-1]
    c, s = (torch.cat([part, part], -1).detach().reshape(-1, 1, q.shape[2], width) for part in (cos, sin))

    def turned(x):
        left, right = x[..., :width].chunk(2, -1)
        return torch.cat([x[..., :width] * c + torch.cat([-right, left], -1) * s, x[..., width:]], -1)

    return dict(turned_q=turned(q), turned_k=turned(k))


@liger(
    q=QUERIES, k=KEYS, **TABLES, in_place=("q", "k", "grad turned_q", "grad turned_k"), accumulate="inputs",
    reference=rope_reference, differentiable=dict(turned_q=QUERIES, turned_k=KEYS),
    unreached={**UNREACHED, "*rope_backward: `cos.ndim*": "the forward keeps tables of rank 3; see liger_rope_backward"},
)  # fmt: skip
def liger_rope(q, k, cos, sin, whole, table, axis):
    """Rotary embedding of the first of each head, which may be turned in place; tables twice as wide or not."""
    function = found("rope:LigerRopeFunction")
    given = tables(q, k, cos, sin, whole, axis, function.forward)
    turned_q, turned_k = applied("rope:LigerRopeFunction", q=q, k=k, **given)
    return dict(turned_q=turned_q, turned_k=turned_k)


def tables(q, k, cos, sin, whole, axis, function):
    """What one of the functions is given beside queries and keys."""
    one_dtype(q, k, cos, sin)
    if 2 * cos.shape[-1] < q.shape[-1] or cos.dim() == 4:
        takes(function, "rotary_dim")
    if cos.dim() == 4 and 1 not in (cos.shape[1], cos.shape[axis]) and not whole and cos.shape[-1] == 1:
        raise ValueError("where no dim of 1 is at the axis, all dims of 1 are taken for one of heads")
    more = dict(unsqueeze_dim=axis) if axis != 1 else {}
    if whole:
        cos, sin = (torch.cat([part, part], -1) for part in (cos, sin))
    else:
        more |= dict(rotary_dim=2 * cos.shape[-1])
    cos, sin = (part.detach().unsqueeze(0) if part.dim() == 2 and whole else part.detach() for part in (cos, sin))
    return dict(cos=cos, sin=sin, **more)


def rope_backward_reference(dq, dk, cos, sin, whole, table, axis):
    return rope_reference(dq, dk, cos, -sin, whole, table, axis)


@liger(
    dq=QUERIES, dk=KEYS, **TABLES, in_place=("dq", "dk"), accumulate="inputs", reference=rope_backward_reference,
    unreached={**UNREACHED, "*BACKWARD_PASS*": "the forward is that of liger_rope"},
)  # fmt: skip
def liger_rope_backward(dq, dk, cos, sin, whole, table, axis):
    """Its backward by itself, which turns the other way."""
    function = found("rope:rope_backward")
    turned_q, turned_k = function(dq, dk, **tables(dq, dk, cos, sin, whole, axis, function))
    return dict(turned_q=turned_q, turned_k=turned_k)


TIME, HEIGHT, WIDTH = size("TIME", 0, 16), size("HEIGHT", 0, 16), size("WIDTH", 1, 16)
PARTS = TIME + HEIGHT + WIDTH
TURNED = dict(turned_q=tensor(B, 2 * HEADS, LENGTH, 2 * PARTS), turned_k=tensor(B, HEADS, LENGTH, 2 * PARTS))


def mrope_reference(q, k, cos, sin, time, height):
    def chosen(table):
        edges = ((0, time), (time, time + height), (time + height, table.shape[-1]))
        parts = [table.detach()[axis, ..., first:last] for axis, (first, last) in enumerate(edges)]
        return torch.cat([*parts, *parts], -1).unsqueeze(1)

    def turned(x):
        left, right = x.chunk(2, -1)
        return x * chosen(cos) + torch.cat([-right, left], -1) * chosen(sin)

    return dict(turned_q=turned(q), turned_k=turned(k))


@liger(
    q=tensor(B, 2 * HEADS, LENGTH, 2 * PARTS, overlapping=True),
    k=tensor(B, HEADS, LENGTH, 2 * PARTS, overlapping=True),
    cos=tensor(3, B, LENGTH, PARTS),
    sin=tensor(3, B, LENGTH, PARTS),
    time=TIME,
    height=HEIGHT,
    dims=(WIDTH,),
    in_place=("q", "k", "grad turned_q", "grad turned_k"),
    accumulate="inputs",
    reference=mrope_reference,
    differentiable=TURNED,
)
def liger_mrope(q, k, cos, sin, time, height):
    """Rotary embedding by three places, of time, height and width, each for a part of every head."""
    one_dtype(q, k, cos, sin)
    c, s = (torch.cat([part, part], -1).detach() for part in (cos, sin))
    section = [time, height, cos.shape[-1] - time - height]
    place = "qwen2vl_mrope:LigerQwen2VLMRopeFunction"
    if len(q) > 1:
        beyond(place, "(3, 1, seq_len, head_dim)")
    turned_q, turned_k = applied(place, q=q, k=k, cos=c, sin=s, mrope_section=section)
    return dict(turned_q=turned_q, turned_k=turned_k)


MORE, WIDE = size("MORE", 0, 8), size("HALF", 1, 300)
ANGLES = {
    False: tensor(LENGTH + MORE, 2 * WIDE, dtypes=("float32",)), True: tensor(B, LENGTH, 2 * WIDE, dtypes=("float32",))
}  # fmt: skip


def complex_reference(q, k, angles, each, complex, block):
    angles = angles[..., : q.shape[1], :]
    real, imaginary = angles.detach().unsqueeze(-2).unflatten(-1, (-1, 2)).unbind(-1)

    def turned(x):
        left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
        parts = left * real - right * imaginary, left * imaginary + right * real
        return torch.stack(parts, -1).flatten(-2)

    return dict(turned_q=turned(q), turned_k=turned(k))


@liger(
    q=tensor(B, LENGTH, 2 * HEADS, 2 * WIDE, overlapping=True),
    k=tensor(B, LENGTH, HEADS, 2 * WIDE, overlapping=True),
    angles=by_option("each", ANGLES),
    each=option(False, True),
    complex=option(True, False),
    block=option(None, 16, 128),
    dims=(WIDE, MORE),
    in_place=("q", "k", "grad turned_q", "grad turned_k"),
    accumulate="inputs",
    reference=complex_reference,
    differentiable=dict(
        turned_q=tensor(B, LENGTH, 2 * HEADS, 2 * WIDE), turned_k=tensor(B, LENGTH, HEADS, 2 * WIDE)
    ),
    unreached={**UNREACHED, "*.dtype != original_dtype*": "queries and keys have the queries' dtype by then"},
)  # fmt: skip
def liger_llama4_rope(q, k, angles, each, complex, block):
    """Rotary embedding of neighbours as complex numbers, or as pairs."""
    turns = angles.detach().unflatten(-1, (-1, 2))
    if complex:
        turns = torch.complex(*turns.unbind(-1))
    elif each:
        raise ValueError("pairs are those of one sequence")
    more = {} if block is None else dict(BLOCK_SIZE=block)
    turned_q, turned_k = applied("llama4_rope:LigerLlama4RopeFunction", q=q, k=k, freqs_cis=turns, **more)
    return dict(turned_q=turned_q, turned_k=turned_k)
