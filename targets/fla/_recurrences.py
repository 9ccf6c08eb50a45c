"""Formulas of recurrences that references share: sequences one after the other, states in and out, gates' gradients.

What a state takes in is a product of matrices, as it is in kernels that go through sequences in chunks.
"""

from dataclasses import dataclass, replace

import torch
from torch.nn.functional import pad

CHUNK = 64
"""Places of a chunk, where no option says how many."""


@dataclass(frozen=True)
class State:
    """A state (N, K, V) before a chunk, and the keys and values that the chunk has written into it since.

    Kernels that go through sequences in chunks of `size` places never add up what a chunk writes before its end: what
    is read there are products with keys, times values. So what later places erase cancels in one sum, whose terms are
    as large as the state was. What places write is an `inverse` (N, n, n) times what each would write if it were the
    chunk's only one, `lone` (N, n, V). With a size of 0 each value is added as it is written.
    """

    start: torch.Tensor
    size: int = 0
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None
    inverse: torch.Tensor | None = None
    lone: torch.Tensor | None = None

    def forget(self, of_keys, of_values):
        """The state times factors of keys, (N, 1, K) or (N, 1, 1), and of values, where there are any."""
        start, keys, values = self.start, self.keys, self.values
        if of_keys is not None:
            start = start * of_keys.transpose(-1, -2)
            keys = keys if keys is None else keys * of_keys
        if of_values is not None:
            start = start * of_values
            values = values if values is None else values * of_values
        return replace(self, start=start, keys=keys, values=values)

    def read(self, key):
        """What a key (N, 1, K) finds."""
        found = key.bmm(self.start)
        return found if self.keys is None else found + key.bmm(self.keys.transpose(-1, -2)).bmm(self.values)

    def correct(self, key, rate, value):
        """The state that knows what a place writes: a rate times what a value lacks of what a key finds."""
        lone = rate * (value - key.bmm(self.start))
        if self.keys is None:
            return replace(self, inverse=torch.ones_like(lone[..., :1]), lone=lone)
        found = (rate * key).bmm(self.keys.transpose(-1, -2))
        row = -(found.transpose(-1, -2) * self.inverse).sum(-2, keepdim=True)
        row = torch.cat([row, torch.ones_like(lone[..., :1])], -1)
        inverse = torch.cat([pad(self.inverse, (0, 1)), row], -2)
        return replace(self, inverse=inverse, lone=torch.cat([self.lone, lone], -2))

    def write(self, key, corrected):
        """The state with what a corrected one says of a key's value, and with all of its chunk where that has ended."""
        keys, values = key, corrected.inverse[..., -1:, :].bmm(corrected.lone)
        if self.keys is not None:
            keys, values = torch.cat([self.keys, keys], -2), torch.cat([self.values, values], -2)
        written = replace(corrected, start=self.start, keys=keys, values=values)
        return written if keys.shape[-2] < self.size else State(written.added_up(), self.size)

    def added_up(self):
        """The state as one tensor."""
        return self.start if self.keys is None else self.start + self.keys.transpose(-1, -2).bmm(self.values)


def scanned(step, state, ends, reverse, *inputs):
    """What `step` gives at each place of inputs (B, T, ..), (B, T, ..), and the states that the sequences end with.

    `step` takes a state and what stands at one place, and gives an output and the next state. With `ends`, prefix sums,
    the one row of each input holds sequences one after the other, and each has a state. The first input is shaped as the
    outputs are, for sequences without a place.
    """
    if ends is not None:
        edges = ends.tolist()
        parts = [
            scanned(step, part, None, reverse, *(x[:, first:last] for x in inputs))
            for part, first, last in zip(state.chunk(len(edges) - 1), edges, edges[1:], strict=False)
        ]
        return torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts])
    outputs, places = [], list(zip(*(x.unbind(1) for x in inputs), strict=True))
    for place in reversed(places) if reverse else places:
        output, state = step(state, *place)
        outputs.append(output)
    state = state.added_up() if isinstance(state, State) else state
    if not outputs:
        return inputs[0], state
    return torch.stack(outputs[::-1] if reverse else outputs, 1), state


