"""States of fla-core that are trained, solved for, or made of normalized keys. Interesting: chunks that are not full."""

import torch
from _fla import COMMON, SHARED, flash, found, one_dtype
from _recurrences import CHUNK, begun, cumulative, delta, linear, rows, scanned, scanned_by_head
from _rows import Unit
from _states import QKV, RAGGED, STATES, B, H, K, N, T, V, carried, gates, sequences, states

from fuzz import by_option, option, size, tensor

GROUPS, WIDE, FEW = size("GROUPS", 1, 3), size("WIDE", 193, 256), size("FEW", 1, 16)
FORWARD = {name: value for name, value in STATES.items() if name != "differentiable"}


def small(*parts):
    """Components of at most 1/8, by no arithmetic that rounds."""
    return [None if part is None else part.clamp(-0.125, 0.125) for part in parts]


def unit(x):
    """Numbers from 0 to 1, by no arithmetic that rounds."""
    return None if x is None else x.abs().clamp(max=1.0)


def normed(x, eps):
    x = x - x.mean(-1, keepdim=True)
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def trained(q, k, v, eta, w, b, state, shift, chunk, eps):
    """One step of gradient descent for each chunk of sequences (B, H, T, D) of one length; what it reads, and the state."""
    outputs = []
    for place in range(0, q.shape[2], chunk):
        qs, ks, vs, rate = (part[:, :, place : place + chunk] for part in (q, k, v, eta))
        seen = ks @ state + shift
        scale = 1 / ((seen - seen.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) + eps).sqrt()
        hat = normed(seen, eps)
        error = (w * hat + b - (vs - ks)) * w
        step = (error - error.mean(-1, keepdim=True) - hat * (error * hat).mean(-1, keepdim=True)) * scale
        before = torch.ones(qs.shape[2], qs.shape[2], dtype=q.dtype, device=q.device).tril()
        y = qs @ state - (rate * ((qs @ ks.transpose(-1, -2)) * before)) @ step + shift - (rate * before) @ step
        state = state - (rate[:, :, -1:] * ks).transpose(-1, -2) @ step
        shift = shift - (rate[:, :, -1:] * step).sum(-2, keepdim=True)
        outputs.append(y + normed(y, eps) * w + b)
    return torch.cat(outputs, 2) if outputs else q, state, shift


def steady(k, v, w, b, eta):
    """Inputs whose squares and products stay far from the end of float32, by no arithmetic that rounds."""
    return *small(k), *(x.clamp(-(2.0**12), 2.0**12) for x in (v, w, b)), eta.abs().clamp(max=0.125)


def ttt_reference(q, k, v, w, b, eta, state, shift, scale, keep, chunk, eps, fused, fixed, ends=None):
    eta = eta if fixed is None else torch.full_like(eta, fixed)
    k, v, w, b, eta = steady(k, v, w, b, eta)
    q, k, v, eta = (part.transpose(1, 2) for part in (q, k, v, eta))
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    count = len(q) if ends is None else len(ends) - 1
    state = q.new_zeros(count, q.shape[1], q.shape[-1], q.shape[-1]) if state is None else state
    shift = q.new_zeros(count, q.shape[1], 1, q.shape[-1]) if shift is None else shift
    more = (w.unsqueeze(1), b.unsqueeze(1))
    if ends is not None:
        edges = ends.tolist()
        parts = [
            trained(*(x[:, :, i:j] for x in (q, k, v, eta)), *more, state[n : n + 1], shift[n : n + 1], chunk, eps)
            for n, (i, j) in enumerate(zip(edges, edges[1:], strict=False))
        ]
        y, state, shift = (torch.cat(part, dim) for part, dim in zip(zip(*parts, strict=True), (2, 0, 0), strict=True))
    else:
        y, state, shift = trained(q, k, v, eta, *more, state, shift, chunk, eps)
    return dict(y=y.transpose(1, 2), **(dict(final=state, final_shift=shift) if keep else {}))


