"""Delta rules of fla-core: recurrent and chunked forms. Interesting: more heads of values than of keys, empty sequences."""

from functools import partial

from _fla import flash, one_dtype
from _recurrences import CHUNK, delta, low_rank
from _rows import Unit
from _states import QKV, STATES, H, K, N, V, carried, gates, grouped, sequences, states

from fuzz import option, size, tensor

GROUPS, WIDE, FEW = size("GROUPS", 1, 3), size("WIDE", 193, 256), size("FEW", 1, 16)
GROUPED = dict(q=sequences(H, K), k=sequences(H, K), v=sequences(H * GROUPS, V))
GROUPED_STATES = {
    **STATES, "dims": (N, GROUPS), "initial": states(H * GROUPS, K, V) | None,
    "differentiable": dict(y=sequences(H * GROUPS, V), final=states(H * GROUPS, K, V)),
}  # fmt: skip
NORMED = option(True, False)
"""Whether keys and queries are of length 1: the rule grows without bound where keys are longer."""


def lengths(normed, *parts):
    """Keys and queries of length 1, or of at most 1/8 a component, by no arithmetic that rounds."""
    return [Unit.apply(part) if normed else part.clamp(-0.125, 0.125) for part in parts]


def short(normed, *parts):
    return parts if normed else [part.clamp(-0.125, 0.125) for part in parts]


def unit_beta(beta):
    return None if beta is None else beta.abs().clamp(max=1.0)


def delta_reference(q, k, v, beta, normed, ragged, ends, **given):
    q, k = lengths(normed, q, k)
    return delta(q, k, v, unit_beta(beta), ends=ends if ragged else None, **given)


@flash(**QKV, beta=sequences(H) | None, normed=NORMED, reference=delta_reference, **STATES)
def fla_recurrent_delta_rule(q, k, v, beta, normed, **given):
    """The delta rule step by step."""
    one_dtype(q, k, v, beta)
    q, k = short(normed, q, k)
    place = "ops.delta_rule:fused_recurrent_delta_rule"
    return carried(place, q, k, v, unit_beta(beta), use_qk_l2norm_in_kernel=normed, **given)


@flash(
    **QKV, beta=sequences(H), normed=NORMED, chunk=option(64, 16, 32), dtypes=("bfloat16", "float16"), dot="tf32",
    reference=delta_reference, **STATES,
)  # fmt: skip
def fla_chunk_delta_rule(q, k, v, beta, normed, chunk, **given):
    """The delta rule in chunks, of half precision alone."""
    one_dtype(q, k, v, beta)
    q, k = short(normed, q, k)
    more = dict(use_qk_l2norm_in_kernel=normed, chunk_size=chunk)
    return carried("ops.delta_rule:chunk_delta_rule", q, k, v, unit_beta(beta), **more, **given)


def gated_reference(q, k, v, gate, beta, normed, ragged, ends, v_first=False, **given):
    q, k = lengths(normed, q, k)
    return delta(q, k, v, unit_beta(beta), gate=gates(gate), ends=ends if ragged else None, **given)


def rate(log):
    """Logarithms of rates from -4 to 4, by no arithmetic that rounds."""
    return log.clamp(-4.0, 4.0)


def recurrent_gated_reference(
    q, k, v, gate, keys, values, log, shift, beta, raw, squashed, doubled, normed, ragged, ends, v_first, **given
):  # fmt: skip
    q, k = lengths(normed, q, k)
    if beta is not None:
        beta = beta.sigmoid() * (2.0 if doubled else 1.0) if squashed else unit_beta(beta)
    if raw and gate is not None and log is not None:
        x = gate if shift is None else gate + shift
        gate = -rate(log).exp() * (x.clamp(min=0) + (-x.abs()).exp().log1p())
    else:
        gate = gates(gate)
    if keys is not None:
        gate = gates(keys) if gate is None else gates(keys) + gate.unsqueeze(-1)
    return delta(q, k, v, beta, gate=gate, values=gates(values), ends=ends if ragged else None, **given)


OF_HEADS = tensor(H * GROUPS, dtypes=("float32",))


@flash(
    **GROUPED, gate=sequences(H * GROUPS) | None, keys=sequences(H * GROUPS, K) | None,
    values=sequences(H * GROUPS, V) | None, log=OF_HEADS | None, shift=OF_HEADS | None, beta=sequences(H * GROUPS) | None,
    raw=option(False, True), squashed=option(False, True), doubled=option(False, True), normed=NORMED,
    v_first=option(False, True), reference=recurrent_gated_reference,
    **{name: value for name, value in GROUPED_STATES.items() if name != "differentiable"},
)  # fmt: skip
def fla_recurrent_gated_delta_rule(
    q, k, v, gate, keys, values, log, shift, beta, raw, squashed, doubled, normed, **given
):  # fmt: skip
    """The gated delta rule step by step, which has no backward; its gates as logarithms, or computed in the kernel."""
    one_dtype(q, k, v)
    q, k = short(normed, q, k)
    place = "ops.gated_delta_rule:fused_recurrent_gated_delta_rule"
    raw = raw and gate is not None and log is not None
    grouped(place, k, v, raw)
    more = dict(beta=beta if squashed else unit_beta(beta), use_qk_l2norm_in_kernel=normed)
    if squashed and beta is None:
        raise ValueError("there is nothing to take the sigmoid of")
    asked = dict(
        gk=gates(keys), gv=gates(values), use_gate_in_kernel=raw or None, A_log=rate(log) if raw else None,
        dt_bias=shift if raw else None, use_beta_sigmoid_in_kernel=squashed or None,
        allow_neg_eigval=(squashed and doubled) or None,
    )  # fmt: skip
    more |= {name: value for name, value in asked.items() if value is not None}
    return carried(place, q, k, v, gate if raw else gates(gate), **more, **given)


