"""Evaluates a reference in float64 together with the spread of its perturbed members."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import torch
from torch import Tensor

from fuzz.backends.autodiff import differentiate
from fuzz.reference.dispatch import PlainWriteError
from fuzz.reference.envelope.ensemble import EnsembleMode, EnsembleTensor, InputMode, wrap
from fuzz.reference.envelope.noise import SAFETY, Divergence, MemberNoise, StackTooLarge
from fuzz.reference.envelope.noise_loops import measure_spread
from fuzz.reference.envelope.noise_pools import UNCERTAIN, perturbs_inputs
from fuzz.reference.envelope.precision import Precision
from fuzz.reference.envelope.rounded_options import ROUNDED_OPTIONS, distance, reach_value, rounded_options
from fuzz.reference.envelope.rules import RULES

__all__ = [
    "COTANGENT",
    "Divergence",
    "Expected",
    "check_outputs",
    "evaluate",
    "evaluate_backward",
    "float64_defaults",
    "merge_members",
    "run_members",
    "with_gradients",
]

Input = Tensor | float | int | bool | str | None
Reference = Callable[..., Mapping[str, Tensor]]
Stacks = dict[str, tuple[Tensor, bool]]

LIMIT: Final = 2**24
"""Largest stacked tensor, in elements: beyond it members are evaluated in groups."""
HOST_LIMIT: Final = 2**22
"""The same on the host: workers keep blocks of up to 32 MiB, and larger ones are faulted in page by page each time."""
FIRST: Final = (1, 2, 4, 5, 3)
"""The numbers of the first members. The first that perturbs inputs comes fifth: steps explain most errors."""
_WRITERS: Final[list[Reference]] = []
"""References that were seen to write into arguments that are not floating."""
COTANGENT: Final = "cotangent of "
"""Before the name of an output: its cotangent among the inputs."""


@dataclass(frozen=True)
class Expected:
    """The expected value of one output with its error bounds, element by element.

    value: float64 (or integer, bool), unperturbed. spread: float64, the largest distance of a member at working
    precision; inf where one left the range, is not finite where the value is, or is another integer.
    uncertainty: the same for members at 2^-53, None if it was not evaluated. With replicas, all have them as first dim.
    """

    value: Tensor
    spread: Tensor
    uncertainty: Tensor | None

    def of_replica(self, row: int) -> Expected:
        """The part of one replica, on the host."""
        uncertainty = None if self.uncertainty is None else self.uncertainty[row].cpu()
        return Expected(self.value[row].cpu(), self.spread[row].cpu(), uncertainty)

    def to(self, device: torch.device) -> Expected:
        """The same on a device."""
        if self.value.device == device:
            return self
        uncertainty = None if self.uncertainty is None else self.uncertainty.to(device)
        return Expected(self.value.to(device), self.spread.to(device), uncertainty)


def evaluate(
    reference: Reference,
    inputs: Mapping[str, Input],
    precision: Precision,
    *,
    members: int = 8,
    uncertainty: bool = True,
    seed: int = 0,
    check_range: bool = True,
    walks: bool = True,
    replicas: int | None = None,
    after: int = 0,
) -> dict[str, Expected]:
    """Call reference(**inputs) once on all members together, in groups where that would take too much memory.

    Floating tensors reach it as float64 (exactly, as copies), other tensors as copies, the rest as it is; torch's
    default dtype is float64 meanwhile. A member has the same noise whatever `members` is, so that a call with fewer
    members gives a spread that is nowhere larger. With `check_range`, members leave the working precision's range, and
    unless `walks` is false sums are added up in the orders that kernels use (summation.py), which widens the spread.
    Members up to `after` are left out, because an earlier call has evaluated them: see `merge_members`. With
    `replicas`, every tensor has them as first dim, which the reference does not see; each gets the values that it would
    get alone. From `ROUNDED_OPTIONS` members on float options count as float32 holds them, too.
    Raises `Divergence` if the reference asks for a value in which replicas may differ, and `NoRule` for an operation
    whose rounding is not known. Exceptions of the reference are passed on.
    """
    if members <= after:
        raise ValueError(f"members={members}: at least one, and more than {after}")
    numbers = sorted((*FIRST, *range(len(FIRST) + 1, members + 1))[after:members])
    remaining = [*range(-UNCERTAIN if uncertainty else 0, 0), *numbers]
    tensors = [t for t in inputs.values() if isinstance(t, Tensor)]
    most = LIMIT if any(t.device.type != "cpu" for t in tensors) else HOST_LIMIT
    size = max(1, min(len(remaining), most // max([1, *(t.numel() for t in tensors)]) - 1))
    out: dict[str, Expected] = {}
    while remaining:
        limit = most if size > 1 else None
        group = MemberNoise(precision, tuple(remaining[:size]), seed, check_range, limit, replicas or 1)
        group.is_thorough = check_range and walks
        try:
            stacks = _run(reference, inputs, group, replicas is not None)
        except StackTooLarge:
            size = (size + 1) // 2
            continue
        except PlainWriteError:
            if writes_integers(reference):
                raise
            _WRITERS.append(_base(reference))
            continue
        out = merge_members(out, {name: _expected(*part, group, replicas) for name, part in stacks.items()})
        remaining = remaining[size:]
    if members >= ROUNDED_OPTIONS and check_range:
        for rounded in rounded_options(inputs, precision):
            others = _values(reference, rounded, MemberNoise(precision, (), seed, False, None, replicas or 1), replicas)
            out = {name: reach_value(one, others.get(name)) for name, one in out.items()}
    return out


def _values(
    reference: Reference, inputs: Mapping[str, Input], noise: MemberNoise, replicas: int | None
) -> dict[str, Tensor]:
    """The unperturbed outputs by name; none where the reference refuses the inputs."""
    try:
        stacks = _run(reference, inputs, noise, replicas is not None)
    except Exception:  # Whatever an author raises: these inputs are not the case's own.
        return {}
    return {name: _expected(*part, noise, replicas).value for name, part in stacks.items()}


def evaluate_backward(
    reference: Reference,
    inputs: Mapping[str, Input],
    cotangents: Mapping[str, Tensor],
    wrt: Sequence[str],
    precision: Precision,
    **options: Any,
) -> dict[str, Expected]:
    """Outputs of a forward reference by name, and by autograd the gradient of input x under "dx".

    That of an input on which no output with a cotangent depends is 0. The options are the keywords of `evaluate`.
    """
    joint = with_gradients(reference, tuple(cotangents), wrt)
    everything = {**inputs, **{COTANGENT + name: t for name, t in cotangents.items()}}
    return evaluate(joint, everything, precision, **options)


def with_gradients(reference: Reference, cotangents: Sequence[str], wrt: Sequence[str]) -> Reference:
    """A function of the inputs and the cotangents (by their names with a prefix) that returns outputs and gradients."""

    def joint(**arguments: Any) -> dict[str, Tensor]:
        given_cotangents = {name: arguments.pop(COTANGENT + name) for name in cotangents}
        leaves = {name: arguments[name].requires_grad_() for name in wrt}
        # The reference gets copies: it may write into its arguments, which autograd forbids for leaves.
        outputs = check_outputs(reference, reference(**{**arguments, **{n: t.clone() for n, t in leaves.items()}}))
        # Which outputs there are may depend on an option.
        differentiable = [n for n in given_cotangents if n in outputs and outputs[n].requires_grad]
        grads: Any = [None] * len(leaves)
        if differentiable and leaves:
            heads, seeds = [outputs[n] for n in differentiable], [given_cotangents[n] for n in differentiable]
            grads = differentiate(heads, list(leaves.values()), seeds)
        pairs = zip(leaves.items(), grads, strict=True)
        return {**outputs, **{f"d{n}": torch.zeros_like(leaf) if g is None else g for (n, leaf), g in pairs}}

    joint.base = _base(reference)  # type: ignore[attr-defined]
    joint.__name__ = _name(reference)
    return joint


@contextmanager
def float64_defaults(working: torch.dtype = torch.float32) -> Iterator[None]:
    """torch's settings while a reference runs: new tensors are float64, attention uses its formula, autograd is on.

    The eps of an RMS norm that names none is that of the dtype in which kernels are `working`, not of the reference.
    """
    flash, dtype, rms_norm = torch._C._get_flash_sdp_enabled(), torch.get_default_dtype(), torch.rms_norm
    torch._C._set_sdp_use_flash(False)
    torch.set_default_dtype(torch.float64)  # arange(n)/n, zeros(n)
    torch.rms_norm = partial(_rms_norm, rms_norm, torch.finfo(working).eps)
    try:
        with torch.enable_grad():
            yield
    finally:
        torch.rms_norm = rms_norm
        torch._C._set_sdp_use_flash(flash)
        torch.set_default_dtype(dtype)


def _rms_norm(
    of_torch: Callable[..., Tensor], default: float,
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None,
) -> Tensor:  # fmt: skip
    """torch's rms_norm with its parameters' names, and a default eps."""
    return of_torch(input, normalized_shape, weight, default if eps is None else eps)


def _run(reference: Reference, inputs: Mapping[str, Input], noise: MemberNoise, stacked: bool) -> Stacks:
    """Of each output of one call the stack (rows, *S), and whether a reduction lies behind it.

    `stacked` inputs have a dim of replicas.
    """
    device = next((t.device for t in inputs.values() if isinstance(t, Tensor)), None)
    if device is not None:
        noise.device = device
    mode = (InputMode if noise.input_rows else EnsembleMode)(RULES, noise)
    are_wrapped = stacked or writes_integers(reference)
    arguments = {name: _argument(mode, x, stacked, are_wrapped) for name, x in inputs.items()}
    with float64_defaults(torch.float64 if noise.precision.holds_doubles else torch.float32), mode:
        outputs = check_outputs(reference, reference(**arguments))
    return {name: (_stack(t), _is_reduced(mode, t)) for name, t in outputs.items()}


def run_members(reference: Reference, inputs: Mapping[str, Input], noise: MemberNoise) -> Stacks:
    """Of each output of one call the stack (rows, *S), and whether members that perturb inputs count for it."""
    return _run(reference, inputs, noise, False)


def _base(reference: Reference) -> Reference:
    """The function of a target that one with gradients calls."""
    return getattr(reference, "base", reference)


def writes_integers(reference: Reference) -> bool:
    """Whether a reference is known to write what depends on members into arguments that are not floating."""
    return any(one is _base(reference) for one in _WRITERS)


def _argument(mode: EnsembleMode, x: Input, stacked: bool, are_wrapped: bool) -> Any:
    """An input as the reference receives it. All members share one that is not floating, unless `are_wrapped`."""
    if not isinstance(x, Tensor):
        return x
    x, noise = x.detach(), mode.noise
    x = x.to(torch.float64) if x.is_floating_point() else x
    if not are_wrapped and not x.is_floating_point():
        return x.clone(memory_format=torch.contiguous_format)
    if stacked:
        members = x.repeat_interleave(noise.count, 0)
    else:
        members = x.expand(noise.count, *x.shape).clone(memory_format=torch.contiguous_format)
    if x.is_floating_point():
        noise.perturb_input_(members)
    return wrap(mode, members)


def check_outputs(reference: Reference, outputs: Any) -> Mapping[str, Tensor]:
    """The outputs, if they are a mapping of tensors."""
    if not isinstance(outputs, Mapping):
        raise TypeError(f"reference {_name(reference)} returned {type(outputs).__name__}, not a mapping of tensors")
    for name, t in outputs.items():
        if not isinstance(t, Tensor):
            raise TypeError(f"reference {_name(reference)} returned {type(t).__name__} as {name!r}, not a tensor")
    return outputs


def _name(reference: Reference) -> str:
    return str(getattr(reference, "__name__", reference))


def _stack(t: Tensor) -> Tensor:
    """The stacked tensor of an output; one that depends on no input has a single member."""
    stacked = t.stacked if type(t) is EnsembleTensor else t.detach().unsqueeze(0)
    return stacked.to(torch.float64) if stacked.is_floating_point() else stacked


def _is_reduced(mode: EnsembleMode, t: Tensor) -> bool:
    """Whether a reduction lies behind an output, so that the members that perturb inputs count."""
    if not isinstance(mode, InputMode):
        return False
    return mode.writes_reduced or type(t) is EnsembleTensor and t.is_reduced


def _expected(rows: Tensor, is_reduced: bool, noise: MemberNoise, replicas: int | None) -> Expected:
    """Value and spreads of one stacked output (rows, *S), by replica where there are any."""
    if replicas is None:
        rows = rows.unsqueeze(0)
    elif rows.shape[0] == 1:  # It depends on no input.
        rows = rows.expand(replicas, *rows.shape)
    else:
        rows = rows.view(replicas, noise.count, *rows.shape[1:])
    first, members = noise.first_working, rows.shape[1]
    value, spread = _spread(rows, first, members, _weights(noise.ids[first - 1 :], is_reduced))
    ones = torch.ones(first - 1, dtype=torch.float64)
    uncertain = _spread(rows, 1, min(first, members), ones)[1] if first > 1 else None
    if replicas is not None:
        return Expected(value, spread, uncertain)
    return Expected(value[0], spread[0], None if uncertain is None else uncertain[0])


@lru_cache(maxsize=64)
def _weights(ids: tuple[int, ...], is_reduced: bool) -> Tensor:
    """By how much distances of these members count: of those that perturb inputs so that `SAFETY` times that is 1.

    These count only for what a reduction lies behind.
    """
    weights = [(1 / SAFETY if is_reduced else 0.0) if perturbs_inputs(i) else 1.0 for i in ids]
    return torch.tensor(weights, dtype=torch.float64)


def _spread(rows: Tensor, first: int, end: int, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The unperturbed members of (replicas, members, *S), and max |member - value| of those from `first` to `end`.

    It is 0 where all are identical, even inf or NaN; inf where one is unlike it. `weights` are 0 or powers of two by
    which distances are multiplied; members of weight 0 do not count.
    """
    found = measure_spread(rows, first, end, weights) if first < end else None
    if found is not None:
        return found
    first_member, value = rows[:, 0].clone(), rows[:, :1]
    counted = [number for number, weight in enumerate(weights.tolist()) if weight and first < end]
    if not counted:
        return first_member, torch.zeros_like(first_member, dtype=torch.float64)
    others = rows[:, [first + number for number in counted]]
    if not value.is_floating_point():
        return first_member, torch.where((others == value).all(1), 0.0, torch.inf).to(torch.float64)
    weights = weights[counted].to(rows.device).view(-1, *(1,) * (rows.dim() - 2))
    spread = (others - value).abs_().mul_(weights).amax(1)
    if not spread.numel() or float(spread.amax()) < math.inf:  # A NaN is not less.
        return first_member, spread
    return first_member, distance(others, value).mul_(weights).amax(1)


def merge_members(first: Mapping[str, Expected], second: dict[str, Expected]) -> dict[str, Expected]:
    """The larger spreads of two groups of members, where the second lies; the first may be empty."""
    if not first:
        return second
    return {name: _merge_output(e.to(second[name].value.device), second[name]) for name, e in first.items()}


def _merge_output(a: Expected, b: Expected) -> Expected:
    """The larger spreads of one output."""
    both = [u for u in (a.uncertainty, b.uncertainty) if u is not None]
    uncertainty = torch.maximum(*both) if len(both) == 2 else both[0] if both else None
    return Expected(a.value, torch.maximum(a.spread, b.spread), uncertainty)