TTT = dict(
    w=tensor(H, K), b=tensor(H, K), chunk=option(16, 32, 64), eps=option(1e-6, 1e-2), fused=option(False, True),
    fixed=option(None, 0.0625), scale=option(None, 0.5), keep=option(True, False), timeout=300.0, accumulate="inputs", dot="tf32",
    unreached={
        **SHARED, "fla/modules/norm/*:*": COMMON, "*fwd_o: `scale is None`*": "what users call passes a scale",
        **dict.fromkeys(("*IS_VARLEN*", "*cu_seqlens is not None*"), "one target has sequences of one length, one of several"),
    },
)  # fmt: skip


def at_test_time(q, k, v, w, b, eta, state, shift, keep, chunk, fused, fixed, ends=None, **given):
    one_dtype(q, k, v, w, b, eta)
    k, v, w, b, eta = steady(k, v, w, b, eta)
    eta = eta if fixed is None else fixed
    y, final, final_shift = found(f"ops.ttt:{'fused_' if fused else ''}chunk_ttt_linear")(
        q, k, v, w, b, eta, chunk_size=chunk, initial_state=state, initial_state_bias=shift, output_final_state=keep,
        cu_seqlens=ends, **given,
    )  # fmt: skip
    return dict(y=y, **(dict(final=final, final_shift=final_shift) if keep else {}))


@flash(
    **dict.fromkeys(("q", "k", "v"), tensor(B, T, H, K)), eta=tensor(B, T, H, 1), reference=ttt_reference, **TTT,
    state=tensor(B, H, K, K, dtypes=("float32",)) | None, shift=tensor(B, H, 1, K, dtypes=("float32",)) | None,
    differentiable=dict(y=tensor(B, T, H, K), final=tensor(B, H, K, K), final_shift=tensor(B, H, 1, K)),
)  # fmt: skip
def fla_ttt_linear(**given):
    """A layer that is trained at test time, chunk by chunk."""
    return at_test_time(**given)


@flash(
    **dict.fromkeys(("q", "k", "v"), tensor(1, T, H, K)), eta=tensor(1, T, H, 1), reference=ttt_reference, **TTT,
    state=tensor(N, H, K, K, dtypes=("float32",)) | None, shift=tensor(N, H, 1, K, dtypes=("float32",)) | None,
    ends=RAGGED["ends"], dims=(N,),
)  # fmt: skip
def fla_ttt_linear_ragged(**given):
    """The same of sequences one after the other, which has no backward."""
    return at_test_time(**given)


def conjugate(matrix, diagonal, x, right, steps):
    """`steps` of conjugate gradients from x on for (matrix + diagonal) x = right, with denominators as the library's."""

    def product(x):
        return (x.unsqueeze(-2) @ matrix).squeeze(-2) + diagonal * x

    rest = right - product(x)
    way, length = rest, rest.square().sum(-1, keepdim=True)
    for _ in range(steps):
        pushed = product(way)
        pace = length / ((way * pushed).sum(-1, keepdim=True) + 1e-5)
        x, rest = x + pace * way, rest - pace * pushed
        after = rest.square().sum(-1, keepdim=True)
        way, length = rest + after / (length + 1e-5) * way, after
    return x


class Solved(torch.autograd.Function):
    """What conjugate gradients find, with the gradient of the exact solution found in the same way."""

    @staticmethod
    def forward(ctx, matrix, diagonal, right, steps):
        x = conjugate(matrix, diagonal, torch.zeros_like(right), right, steps)
        ctx.save_for_backward(matrix, diagonal, x)
        ctx.steps = steps
        return x

    @staticmethod
    def backward(ctx, dx):
        matrix, diagonal, x = ctx.saved_tensors
        dright = conjugate(matrix, diagonal, torch.zeros_like(dx), dx, ctx.steps)
        return -dright.unsqueeze(-1) * x.unsqueeze(-2), (-dright * x).sum(0), dright, None