@flash(
    **GROUPED, gate=sequences(H * GROUPS), beta=sequences(H * GROUPS), normed=NORMED, v_first=option(False, True),
    chunk=option(64, 16, 32), dot="tf32", reference=gated_reference, **GROUPED_STATES,
)  # fmt: skip
def fla_chunk_gated_delta_rule(q, k, v, gate, beta, normed, chunk, **given):
    """The gated delta rule in chunks."""
    one_dtype(q, k, v)
    q, k = short(normed, q, k)
    more = dict(use_qk_l2norm_in_kernel=normed, chunk_size=chunk)
    place = "ops.gated_delta_rule:chunk_gated_delta_rule"
    grouped(place, k, v)
    return carried(place, q, k, v, gates(gate), unit_beta(beta), **more, **given)


@flash(
    q=sequences(1, WIDE), k=sequences(1, WIDE), v=sequences(1, FEW), gate=sequences(1), beta=sequences(1), normed=NORMED,
    v_first=option(False, True), chunk=option(64, 16, 32), dot="tf32", reference=gated_reference,
    **{
        **STATES, "initial": states(1, WIDE, FEW) | None,
        "differentiable": dict(y=sequences(1, FEW), final=states(1, WIDE, FEW)),
    },
)  # fmt: skip
def fla_chunk_gated_delta_rule_wide(**given):
    """The same with keys so wide that a kernel keeps them in several blocks."""
    return fla_chunk_gated_delta_rule(**given)


def combined(place, q, k, v, p, gate, beta, normed, p_first, **given):
    """What a form of the rule with a key of its own to read by gives; that key stands before or behind the values."""
    one_dtype(q, k, v, p)
    grouped(place, k, v)
    q, k = short(normed, q, k)
    p = None if p is None else short(normed, p)[0]
    inputs = (q, k, p, v) if p_first else (q, k, v, p)
    return carried(place, *inputs, gates(gate), beta=unit_beta(beta), use_qk_l2norm_in_kernel=normed, **given)


def comba_reference(q, k, v, p, gate, beta, normed, ragged, ends, form="", **given):
    q, k, p = lengths(normed, q, k, k if p is None else p)
    given = dict(read=p, early=True, **given)
    return delta(q, k, v, unit_beta(beta), gate=gates(gate), ends=ends if ragged else None, **given)


@flash(
    **GROUPED, p=sequences(H, K) | None, gate=sequences(H * GROUPS), beta=sequences(H * GROUPS) | None, normed=NORMED,
    reference=comba_reference, **{name: value for name, value in GROUPED_STATES.items() if name != "differentiable"},
)  # fmt: skip
def fla_recurrent_comba(**given):
    """The delta rule with a key of its own to read by, step by step."""
    return combined("ops.comba:fused_recurrent_comba", p_first=True, **given)


@flash(
    **GROUPED, p=sequences(H, K) | None, gate=sequences(H * GROUPS), beta=sequences(H * GROUPS) | None, normed=NORMED,
    dot="tf32", reference=partial(comba_reference, chunk=CHUNK), **GROUPED_STATES,
)  # fmt: skip
def fla_chunk_comba(**given):
    """The delta rule with a key of its own to read by, in chunks."""
    return combined("ops.comba:chunk_comba", p_first=False, **given)


LOW_RANK = dict(**QKV, a=sequences(H, K), b=sequences(H, K))


def tame(*parts):
    """Keys of at most 1/8 a component, by no arithmetic that rounds."""
    return [part.clamp(-0.125, 0.125) for part in parts]


def iplr_reference(q, k, v, a, b, ragged, ends, **given):
    q, k, a, b = tame(q, k, a, b)
    return low_rank(q, k, v, a, b, ends=ends if ragged else None, **given)


@flash(**LOW_RANK, reference=iplr_reference, **STATES)
def fla_recurrent_iplr(q, k, v, a, b, **given):
    """A state with an addition of rank 1, step by step."""
    one_dtype(q, k, v, a, b)
    q, k, a, b = tame(q, k, a, b)
    return carried("ops.generalized_delta_rule:fused_recurrent_iplr_delta_rule", q, k, v, a, b, **given)


