"""A tensor of logical shape S that holds several members as one stacked tensor (members, *S), and its dispatch mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import RuleMode, RuleTable, RuleTensor, aten, make_wrapper
from fuzz.reference.envelope.half_precision import HALVES, format_of_result, has_statistics
from fuzz.reference.envelope.noise import MemberNoise, StackTooLarge
from fuzz.reference.envelope.recurrences import ElementwiseProduct, Recurrence

__all__ = [
    *("RULES", "EnsembleMode", "EnsembleTensor", "InputMode"),
    *("align", "map_members", "pad", "unwrap", "wrap", "wrap_all"),
]

INTEGERS = torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64


class EnsembleTensor(RuleTensor):
    """Wrapper subclass. Member 0 is unperturbed; `.item()`, `bool()` and data-dependent shapes look at it alone."""

    stacked: Tensor
    is_reduced: bool = False
    """Whether a reduction lies behind it; kept by `InputMode` alone."""
    product: ElementwiseProduct | None = None
    """Of a product, its factors."""
    complement: Tensor | None = None
    """Of 1 - z, the stacked z."""
    weighted: tuple[Tensor, Tensor] | None = None
    """Of (1 - z)*x, the stacked z and x."""
    contracted: Tensor | None = None
    """Of a sum with what rows share, how large its stacked products are that a fused multiply-add computes."""
    is_quotient: bool = False
    """Whether it is a quotient that the backend computes as a product with a reciprocal."""
    recurrence: Recurrence | None = None
    """Of a state of a linear recurrence, the steps behind it."""
    is_dot: bool = False
    """Whether its elements are sums of products, or elementwise functions of such sums; kept by the mode."""
    terms: int = 0
    """Of a matrix product, moved or scaled or summed, how many products add up to an element."""
    minuend: Tensor | None = None
    """Of a difference of sums of products, the stacked tensor from which something was subtracted."""
    exponent: Tensor | None = None
    """Of exponentials of sums of products, the stacked tensor that they are of, before something was subtracted."""

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """Shape and members; the values are in `stacked`."""
        return f"EnsembleTensor(shape={tuple(self.shape)}, members={self.stacked.shape[0]}, dtype={self.dtype})"


@lru_cache(maxsize=1024)
def is_elementwise(func: OpOverload) -> bool:
    """Whether each element of an operation's result comes from one element of each operand, wherever that lay."""
    return torch.Tag.pointwise in func.tags or moves_elements(func)


def moves_elements(func: OpOverload) -> bool:
    """Whether each element of an operation's result is one of its first operand's."""
    return func.is_view or func.overloadpacket in MOVES


JOINS = {aten.cat, aten.stack}
MOVES = {getattr(aten, name) for name in "_unsafe_view _reshape_copy clone _to_copy tril triu flip roll".split()}


class FreePick(NamedTuple):
    """A stacked index of one of equal elements, and in some rows which `others` an algorithm could pick as well."""

    picked: Tensor
    rows: list[int]
    others: Tensor


Place = tuple[int, torch.Size, tuple[int, ...]]


def _place(t: Tensor) -> Place:
    """Where the elements of a tensor lie."""
    return t.data_ptr(), t.shape, t.stride()


def describe_missing(func: OpOverload) -> str:
    """Why an operation without a rule is refused."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return f"{func}: random operations are refused in a reference"
    return f"{func}: no rule says how this operation rounds; write the reference with other operations"


RULES = RuleTable(describe_missing)
"""How each operation applies to stacked members, and how its result is perturbed."""


class EnsembleMode(RuleMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of one evaluation over the members that `noise` perturbs."""

    wrapper = EnsembleTensor

    def __init__(self, rules: RuleTable, noise: MemberNoise) -> None:
        super().__init__(rules)
        self.noise = noise
        self._written: dict[Place, tuple[Tensor, Recurrence]] = {}
        self._free_picks: dict[int, FreePick] = {}
        self._has_dots = False
        self.has_halves = False
        """Whether some tensor is of half precision."""
        self.has_exponents = False
        """Whether some result is an exponential of sums of products."""
        self.saturates = False
        """Whether the formula of an activation or its gradient is computed, in which tanh and sigmoids become 1."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Apply the operation's rule, and follow which elements are of sums of products."""
        kind = None
        if self.has_halves:
            kind = format_of_result(self.rules[func], func, args, kwargs or {})
            args = args if kind is None else tuple(cast_operand(self, x, torch.float64) for x in args)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if kind is not None:
            out = self._narrow(func, out, kind)
        if self._has_dots and type(out) is EnsembleTensor:
            parts = args[0] if func.overloadpacket in JOINS else args if is_elementwise(func) else ()
            out.is_dot |= any(type(x) is EnsembleTensor and x.is_dot for x in parts)
            if moves_elements(func) and type(args[0]) is EnsembleTensor:
                out.terms = args[0].terms
        return out

    def _narrow(self, func: OpOverload, out: Any, kind: torch.dtype) -> Any:
        """The results of an operation in a format of half precision, but for the statistics of norms."""
        if not isinstance(out, tuple):
            return cast_operand(self, out, kind)
        narrowed = 1 if has_statistics(func) else len(out)
        return (*(cast_operand(self, x, kind) for x in out[:narrowed]), *out[narrowed:])

    def mark_dot(self, t: EnsembleTensor, terms: int = 0) -> EnsembleTensor:
        """Say of a result that its elements are sums of products, of a matrix product also of how many."""
        t.is_dot = self._has_dots = True
        t.terms = terms
        return t

    def lift_tensor(self, t: Tensor) -> Tensor:
        """An EnsembleTensor whose members are all equal to t."""
        return wrap(self, t.expand(self.noise.rows, *t.shape).contiguous())

    def store(self, target: Any, value: Any) -> None:
        """Copy a value into every member."""
        stack = target.stacked
        product, recurrence = None, None
        if type(value) is EnsembleTensor and value.shape == target.shape:
            product, recurrence = value.product, value.recurrence
        if product is not None:  # `x.mul_(y)` is about to overwrite its own factor
            product = product._replace(factors=tuple(x.clone() if x is stack else x for x in product.factors))
        stack.copy_(align([target, value], self.noise.rows)[1])
        target.product, target.recurrence = product, recurrence
        if recurrence is not None:
            self._written[_place(stack)] = stack, recurrence

    def recurrence_of(self, x: Any) -> Recurrence | None:
        """The recurrence of which an operand is a state, if it is one or a view of what one was written into."""
        if type(x) is not EnsembleTensor:
            return None
        if x.recurrence is None and self._written:
            return self._written.get(_place(x.stacked), (None, None))[1]
        return x.recurrence

    def free_pick(self, index: Any) -> FreePick | None:
        """What else an index could be, if any of equal elements could have been picked; of views of it as well."""
        return self._free_picks.get(index.stacked.data_ptr()) if type(index) is EnsembleTensor else None

    def mark_free_pick(self, index: Tensor, rows: list[int], others: Tensor) -> None:
        """Say of a stacked index that in these rows the `others` could have been picked as well."""
        self._free_picks[index.data_ptr()] = FreePick(index, rows, others)

    def replace(self, target: Any, source: Any) -> None:
        """Share the stacked tensor of another EnsembleTensor."""
        target.stacked = source.stacked