D = size("D", 1, 64)


def mesa_reference(q, k, v, g, beta, lamb, keys, values, normed, steps, ragged, ends, keep):
    q, k = (Unit.apply(q), Unit.apply(k)) if normed else small(q, k)
    diagonal = lamb.abs().clamp(0.25, 4.0)
    count = len(ends) - 1 if ragged else len(q)
    first = q.new_zeros(count, *q.shape[2:], q.shape[-1])
    keys = first if keys is None else torch.diag_embed(keys.abs())
    state = torch.cat([keys, first if values is None else values], -1)

    def step(state, v, q, k, gate, beta):
        taken = (k * beta.unsqueeze(-1)).unsqueeze(-1) @ torch.cat([k, v], -1).unsqueeze(-2)
        state = state * gate.exp().unsqueeze(-1).unsqueeze(-1) + taken
        matrix, read = state.split(q.shape[-1], -1)
        x = Solved.apply(matrix, diagonal, q, steps)
        return (x.unsqueeze(-2) @ read).squeeze(-2), state

    y, state = scanned(step, state, ends if ragged else None, False, v, q, k, gates(g), unit(beta))
    after = state.split(q.shape[-1], -1)
    return dict(y=y, **(dict(keys_after=after[0], values_after=after[1]) if keep else {}))


@flash(
    q=sequences(H, D), k=sequences(H, D), v=sequences(H, D), g=sequences(H, dtypes=("float32",)),
    beta=sequences(H, dtypes=("float32",)), lamb=tensor(H, D, dtypes=("float32",)), keys=states(H, D) | None,
    values=states(H, D, D) | None, normed=option(True, False), steps=option(30, 5), **RAGGED, keep=option(True, False),
    timeout=300.0, accumulate="float16", dot="tf32", reference=mesa_reference,
    differentiable=dict(y=sequences(H, D), keys_after=states(H, D, D), values_after=states(H, D, D)),
)  # fmt: skip
def fla_chunk_mesa_net(q, k, v, g, beta, lamb, keys, values, normed, steps, ragged, ends, keep):
    """A state that is the solution of a least-squares problem, in chunks and in half precision."""
    one_dtype(q, k, v)
    q, k = (q, k) if normed else small(q, k)
    keys = None if keys is None else torch.diag_embed(keys.abs())
    y, keys_after, values_after = found("ops.mesa_net:chunk_mesa_net")(
        q, k, v, gates(g), unit(beta), lamb.abs().clamp(0.25, 4.0), keys, values, output_final_state=keep,
        max_CG_iteration=steps, use_qk_l2norm_in_kernel=normed, cu_seqlens=ends if ragged else None,
    )  # fmt: skip
    return dict(y=y, **(dict(keys_after=keys_after, values_after=values_after) if keep else {}))


def mesa_step_reference(q, k, v, g, lamb, beta, keys, values, steps):
    q, k = small(q, k)
    forget, write = gates(g).exp().unsqueeze(-1).unsqueeze(-1), (k * unit(beta).unsqueeze(-1)).unsqueeze(-1)
    matrix = torch.diag_embed(keys.abs()) * forget + write @ k.unsqueeze(-2)
    read, diagonal = values * forget + write @ v.unsqueeze(-2), lamb.abs().clamp(0.25, 4.0)
    x = q / (matrix.diagonal(dim1=-2, dim2=-1) + diagonal + 1e-5)
    x = conjugate(matrix, diagonal, x, q, steps)
    return dict(y=(x.unsqueeze(-2) @ read).squeeze(-2), keys_after=matrix, values_after=read)