def scanned_by_head(step, state, ends, reverse, *inputs):
    """The same for inputs (B, T, H, ..) and states (N, H, ..), where `step` takes heads of all sequences as one dim.

    An operation on (N, 1, K) and (N, K, V) is one operation; with two dims in front a product of matrices is six.
    """
    heads = inputs[0].shape[2]
    folded = (x.transpose(1, 2).flatten(0, 1) for x in inputs)
    y, final = scanned(step, state.flatten(0, 1), ends, reverse, *folded)
    return y.squeeze(-2).unflatten(0, (-1, heads)).transpose(1, 2), final.unflatten(0, (-1, heads))


def rows(*parts):
    """Vectors (.., D) as matrices of one row."""
    return [part.unsqueeze(-2) for part in parts]


def sums(x, ends, reverse):
    """Sums of x (B, T, ..) from the end of each sequence, or with `reverse` from its beginning.

    Those from the end are what the sums from the beginning lack of all, as the library's kernels compute them.
    """
    if ends is not None:
        edges = ends.tolist()
        return torch.cat([sums(x[:, a:b], None, reverse) for a, b in zip(edges, edges[1:], strict=False)], 1)
    return x.cumsum(1) if reverse else x.sum(1, keepdim=True) - x.cumsum(1) + x


def spread(x, ends, places):
    """What belongs to each sequence (N, ..) at each of its places: (B, T, ..)."""
    if ends is None:
        return x.unsqueeze(1).expand(-1, places, *x.shape[1:])
    edges = ends.tolist()
    parts = [x[n : n + 1].expand(b - a, *x.shape[1:]) for n, (a, b) in enumerate(zip(edges, edges[1:], strict=False))]
    return torch.cat(parts).unsqueeze(0)


class Final(torch.autograd.Function):
    """Passes final states (N, H, K, V) on, and leaves their gradient times them, summed over V, or over K, in two lists."""

    @staticmethod
    def forward(ctx, state, found, found_of_values):
        ctx.save_for_backward(state)
        ctx.found, ctx.found_of_values = found, found_of_values
        return state.clone()

    @staticmethod
    def backward(ctx, dstate):
        (state,) = ctx.saved_tensors
        ctx.found.append((state * dstate).sum(-1))
        ctx.found_of_values.append((state * dstate).sum(-2))
        return dstate, None, None


class Read(torch.autograd.Function):
    """Passes outputs on, and leaves their gradient times them in a list."""

    @staticmethod
    def forward(ctx, y, found):
        ctx.save_for_backward(y)
        ctx.found = found
        return y.clone()

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        ctx.found.append(y * dy)
        return dy, None


class ValueGates(torch.autograd.Function):
    """Takes the gradient of values' gates from what is read and written, as `Gates` does for those of keys."""

    @staticmethod
    def forward(ctx, gate, ends, reverse, reads, finals, write):
        ctx.save_for_backward(write)
        ctx.ends, ctx.reverse, ctx.reads, ctx.finals = ends, reverse, reads, finals
        return write.clone()

    @staticmethod
    def backward(ctx, dwrite):
        (write,) = ctx.saved_tensors
        dgate = sums(sum(ctx.reads) - write * dwrite, ctx.ends, ctx.reverse)
        for final in ctx.finals:
            dgate = dgate + spread(final, ctx.ends, write.shape[1])
        return dgate, None, None, None, None, dwrite


