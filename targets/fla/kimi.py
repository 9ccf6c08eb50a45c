"""Kimi's delta attention of fla-core, step by step and in chunks. Interesting: gates that kernels compute within bounds."""

from _fla import SHARED, flash, one_dtype
from _recurrences import delta
from _rows import Unit
from _states import STATES, H, K, N, V, activated, carried, gates, grouped, mild, sequences, states, steady

from fuzz import option, size, tensor

GROUPS = size("GROUPS", 1, 3)
KDA = dict(
    q=sequences(H, K), k=sequences(H, K), v=sequences(H * GROUPS, V), gate=sequences(H * GROUPS, K),
    beta=sequences(H * GROUPS), log=tensor(H * GROUPS, dtypes=("float32",)) | None,
    shift=tensor(H * GROUPS, K, dtypes=("float32",)) | None, raw=option(False, True), bound=option(None, -5.0),
    squashed=option(False, True), doubled=option(False, True), normed=option(True, False),
    v_first=option(False, True),
    **{
        **STATES, "dims": (N, GROUPS), "initial": states(H * GROUPS, K, V) | None,
        "differentiable": dict(y=sequences(H * GROUPS, V), final=states(H * GROUPS, K, V)),
    },
)  # fmt: skip
NARROW = {**SHARED, "*BETA_HEADWISE*": "betas are documented to be one a head"}


def kda_reference(
    q, k, v, gate, beta, log, shift, raw, bound, squashed, doubled, normed, ragged, ends, v_first, **given
):  # fmt: skip
    q, k = (Unit.apply(q), Unit.apply(k)) if normed else (q.clamp(-0.125, 0.125), k.clamp(-0.125, 0.125))
    gate = activated(gate, log, shift, bound) if raw else gates(gate)
    beta = beta.sigmoid() * (2.0 if doubled else 1.0) if squashed else beta.abs().clamp(max=1.0)
    return delta(q, k, v, beta, gate=gate, ends=ends if ragged else None, **given)


def attended(place, q, k, v, gate, beta, log, shift, raw, bound, squashed, doubled, normed, **given):
    """What a form of the attention gives."""
    one_dtype(q, k, v)
    grouped(place, k, v, raw)
    more = dict(use_qk_l2norm_in_kernel=normed)
    if raw and log is None and bound is None:
        raise ValueError("gates without a bound have a rate")
    if raw:
        more |= dict(use_gate_in_kernel=True, A_log=steady(log), dt_bias=None if shift is None else shift.reshape(-1))
    bound, doubled = (bound if raw else None), squashed and doubled
    asked = dict(use_beta_sigmoid_in_kernel=squashed, allow_neg_eigval=doubled, lower_bound=bound)
    more |= {name: value for name, value in asked.items() if value}
    if not normed:
        q, k = q.clamp(-0.125, 0.125), k.clamp(-0.125, 0.125)
    beta = beta if squashed else beta.abs().clamp(max=1.0)
    return carried(place, q, k, v, gate if raw else gates(gate), beta, **more, **given)


@flash(
    **{name: value for name, value in KDA.items() if name != "differentiable"}, reference=kda_reference, unreached=NARROW
)  # fmt: skip
def fla_recurrent_kda(**given):
    """Kimi's delta attention step by step, which has no backward; its gates as logarithms, or computed in the kernel."""
    return attended("ops.kda:fused_recurrent_kda", **given)


def chunk_kda_reference(size, kept, raw, gate, log, shift, **given):
    gate, log, shift = mild(raw, gate, log, shift)
    return kda_reference(raw=raw, gate=gate, log=log, shift=shift, chunk=size, **given)


@flash(
    **KDA, size=option(64, 32), kept=option(False, True), dot="tf32", reference=chunk_kda_reference,
    unreached={**NARROW, "*return_intermediate_states*": "states between chunks are given in inference mode alone"},
)  # fmt: skip
def fla_chunk_kda(size, kept, raw, gate, log, shift, **given):
    """Kimi's delta attention in chunks; gates that the kernel computes within bounds go another way."""
    place = "ops.kda:chunk_kda"
    more = dict(disable_recompute=True) if kept else {}
    gate, log, shift = mild(raw, gate, log, shift)
    given |= dict(raw=raw, gate=gate, log=log, shift=shift)
    if raw and given["bound"] is not None:
        more["safe_gate"] = True
    return attended(place, chunk_size=size, **more, **given)