@flash(
    **LOW_RANK, size=option(None, 32), dot="tf32", reference=lambda size, **given: iplr_reference(**given),
    **{name: value for name, value in STATES.items() if name != "differentiable"},
)  # fmt: skip
def fla_chunk_iplr(q, k, v, a, b, size, **given):
    """A state with an addition of rank 1, in chunks, which have no backward."""
    one_dtype(q, k, v, a, b)
    q, k, a, b = tame(q, k, a, b)
    more = {} if size is None else dict(chunk_size=size)
    return carried("ops.generalized_delta_rule:chunk_iplr_delta_rule", q, k, v, a, b, **more, **given)


def dplr_reference(q, k, v, a, b, gate, ragged, ends, reverse=False, safe=False, **given):
    q, k, a, b = tame(q, k, a, b)
    ends = ends if ragged else None
    return low_rank(q, k, v, a, b, gate=within(gate.detach(), safe), ends=ends, reverse=reverse, **given)


def within(gate, safe):
    """Logarithms of gates, from exp(-5) to 1 where the library asks for that, by no arithmetic that rounds."""
    return -gate.abs().clamp(max=5.0) if safe else gates(gate)


@flash(
    **LOW_RANK, gate=sequences(H, K), reverse=option(False, True), reference=dplr_reference,
    **{name: value for name, value in STATES.items() if name != "differentiable"},
)  # fmt: skip
def fla_recurrent_dplr(q, k, v, a, b, gate, **given):
    """A state that forgets, with an addition of rank 1, step by step, which has no backward."""
    one_dtype(q, k, v, a, b, gate)
    q, k, a, b = tame(q, k, a, b)
    place = "ops.generalized_delta_rule:fused_recurrent_dplr_delta_rule"
    return carried(place, q, k, v, a, b, gates(gate), **given)


@flash(
    **LOW_RANK, gate=sequences(H, K), reference=dplr_reference,
    **{name: value for name, value in STATES.items() if name != "differentiable"},
)  # fmt: skip
def fla_recurrent_rwkv7(q, k, v, a, b, gate, **given):
    """RWKV7 step by step, which has no backward."""
    one_dtype(q, k, v, a, b, gate)
    q, k, a, b = tame(q, k, a, b)
    return carried("ops.rwkv7:fused_recurrent_rwkv7", q, gates(gate), k, v, a, b, **given)


def chunk_dplr_reference(rwkv7, size, kept, scale, **given):
    return dplr_reference(scale=1.0 if rwkv7 and scale is None else scale, **given)


@flash(
    **LOW_RANK, gate=sequences(H, K), rwkv7=option(False, True), size=option(None, 32, 64), safe=option(False, True),
    kept=option(False, True), dot="tf32", reference=chunk_dplr_reference, **STATES,
)  # fmt: skip
def fla_chunk_dplr(q, k, v, a, b, gate, rwkv7, size, safe, kept, scale, **given):
    """A state that forgets, with an addition of rank 1, in chunks, also under RWKV7's name; gates get no gradient here."""
    one_dtype(q, k, v, a, b, gate)
    q, k, a, b = tame(q, k, a, b)
    gate, place = within(gate.detach(), safe), "ops.generalized_delta_rule:chunk_dplr_delta_rule"
    place = "ops.rwkv7:chunk_rwkv7" if rwkv7 else place
    given |= dict(safe_gate=True) if safe else {}
    given |= dict(disable_recompute=True) if kept else {}
    if rwkv7:
        scale = 1.0 if scale is None else scale
        return carried(place, q, gate, k, v, a, b, scale=scale, chunk_size=size, **given)
    return carried(place, q, k, v, a, b, gate, scale=scale, chunk_size=size, **given)


def mul_rwkv7_reference(r, w, k, v, kk, a, ragged, ends, reverse, scale, **given):
    r, k, kk, a = tame(r, k, kk, a)
    ends = ends if ragged else None
    scale = 1.0 if scale is None else scale
    return low_rank(r, k, v, -kk, kk * a, gate=gates(w), ends=ends, reverse=reverse, scale=scale, **given)


@flash(
    r=sequences(H, K), w=sequences(H, K), k=sequences(H, K), v=sequences(H, V), kk=sequences(H, K), a=sequences(H, K),
    reverse=option(False, True), reference=mul_rwkv7_reference,
    **{name: value for name, value in STATES.items() if name != "differentiable"},
)  # fmt: skip
def fla_mul_recurrent_rwkv7(r, w, k, v, kk, a, scale, **given):
    """RWKV7 step by step, with its products made in the kernel."""
    one_dtype(r, w, k, v, kk, a)
    r, k, kk, a = tame(r, k, kk, a)
    scale = 1.0 if scale is None else scale
    place = "ops.rwkv7.fused_recurrent:fused_mul_recurrent_rwkv7"
    return carried(place, r, gates(w), k, v, kk, a, scale=scale, **given)