@flash(
    q=tensor(B, H, K), k=tensor(B, H, K), v=tensor(B, H, V), g=tensor(B, H), lamb=tensor(H, K), beta=tensor(B, H),
    keys=tensor(B, H, K, dtypes=("float32",)), values=tensor(B, H, K, V, dtypes=("float32",)), steps=option(30, 5, 0),
    timeout=120.0, accumulate="inputs", reference=mesa_step_reference,
)  # fmt: skip
def fla_mesa_net_step(q, k, v, g, lamb, beta, keys, values, steps):
    """One place of a state that is the solution of a least-squares problem."""
    q, k = small(q, k)
    given = (gates(g), lamb.abs().clamp(0.25, 4.0), unit(beta), torch.diag_embed(keys.abs()), values, steps)
    y, keys_after, values_after = found("ops.mesa_net:mesa_net_decoding_one_step")(q, k, v, *given)
    return dict(y=y, keys_after=keys_after, values_after=values_after)


def oja_reference(q, k, v, gate, beta, normed, initial, ragged, ends, scale, keep):
    groups = v.shape[2] // q.shape[2]
    q, k = (Unit.apply(q), Unit.apply(k)) if normed else small(q, k)
    q, k = (part.repeat_interleave(groups, 2) for part in (q, k))
    (v,) = small(v)
    beta = torch.ones_like(v[..., 0]) if beta is None else unit(beta)
    beta = beta if beta.dim() == 4 else beta.unsqueeze(-1)
    gate = torch.zeros_like(v) if gate is None else gates(gate.detach())
    factor = q.shape[-1] ** -0.5 if scale is None else scale

    def step(state, v, q, k, forget, beta):
        state = state * forget
        state = state + (beta * (k - state.bmm(v.transpose(-1, -2)))).bmm(v)
        return q.bmm(state), state

    ends, state = ends if ragged else None, begun(initial, ends if ragged else None, k, v)
    v, q, forget = rows(v, q, gate.exp())
    y, final = scanned_by_head(step, state, ends, False, v, q, k.unsqueeze(-1), forget, beta.unsqueeze(-1))
    y = y * factor
    return dict(y=y, final=final) if keep else dict(y=y)


OJA = ("fla.ops.gated_oja_rule",)
ONE_KERNEL = {
    "*chunk_scaled_dot_kkt_fwd_kernel is never*": "the rule has gates of values, which take other kernels",
    **dict.fromkeys(("*`gk is None` is never true*", "*HAVE_GK*"), "the rule has gates of values"),
}  # fmt: skip
GROUPED = dict(
    q=sequences(H, K), k=sequences(H, K), v=sequences(H * GROUPS, V), normed=option(True, False),
    **{**FORWARD, "dims": (N, GROUPS), "initial": states(H * GROUPS, K, V) | None},
)  # fmt: skip


@flash(
    gate=sequences(H * GROUPS, V) | None, beta=sequences(H * GROUPS) | None, reference=oja_reference, imports=OJA,
    **GROUPED,
)  # fmt: skip
def fla_recurrent_oja(q, k, v, gate, beta, normed, **given):
    """Oja's rule step by step, which has no backward: keys take in what values find."""
    one_dtype(q, k, v)
    (q, k), (v,) = (q, k) if normed else small(q, k), small(v)
    more = dict(beta=unit(beta), use_q_l2norm=normed, use_k_l2norm=normed)
    place = "ops.gated_oja_rule:fused_recurrent_gated_oja_rule"
    return carried(place, q, k, v, None if gate is None else gates(gate.detach()), **more, **given)


@flash(
    **QKV, gate=sequences(H, V), beta=sequences(H), normed=option(True, False), reference=oja_reference, dot="tf32",
    unreached={**SHARED, **ONE_KERNEL, "*`V > 1*": "fla_chunk_oja_wide has values as wide"}, imports=OJA, **STATES,
)  # fmt: skip
def fla_chunk_oja(q, k, v, gate, beta, normed, **given):
    """Oja's rule in chunks; its gates get no gradient here."""
    one_dtype(q, k, v)
    (q, k), (v,) = (q, k) if normed else small(q, k), small(v)
    more = dict(use_q_l2norm=normed, use_k_l2norm=normed)
    return carried(
        "ops.gated_oja_rule:chunk_gated_oja_rule", q, k, v, gates(gate.detach()), unit(beta), **more, **given
    )


