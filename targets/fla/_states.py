"""What targets of recurrences share: sequences of one length or one after the other, states in and out."""

from _fla import documents, found, takes

from fuzz import by_option, option, prefix_sums, size, tensor

B, T, H = size("B", 1, 3), size("T", 1, 150), size("H", 1, 4)
K, V, N = size("K", 1, 80), size("V", 1, 80), size("N", 1, 4)


def sequences(*dims, dtypes=()):
    """(B, T, ..), or where sequences are of several lengths one after the other (1, T, ..)."""
    return by_option("ragged", {False: tensor(B, T, *dims, dtypes=dtypes), True: tensor(1, T, *dims, dtypes=dtypes)})


def states(*dims):
    """A float32 state of each sequence."""
    shapes = {False: tensor(B, *dims, dtypes=("float32",)), True: tensor(N, *dims, dtypes=("float32",))}
    return by_option("ragged", shapes)


RAGGED = dict(ragged=option(False, True), ends=prefix_sums(N + 1, total=T), dims=(N,))
STATES = dict(
    **RAGGED, initial=states(H, K, V) | None, scale=option(None, 0.5), keep=option(True, False),
    differentiable=dict(y=sequences(H, V), final=states(H, K, V)), timeout=300.0, accumulate="inputs",
)  # fmt: skip
QKV = dict(q=sequences(H, K), k=sequences(H, K), v=sequences(H, V))


def gates(x):
    """Logarithms of gates from exp(-8) to 1, by no arithmetic that rounds."""
    return None if x is None else -x.abs().clamp(max=8.0)


def steady(log, most=4.0):
    """Logarithms of rates from -4 on, by no arithmetic that rounds."""
    return None if log is None else log.clamp(-4.0, most)


def mild(raw, gate, log, shift):
    """What kernels make gates of that forget no more in one place than exp(-8), by no arithmetic that rounds."""
    if not raw:
        return gate, log, shift
    return gate.clamp(-4.0, 4.0), steady(log, 0.0), None if shift is None else shift.clamp(-4.0, 4.0)


def activated(gate, log, shift, bound):
    """The gates' logarithms that the kernel computes of what it is given."""
    x = gate if shift is None else gate + shift
    rate = 1.0 if log is None else steady(log).exp().unsqueeze(-1)
    if bound is not None:
        return bound * (rate * x).sigmoid()
    return -rate * (x.clamp(min=0) + (-x.abs()).exp().log1p())


def grouped(place, k, v, raw=False):
    """NotImplementedError where several heads of values have the same keys and this release documents no such thing.

    Where gates are `raw`, it must document their rates as well: they may be those of the keys' heads.
    """
    if v.shape[2] != k.shape[2]:
        for term in ("HV", "A_log") if raw else ("HV",):
            documents(place, term)


def carried(place, *inputs, ragged, ends, initial, keep, v_first=False, **given):
    """An operation's outputs, and with `keep` the states that sequences end with, (N, H, K, V) in either layout."""
    if v_first:
        given["state_v_first"] = True
        initial = None if initial is None else initial.transpose(-1, -2)
    for name, value in given.items():
        if value is not None and value is not False and name != "chunk_size":  # which only decides how sums are rounded
            takes(place, name)
    ends = ends if ragged else None
    y, final = found(place)(*inputs, initial_state=initial, output_final_state=keep, cu_seqlens=ends, **given)
    if not keep:
        return dict(y=y)
    return dict(y=y, final=final.transpose(-1, -2) if v_first else final)
