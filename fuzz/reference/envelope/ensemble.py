"""A tensor of logical shape S that holds several members as one stacked tensor (members, *S), and its dispatch mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from fuzz.errors import FuzzError
from fuzz.reference.envelope.noise import MemberNoise, StackTooLarge

__all__ = [
    "EnsembleMode",
    "EnsembleTensor",
    "NoRule",
    "Rule",
    "align",
    "map_members",
    "lift",
    "pad",
    "unwrap",
    "wrap",
    "wrap_all",
]

INTEGERS = torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64
Rule = Callable[["EnsembleMode", OpOverload, tuple[Any, ...], dict[str, Any]], Any]
"""How an operation applies to stacked members, and how its result is perturbed."""


class NoRule(FuzzError, NotImplementedError):
    """The reference uses an operation for which no rule is stated: nothing is known about its error."""


class EnsembleTensor(Tensor):
    """Wrapper subclass. Member 0 is unperturbed; `.item()`, `bool()` and data-dependent shapes look at it alone."""

    stacked: Tensor

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Only reached outside an evaluation: inside, `EnsembleMode` sees every operation first."""
        raise NoRule(f"{func}: an EnsembleTensor is used outside the evaluation that made it")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Shape and members; the values are in `stacked`."""
        return f"EnsembleTensor(shape={tuple(self.shape)}, members={self.stacked.shape[0]}, dtype={self.dtype})"


_make: Callable[..., Any] = Tensor._make_wrapper_subclass


class EnsembleMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of one evaluation: finds each operation's rule."""

    def __init__(
        self, noise: MemberNoise, rules: dict[OpOverload, Rule], resolve: Callable[[OpOverload], Rule]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.noise = noise
        self.rules = rules
        self.resolve = resolve

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would wrap the dispatch in a guard against its compiler, 2 us an operation."""
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Apply the operation's rule; one that is met for the first time is resolved and remembered."""
        rule = self.rules.get(func)
        if rule is None:
            rule = self.rules[func] = self.resolve(func)
        if EnsembleTensor in types:
            return rule(self, func, args, kwargs or {})
        return plain(self, rule, func, args, kwargs or {})


def plain(mode: EnsembleMode, rule: Rule, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation without Ensembles. EnsembleMode whose result is floating is lifted, so that its rounding counts."""
    if getattr(rule, "plain", False):
        return rule(mode, func, args, kwargs)
    out = func(*args, **kwargs)
    if getattr(rule, "rounds", False) and _floats(out) and not func._schema.is_mutable:
        return rule(mode, func, lift(mode, args), kwargs)
    return out


def _floats(out: Any) -> bool:
    """Whether a result is, or holds, a floating tensor."""
    parts = out if isinstance(out, tuple | list) else (out,)
    return any(isinstance(t, Tensor) and t.is_floating_point() for t in parts)


def lift(mode: EnsembleMode, args: Any) -> Any:
    """Plain tensors as Ensembles whose members are equal; containers are searched."""
    if isinstance(args, tuple | list):
        return type(args)(lift(mode, a) for a in args)
    if isinstance(args, Tensor) and type(args) is not EnsembleTensor:
        count = mode.noise.rows
        return wrap(mode, args.expand(count, *args.shape).contiguous())
    return args


def wrap(mode: EnsembleMode, t: Tensor) -> EnsembleTensor:
    """An EnsembleTensor around a stacked tensor, with the strides and offset of one member."""
    noise = mode.noise
    if noise.limit is not None and t.numel() > noise.limit:
        raise StackTooLarge
    if t.is_contiguous() and t.storage_offset() == 0:
        e = _make(EnsembleTensor, t.shape[1:], dtype=t.dtype, device=t.device)
    else:
        e = _make(EnsembleTensor, t.shape[1:], t.stride()[1:], t.storage_offset(), dtype=t.dtype, device=t.device)
    e.stacked = t
    return e  # type: ignore[no-any-return]


def wrap_all(mode: EnsembleMode, out: Any) -> Any:
    """Wrap every tensor of a result."""
    if isinstance(out, Tensor):
        return wrap(mode, out)
    parts = [wrap(mode, t) if isinstance(t, Tensor) else t for t in out]
    return parts if type(out) is list else tuple(parts)


def unwrap(x: Any) -> Any:
    """The stacked tensor of an EnsembleTensor; anything else as it is."""
    return x.stacked if type(x) is EnsembleTensor else x


def align(args: Sequence[Any], count: int) -> list[Any]:
    """Operands as stacked tensors that broadcast: logical ranks padded with 1 behind the member dim."""
    rank = max([a.dim() for a in args if isinstance(a, Tensor)], default=0)
    stacks = [pad(a, rank) for a in args]
    if rank and any(type(a) is EnsembleTensor and not a.dim() and a.dtype in INTEGERS for a in args):
        return as_promoted(args, stacks)
    return stacks


def as_promoted(args: Sequence[Any], stacks: list[Any]) -> list[Any]:
    """Stacked integers without dims in the type of the integers with dims, to which torch promotes them."""
    kinds = [a.dtype for a in args if isinstance(a, Tensor) and a.dim() and a.dtype in INTEGERS]
    if not kinds:
        return stacks
    kind = reduce(torch.promote_types, kinds)
    plain = (isinstance(a, Tensor) and not a.dim() and a.dtype in INTEGERS for a in args)
    return [t.to(kind) if without else t for t, without in zip(stacks, plain, strict=True)]


def pad(x: Any, rank: int) -> Any:
    """Stacked members with dims of size 1 behind the member dim up to the logical rank; other values unchanged."""
    if type(x) is not EnsembleTensor:
        return x
    t = x.stacked
    for _ in range(rank + 1 - t.dim()):
        t = t.unsqueeze(1)
    return t


def map_members(mode: EnsembleMode, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply an operation to one member after another and stack: slow, right for any functional operation."""
    outs = [func(*_select_member(args, i), **_select_member(kwargs, i)) for i in range(mode.noise.rows)]
    if isinstance(outs[0], Tensor):
        return torch.stack(outs)
    return tuple(torch.stack(parts) if isinstance(parts[0], Tensor) else parts[0] for parts in zip(*outs, strict=True))


def _select_member(args: Any, i: int) -> Any:
    """Arguments of member i."""
    if type(args) is EnsembleTensor:
        return args.stacked[i]
    if isinstance(args, dict):
        return {k: _select_member(v, i) for k, v in args.items()}
    return type(args)(_select_member(a, i) for a in args) if isinstance(args, tuple | list) else args