@flash(
    q=sequences(1, FEW), k=sequences(1, FEW), v=sequences(1, WIDE), gate=sequences(1, WIDE), beta=sequences(1),
    normed=option(True, False), reference=oja_reference, dot="tf32", unreached={**SHARED, **ONE_KERNEL}, imports=OJA,
    **{
        **STATES, "initial": states(1, FEW, WIDE) | None,
        "differentiable": dict(y=sequences(1, WIDE), final=states(1, FEW, WIDE)),
    },
)  # fmt: skip
def fla_chunk_oja_wide(**given):
    """The same with values so wide that a kernel keeps them in several blocks."""
    return fla_chunk_oja(**given)


STEPS = 2


def several(*dims):
    """Sequences of STEPS times as many places."""
    return by_option("ragged", {False: tensor(B, STEPS * T, *dims), True: tensor(1, STEPS * T, *dims)})


def product_reference(q, k, v, gate, beta, normed, ragged, ends, **given):
    q, k = (Unit.apply(q), Unit.apply(k)) if normed else small(q, k)
    between = None
    if gate is not None:
        between = torch.stack([gates(gate), *[torch.zeros_like(gate)] * (STEPS - 1)], 2).flatten(1, 2)
    read = torch.stack([*[torch.zeros_like(q)] * (STEPS - 1), q], 2).flatten(1, 2)
    ends = ends * STEPS if ragged else None
    outputs = delta(read, k, v, unit(beta), gate=between, ends=ends, chunk=CHUNK, **given)
    return {**outputs, "y": outputs["y"][:, STEPS - 1 :: STEPS]}


@flash(
    q=sequences(H, K), k=several(H, K), v=several(H, V), gate=sequences(H) | None, beta=several(H),
    normed=option(True, False), dtypes=("bfloat16", "float16"), dot="tf32", reference=product_reference,
    imports=("fla.ops.gated_delta_product",), **STATES,
)  # fmt: skip
def fla_chunk_gated_delta_product(q, k, v, gate, beta, normed, **given):
    """Two delta rules a place, in chunks and of half precision alone."""
    one_dtype(q, k, v, beta)
    q, k = (q, k) if normed else small(q, k)
    more = dict(num_householder=STEPS, use_qk_l2norm_in_kernel=normed)
    place = "ops.gated_delta_product:chunk_gated_delta_product"
    return carried(place, q, k, v, gates(gate), unit(beta), **more, **given)


def light_reference(q, k, v, initial, ragged, ends, scale, keep, v_first, chunked):
    ends = ends if ragged else None
    k, gate, _ = cumulative(k, ends)
    return linear(q, k, v, initial=initial, ends=ends, scale=scale, keep=keep, gate=gate)


@flash(
    **QKV, chunked=option(True, False), v_first=option(False, True), dot="tf32", reference=light_reference,
    imports=("fla.ops.lightnet",), **STATES,
)  # fmt: skip
def fla_lightnet(q, k, v, chunked, ragged, ends, initial, keep, v_first, scale):
    """Linear attention of keys that a softmax over time normalizes."""
    one_dtype(q, k, v)
    first = initial.transpose(-1, -2) if v_first and initial is not None else initial
    y, (final, _) = found(f"ops.lightnet:{'chunk' if chunked else 'fused_recurrent'}_lightnet")(
        q, k, v, scale=scale, initial_state=(first, None), output_final_state=keep, state_v_first=v_first,
        cu_seqlens=ends if ragged else None,
    )  # fmt: skip
    return dict(y=y, **(dict(final=final.transpose(-1, -2) if v_first else final) if keep else {}))