class Gates(torch.autograd.Function):
    """Takes the gates' gradient from those of what reads and writes the state, as the library and its papers do.

    What a gate forgets would have been read from there on of what was written before: sums of read dread - write dwrite
    from the end, and what the final states keep. Where that is 0 the sums leave what rounding makes of their terms. Gates
    (B, T, H) of whole states take the sum over K. With `early` the last of what reads does so before the state forgets.
    """

    @staticmethod
    def forward(ctx, gate, ends, reverse, found, early, write, *reads):
        ctx.save_for_backward(write, *reads)
        ctx.ends, ctx.reverse, ctx.found, ctx.whole = ends, reverse, found, gate.dim() < write.dim()
        ctx.early = early
        return write.clone(), *(read.clone() for read in reads)

    @staticmethod
    def backward(ctx, dwrite, *dreads):
        write, *reads = ctx.saved_tensors
        kept = sum(read * dread for read, dread in zip(reads, dreads, strict=True)) - write * dwrite
        dgate = sums(kept, ctx.ends, ctx.reverse)
        dgate = dgate - reads[-1] * dreads[-1] if ctx.early else dgate
        for final in ctx.found:
            dgate = dgate + spread(final, ctx.ends, write.shape[1])
        return dgate.sum(-1) if ctx.whole else dgate, None, None, None, None, dwrite, *dreads


def begun(initial, ends, k, v):
    """The states (N, H, K, V) that sequences begin with."""
    if initial is not None:
        return initial
    count = len(k) if ends is None else len(ends) - 1
    return torch.zeros(count, v.shape[2], k.shape[-1], v.shape[-1], dtype=k.dtype, device=k.device)


def taken_in(q, k, v, state, *forgets, ends=None, reverse=False):
    """What q finds in states that forget by factors (B, T, H, K, V), of which dims may be 1, and take k v' in; both."""

    def step(state, v, q, k, *forgets):
        for forget in forgets:
            state = state * forget
        state = state + k.bmm(v)
        return q.bmm(state), state

    return scanned_by_head(step, state, ends, reverse, *rows(v, q), k.unsqueeze(-1), *forgets)


def linear(q, k, v, *, initial, ends, scale, keep, gate=None, values=None, reverse=False):
    """Linear attention: the state forgets by exp(gate) for keys or heads and by exp(values), and takes k v' in."""
    found, found_of_values, reads = [], [], []
    if gate is not None:
        k, q = Gates.apply(gate, ends, reverse, found, False, k, q)
        gate = gate.detach() if gate.dim() == 4 else gate.detach().unsqueeze(-1)
    if values is not None:
        v = ValueGates.apply(values, ends, reverse, reads, found_of_values, v)
        values = values.detach()
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    forgets = [gate.exp().unsqueeze(-1)] if gate is not None else []
    forgets += [values.exp().unsqueeze(-2)] if values is not None else []
    y, final = taken_in(q, k, v, begun(initial, ends, k, v), *forgets, ends=ends, reverse=reverse)
    y = y * factor
    y = y if values is None else Read.apply(y, reads)
    return dict(y=y, final=Final.apply(final, found, found_of_values)) if keep else dict(y=y)


def delta(q, k, v, beta, *, initial, ends, scale, keep, gate=None, values=None, read=None, early=False, chunk=0):
    """The delta rule: the state takes in what v lacks of what `read`, or k, finds there; queries are of fewer heads.

    The state forgets by exp(gate) before it is read, or with `early` afterwards; and by exp(values), without a gradient.
    `chunk` is the number of places that a kernel goes through at once, as `State` has it.
    """
    groups = v.shape[2] // q.shape[2]
    q, k = (part.repeat_interleave(groups, 2) for part in (q, k))
    read = k if read is None else read.repeat_interleave(groups, 2)
    found = []
    if gate is not None:
        k, q, read = Gates.apply(gate, ends, False, found, early, k, q, read)
        gate = gate.detach() if gate.dim() == 4 else gate.detach().unsqueeze(-1)
    beta = torch.ones_like(v[..., 0]) if beta is None else beta
    beta = beta if beta.dim() == 4 else beta.unsqueeze(-1)
    factor = q.shape[-1] ** -0.5 if scale is None else scale

    def step(state, v, q, k, read, beta, *factors):
        state = state if isinstance(state, State) else State(state, chunk)
        of_keys, of_values = factors[:1] if gate is not None else [None], factors[gate is not None :] or [None]
        kept = state.forget(*of_keys, *of_values)
        state = kept.write(k, (state if early else kept).correct(read, beta, v))
        return state.read(q), state

    state, given = begun(initial, ends, k, v), [part.exp() for part in (gate, values) if part is not None]
    y, final = scanned_by_head(step, state, ends, False, *rows(v, q, k, read, beta, *given))
    y = y * factor
    return dict(y=y, final=Final.apply(final, found, [])) if keep else dict(y=y)