class InputMode(EnsembleMode):  # type: ignore[no-untyped-call]
    """The mode of a stack that has members with perturbed inputs: these decide as the unperturbed member does."""

    writes_reduced: bool = False
    """Whether an operation in place wrote what a reduction lies behind, which views of its target do not know."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Apply the operation's rule, and follow what lies behind reductions."""
        out = super().__torch_dispatch__(func, types, args, kwargs)
        operands = _wrapped_in((args, kwargs) if kwargs else args)
        is_reduced = self.noise.reduces
        for x in operands:
            is_reduced |= x.is_reduced
        self.noise.reduces = False
        decides, is_view, is_mutable = _effects(func)
        for t in (out,) if type(out) is EnsembleTensor else _wrapped_in((out,)):
            t.is_reduced |= is_reduced
            if decides or not (is_view or t.stacked.is_floating_point()):
                if decides or any(x.stacked.is_floating_point() for x in operands):
                    self.noise.decide_(t.stacked)
        self.writes_reduced |= is_reduced and is_mutable
        return out


DECISIONS = {
    getattr(aten, name)
    for name in "floor ceil round trunc sign sgn heaviside frac fmod remainder floor_divide nextafter".split()
}
"""Operations whose result jumps."""


@lru_cache(maxsize=1024)
def _effects(func: OpOverload) -> tuple[bool, bool, bool]:
    """Whether an operation's result jumps, is a view, and is written into an operand."""
    return func.overloadpacket in DECISIONS, func.is_view, func._schema.is_mutable


def _wrapped_in(parts: Iterable[Any]) -> list[EnsembleTensor]:
    """The EnsembleTensors in nested lists, tuples and dicts, in order."""
    found: list[EnsembleTensor] = []
    for part in parts:
        if type(part) is EnsembleTensor:
            found.append(part)
        elif isinstance(part, list | tuple | dict):
            found += _wrapped_in(part.values() if isinstance(part, dict) else part)
    return found


def wrap(mode: EnsembleMode, t: Tensor) -> EnsembleTensor:
    """An EnsembleTensor around a stacked tensor, with the strides and offset of one member."""
    limit = mode.noise.limit
    if limit is not None and t.numel() > limit:
        raise StackTooLarge
    if t.is_contiguous() and not t.storage_offset():
        e = make_wrapper(EnsembleTensor, t.shape[1:], dtype=t.dtype, device=t.device)
    else:
        e = make_wrapper(
            EnsembleTensor, t.shape[1:], t.stride()[1:], t.storage_offset(), dtype=t.dtype, device=t.device
        )
    e.stacked = t
    mode.has_halves |= t.dtype in HALVES
    return e  # type: ignore[no-any-return]


def cast_operand(mode: EnsembleMode, x: Any, kind: torch.dtype) -> Any:
    """A floating EnsembleTensor in another format, with what is known of its elements; anything else as it is.

    What is cast is no product any more that a fused multiply-add could leave unrounded.
    """
    if type(x) is not EnsembleTensor or not x.is_floating_point() or x.dtype == kind:
        return x
    out = wrap(mode, x.stacked.to(kind))
    out.is_reduced, out.is_dot, out.terms, out.exponent = x.is_reduced, x.is_dot, x.terms, x.exponent
    return out


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
    if len(args) == 2:  # Nearly all operations, without a loop.
        x, y = args
        if type(x) is EnsembleTensor:
            if type(y) is EnsembleTensor:
                if x.stacked.dim() == y.stacked.dim():
                    return [x.stacked, y.stacked]
            elif not isinstance(y, Tensor):
                return [x.stacked, y]
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
