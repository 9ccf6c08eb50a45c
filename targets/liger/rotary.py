"""Rotary embeddings of liger-kernel, which turn what they are given in place. Interesting: strides, few heads."""

import torch
from _liger import applied, beyond, found, liger, one_dtype, takes

from fuzz import option, size, tensor

HALF, LENGTH, HEADS, B = size("HALF", 1, 64), size("LENGTH", 1, 64), size("HEADS", 1, 4), size("B", 1, 4)


GROUPS, REST = size("GROUPS", 1, 4), size("REST", 0, 32)
TABLE = tensor(LENGTH, HALF) | tensor(1, LENGTH, HALF) | tensor(B, LENGTH, HALF)
QUERIES, KEYS = tensor(B, GROUPS * HEADS, LENGTH, 2 * HALF + REST), tensor(B, HEADS, LENGTH, 2 * HALF + REST)


def rope_reference(q, k, cos, sin, whole):
    width = 2 * cos.shape[-1]
    c, s = (torch.cat([part, part], -1).detach().reshape(-1, 1, *part.shape[-2:-1], width) for part in (cos, sin))

    def turned(x):
        left, right = x[..., :width].chunk(2, -1)
        return torch.cat([x[..., :width] * c + torch.cat([-right, left], -1) * s, x[..., width:]], -1)

    return dict(turned_q=turned(q), turned_k=turned(k))


@liger(
    q=QUERIES, k=KEYS, cos=TABLE, sin=TABLE, whole=option(True, False), dims=(REST, GROUPS),
    in_place=("q", "k", "grad turned_q", "grad turned_k"), accumulate="inputs", reference=rope_reference,
    differentiable=dict(turned_q=QUERIES, turned_k=KEYS),
)  # fmt: skip
def liger_rope(q, k, cos, sin, whole):
    """Rotary embedding of the first of each head, which may be turned in place; tables twice as wide or not."""
    one_dtype(q, k, cos, sin)
    if cos.shape != sin.shape:
        raise ValueError("tables of one shape")
    if 2 * cos.shape[-1] < q.shape[-1]:
        takes(found("rope:LigerRopeFunction").forward, "rotary_dim")
    more = {} if whole else dict(rotary_dim=2 * cos.shape[-1])
    if whole:
        cos, sin = (torch.cat([part, part], -1) for part in (cos, sin))
    cos, sin = (part.detach().unsqueeze(0) if part.dim() == 2 and whole else part.detach() for part in (cos, sin))
    turned_q, turned_k = applied("rope:LigerRopeFunction", q=q, k=k, cos=cos, sin=sin, **more)
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
    q=tensor(B, 2 * HEADS, LENGTH, 2 * PARTS),
    k=tensor(B, HEADS, LENGTH, 2 * PARTS),
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


def complex_reference(q, k, angles):
    real, imaginary = angles.detach().unsqueeze(1).unflatten(-1, (-1, 2)).unbind(-1)

    def turned(x):
        left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
        parts = left * real - right * imaginary, left * imaginary + right * real
        return torch.stack(parts, -1).flatten(-2)

    return dict(turned_q=turned(q), turned_k=turned(k))


@liger(
    q=tensor(B, LENGTH, 2 * HEADS, 2 * HALF),
    k=tensor(B, LENGTH, HEADS, 2 * HALF),
    angles=tensor(LENGTH, 2 * HALF, dtypes=("float32",)),
    dims=(HALF,),
    in_place=("q", "k", "grad turned_q", "grad turned_k"),
    accumulate="inputs",
    reference=complex_reference,
    differentiable=dict(
        turned_q=tensor(B, LENGTH, 2 * HEADS, 2 * HALF), turned_k=tensor(B, LENGTH, HEADS, 2 * HALF)
    ),
)  # fmt: skip
def liger_llama4_rope(q, k, angles):
    """Rotary embedding of neighbours as complex numbers."""
    one_dtype(q, k)
    turns = torch.complex(*angles.detach().unflatten(-1, (-1, 2)).unbind(-1))
    turned_q, turned_k = applied("llama4_rope:LigerLlama4RopeFunction", q=q, k=k, freqs_cis=turns)
    return dict(turned_q=turned_q, turned_k=turned_k)
