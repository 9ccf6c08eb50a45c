"""The delta rule of fla-core with gates of what is erased and written. Interesting: gates that kernels compute in bounds."""

from _fla import SHARED, flash, one_dtype
from _recurrences import CHUNK, delta
from _rows import Unit
from _states import STATES, H, K, N, V, activated, carried, gates, grouped, mild, sequences, states, steady

from fuzz import option, size, tensor

GROUPS = size("GROUPS", 1, 3)


def declared(heads):
    """The arguments of a form of the rule, whose values have so many heads."""
    return dict(
        q=sequences(H, K), k=sequences(H, K), v=sequences(heads, V), gate=sequences(heads, K), erase=sequences(heads, K),
        write=sequences(heads, V), log=tensor(heads, dtypes=("float32",)) | None,
        shift=tensor(heads, K, dtypes=("float32",)) | None, raw=option(False, True), bound=option(None, -5.0),
        normed=option(True, False), v_first=option(False, True), **{**STATES, "initial": states(heads, K, V) | None},
    )  # fmt: skip


def small(*parts):
    """Components of at most 1/8, by no arithmetic that rounds."""
    return [part.clamp(-0.125, 0.125) for part in parts]


def unit(x):
    """Numbers from 0 to 1, by no arithmetic that rounds."""
    return x.abs().clamp(max=1.0)


def erasing_reference(
    q, k, v, gate, erase, write, log, shift, raw, bound, normed, ragged, ends, v_first, chunk=0, **given
):  # fmt: skip
    q, k = (Unit.apply(q), Unit.apply(k)) if normed else small(q, k)
    q, k = (part.repeat_interleave(v.shape[2] // q.shape[2], 2) for part in (q, k))
    gate = activated(gate, log, shift, bound) if raw else gates(gate)
    ends = ends if ragged else None
    return delta(q, k, unit(write) * v, None, read=unit(erase) * k, gate=gate, ends=ends, chunk=chunk, **given)


def erased(place, q, k, v, gate, erase, write, log, shift, raw, bound, normed, **given):
    one_dtype(q, k, v)
    grouped(place, k, v, raw)
    if raw and log is None and bound is None:
        raise ValueError("gates without a bound have a rate")
    if raw:
        given |= dict(use_gate_in_kernel=True, lower_bound=bound, A_log=steady(log))
        given["dt_bias"] = None if shift is None else shift.reshape(-1)
    q, k = (q, k) if normed else small(q, k)
    given["use_qk_l2norm_in_kernel"] = normed
    return carried(place, q, k, v, gate if raw else gates(gate), unit(erase), unit(write), **given)


RECURRENT = {name: value for name, value in declared(H * GROUPS).items() if name != "differentiable"}


@flash(**{**RECURRENT, "dims": (N, GROUPS)}, imports=("fla.ops.gdn2",), reference=erasing_reference)
def fla_recurrent_gdn2(**given):
    """The rule step by step, which has no backward; its gates as logarithms, or computed in the kernel."""
    return erased("ops.gdn2:fused_recurrent_gdn2", **given)


def chunk_reference(raw, gate, log, shift, safe, kept, **given):
    gate, log, shift = mild(raw, gate, log, shift)
    gate = within(gate, raw, safe)
    return erasing_reference(raw=raw, gate=gate, log=log, shift=shift, chunk=CHUNK, **given)


def within(gate, raw, safe):
    """Logarithms of gates from -5 to 0 where they are asked for, by no arithmetic that rounds."""
    return gate.clamp(-5.0, 5.0) if safe and not raw else gate


@flash(
    **declared(H), safe=option(False, True), kept=option(False, True), dot="tf32", reference=chunk_reference,
    imports=("fla.ops.gdn2",),
    unreached={
        **SHARED, "*return_intermediate_states*": "states between chunks are given in inference mode alone",
    },
)  # fmt: skip
def fla_chunk_gdn2(raw, gate, log, shift, safe, kept, **given):
    """The rule in chunks; gates within bounds go another way."""
    if safe and raw and given["bound"] is None:
        raise ValueError("gates that the kernel computes are within bounds only where there is one")
    gate, log, shift = mild(raw, gate, log, shift)
    gate = within(gate, raw, safe)
    given |= dict(raw=raw, gate=gate, log=log, shift=shift, safe_gate=safe, disable_recompute=kept)
    return erased("ops.gdn2:chunk_gdn2", **given)