def bonused(r, k, v, u, gate, *, initial, ends, scale, keep, reverse=False):
    """RWKV6: the present place is read with a weight of its own, and the state forgets after it was read."""
    factor = r.shape[-1] ** -0.5 if scale is None else scale
    u = u.repeat(len(k), 1).unsqueeze(-1)

    def step(state, v, r, k, forget):
        taken = k.bmm(v)
        return r.bmm(state + u * taken), state * forget + taken

    state, given = begun(initial, ends, k, v), (k.unsqueeze(-1), gate.exp().unsqueeze(-1))
    y, final = scanned_by_head(step, state, ends, reverse, *rows(v, r), *given)
    y = y * factor
    return dict(y=y, final=final) if keep else dict(y=y)


def low_rank(q, k, v, read, write, *, initial, ends, scale, keep, gate=None, reverse=False):
    """A state to which `write` times what `read` found there, and k v', are added; it forgets by exp(gate)."""
    factor = q.shape[-1] ** -0.5 if scale is None else scale

    def step(state, v, q, k, read, write, *forgets):
        found = read.bmm(state)
        for forget in forgets:
            state = state * forget
        state = state + write.bmm(found) + k.bmm(v)
        return q.bmm(state), state

    state, columns = begun(initial, ends, k, v), [k, write] + ([] if gate is None else [gate.exp()])
    k, write, *given = (part.unsqueeze(-1) for part in columns)
    v, q, read = rows(v, q, read)
    y, final = scanned_by_head(step, state, ends, reverse, v, q, k, read, write, *given)
    y = y * factor
    return dict(y=y, final=final) if keep else dict(y=y)


class LogAdd(torch.autograd.Function):
    """The logarithm of a sum of two exponentials, whose gradients are the shares, by differences from the rounded sum."""

    @staticmethod
    def forward(ctx, x, y):
        total = torch.maximum(x, y) + (-(x - y).abs()).exp().log1p()
        ctx.save_for_backward(x, y, total)
        return total

    @staticmethod
    def backward(ctx, dtotal):
        x, y, total = ctx.saved_tensors
        return dtotal * (x - total).exp(), dtotal * (y - total).exp()


def cumulative(s, ends, initial=None):
    """Exponentials (B, T, ..) as shares of their sum from the beginning on, what each place keeps, and the sums at the end.

    The latter two are logarithms. So is `initial`, (N, 1, ..), which is what the sums begin with where it is given.
    """
    if ends is not None:
        edges = ends.tolist()
        parts = [
            cumulative(s[:, a:b], None, None if initial is None else initial[n : n + 1])
            for n, (a, b) in enumerate(zip(edges, edges[1:], strict=False))
        ]
        share, gate, final = zip(*parts, strict=True)
        return torch.cat(share, 1), torch.cat(gate, 1), torch.cat(final)
    if not s.shape[1]:
        return s, s, torch.full_like(s.sum(1, keepdim=True), -torch.inf) if initial is None else initial
    begin, *places = s.unbind(1)
    sums = [begin if initial is None else LogAdd.apply(initial[:, 0], begin)]
    for place in places:
        sums.append(LogAdd.apply(sums[-1], place))
    # Autograd adds up the gradients of sums from the last use on: those of shares first, as the library's kernel does.
    total = torch.stack(sums, 1)
    final = total[:, -1:].clone()
    first = torch.zeros_like(final) if initial is None else initial - total[:, :1]
    gate = torch.cat([first, total[:, :-1] - total[:, 1:]], 1)
    return (s - total).exp(), gate, final
