"""Dispatches the torch operations of a reference to rules, for tensors that hold more than one ordinary value.

All evaluations of a reference use it: the envelope (a tensor holds perturbed members), exact evaluation (a tensor holds
arbitrary-precision numbers) and interval arithmetic (midpoints and radii). Each has a table of rules, a wrapper tensor
and a dispatch mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.backends.dispatch_mode import DispatchMode
from fuzz.errors import FuzzError

__all__ = [
    "NoRule",
    "Rule",
    "RuleMode",
    "RuleTable",
    "RuleTensor",
    "added_matmul",
    "aten",
    "decompose",
    "from_formula",
    "handles_plain",
    "make_wrapper",
    "rounds",
]

aten: Any = torch.ops.aten
make_wrapper: Callable[..., Any] = Tensor._make_wrapper_subclass

Rule = Callable[[Any, OpOverload, tuple[Any, ...], dict[str, Any]], Any]
"""rule(mode, operation, args, kwargs) computes an operation on wrapper tensors."""
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class NoRule(FuzzError, NotImplementedError):
    """The reference uses an operation for which no rule is stated."""


class PlainWriteError(NoRule):
    """The reference writes what is computed into a plain tensor, which holds one value for all members."""


def rounds(rule: Rule) -> Rule:
    """Mark a rule whose results are rounded: it also applies where all operands are plain tensors."""
    rule.rounds = True  # type: ignore[attr-defined]
    return rule


def handles_plain(rule: Rule) -> Rule:
    """Mark a rule that is called for plain tensors too, and decides by itself what to do with them."""
    rule.handles_plain = True  # type: ignore[attr-defined]
    return rule


def from_formula(formula: Callable[..., Any]) -> Rule:
    """The rule of an operation that is a formula of other operations. The formula takes the operation's arguments."""

    @rounds
    def rule(mode: RuleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with mode:
            return formula(*args, **kwargs)

    return rule


@rounds
def decompose(mode: RuleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The rule of an operation that torch itself defines by other operations."""
    with mode:
        return func.decompose(*args, **kwargs)


def added_matmul(mode: RuleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """addmm, addmv, baddbmm: beta*self + alpha*product; addbmm adds the products of the batch up."""
    start, a, b = args[:3]
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    with mode:
        t = torch.mv(a, b) if b.dim() == 1 else torch.bmm(a, b) if b.dim() == 3 else torch.mm(a, b)
        t = t.sum(0) if func is aten.addbmm.default else t
        t = t if alpha == 1 else t * alpha
        return t if beta == 0 else t + (start if beta == 1 else start * beta)


class RuleTable(dict[OpOverload, Rule]):
    """Rules by operation. A missing one is derived from the functional form, or from torch's implicit decomposition.

    An operation that no rule covers gets one that raises `NoRule` with the text of `describe_missing`.
    """

    def __init__(self, describe_missing: Callable[[OpOverload], str]) -> None:
        super().__init__()
        self.describe_missing = describe_missing

    def __missing__(self, func: OpOverload) -> Rule:
        rule = self._in_place(func) or self._with_out(func)
        if rule is None:
            rule = decompose if func.has_kernel_for_dispatch_key(COMPOSITE) else self._refuse(func)
        self[func] = rule
        return rule

    def register(self, rule: Rule, *names: str) -> None:
        """State the rule of every functional overload of aten operations ("add" or "add.Tensor") that have none yet."""
        for name in names:
            base, _, overload = name.partition(".")
            packet = getattr(aten, base, None)
            if packet is None:  # an operation that this version of torch lacks
                continue
            for candidate in [overload] if overload else packet.overloads():
                func = getattr(packet, candidate, None)
                if func is not None and not func._schema.is_mutable:
                    self.setdefault(func, rule)

    def register_formulas(self, formulas: Mapping[str, Callable[..., Any]]) -> None:
        """State the rules of operations that are formulas of others, by name."""
        for name, formula in formulas.items():
            self.register(from_formula(formula), name)

    def register_decompositions(self, *names: str) -> None:
        """State the rules of operations that torch's own decompositions define."""
        from torch._decomp import decomposition_table

        for name in names:
            packet = getattr(aten, name.split(".")[0], None)
            for overload in packet.overloads() if packet is not None else ():
                func = getattr(packet, overload)
                if func in decomposition_table and not func._schema.is_mutable:
                    self.setdefault(func, from_formula(decomposition_table[func]))

    def _refuse(self, func: OpOverload) -> Rule:
        @rounds
        def refuse(mode: RuleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            raise NoRule(self.describe_missing(func))

        return handles_plain(refuse) if torch.Tag.nondeterministic_seeded in func.tags else refuse

    def _functional(self, func: OpOverload, name: str) -> OpOverload | None:
        """The overload with a rule of the named operation that takes the same arguments."""
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            candidate: OpOverload = getattr(packet, overload)
            if candidate in self and _signature(candidate) == _signature(func):
                return candidate
        return None

    def _in_place(self, func: OpOverload) -> Rule | None:
        """The rule of add_ and the like: that of the functional form, whose result is written to the first argument.

        The shape of a wrapper that squeeze_ and the like change is its own; what it holds follows.
        """
        base = func._schema.name.split("::")[1]
        if not (base.endswith("_") and func._schema.is_mutable and func.namespace == "aten"):
            return None
        functional = self._functional(func, base[:-1])
        if functional is None:
            return None
        rule, reshapes = self[functional], torch.Tag.inplace_view in func.tags

        def apply(mode: RuleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            result = rule(mode, functional, args, kwargs)
            if not reshapes:
                return mode.write(func, args[0], result)
            with torch._C._DisableTorchDispatch():
                func(*args, **kwargs)
            mode.replace(args[0], result)
            return args[0]

        return apply

    def _with_out(self, func: OpOverload) -> Rule | None:
        """The rule of an overload with one `out=`: that of the overload with the same other arguments."""
        outs = [a for a in func._schema.arguments if a.is_out]
        functional = self._functional(func, func._schema.name.split("::")[1]) if len(outs) == 1 else None
        if functional is None:
            return None
        rule, out = self[functional], outs[0].name

        def apply(mode: RuleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            rest = {k: v for k, v in kwargs.items() if k != out}
            return mode.write(func, kwargs[out], rule(mode, functional, args, rest))

        return apply


def _signature(func: OpOverload) -> list[tuple[str, str]]:
    """Names and types of an overload's arguments, without `out=`."""
    return [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]


class RuleTensor(Tensor):
    """Base of wrapper tensors. Only a `RuleMode` computes with them."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Only reached outside an evaluation: inside, the mode sees every operation first."""
        raise NoRule(f"{func}: {cls.__name__} is used outside the evaluation that made it")

    def tolist(self) -> Any:
        """Nested lists of numbers, each as `.item()` gives it; torch's own method refuses subclasses."""
        return [row.tolist() for row in self.unbind(0)] if self.dim() else self.item()

    def numpy(self, *, force: bool = False) -> Any:
        """An array of the same numbers; torch's own method refuses subclasses."""
        return np.array(self.tolist()).reshape(self.shape)


class RuleMode(DispatchMode):
    """The dispatch mode of one evaluation, for one class of wrapper tensors.

    Operations on plain tensors are torch's own, except those whose rules round or handle plain tensors.
    """

    wrapper: ClassVar[type[RuleTensor]]
    always_rounds: ClassVar[bool] = False

    def __init__(self, rules: RuleTable) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rules = rules

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Apply the operation's rule."""
        rule = self.rules[func]
        if self.wrapper in types:
            return rule(self, func, args, kwargs or {})
        return self._dispatch_plain(rule, func, args, kwargs or {})

    def _dispatch_plain(self, rule: Rule, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation on plain tensors. If a rounded result is floating, the rule computes it on wrapped operands."""
        if getattr(rule, "handles_plain", False):
            return rule(self, func, args, kwargs)
        out = func(*args, **kwargs)
        if (self.always_rounds or getattr(rule, "rounds", False)) and _floats(out) and not func._schema.is_mutable:
            return rule(self, func, self.lift(args), kwargs)
        return out

    def lift(self, args: Any) -> Any:
        """Plain tensors as wrapper tensors. Lists and tuples are searched, anything else stays as it is."""
        if isinstance(args, tuple | list):
            return type(args)(self.lift(a) for a in args)
        return self.lift_tensor(args) if isinstance(args, Tensor) and type(args) is not self.wrapper else args

    def write(self, func: OpOverload, target: Any, value: Any) -> Any:
        """Write a result into a tensor. Views of a wrapper tensor see it, because they share what it holds."""
        if type(target) is self.wrapper:
            self.store(target, value)
            return target
        if type(value) is self.wrapper:
            raise PlainWriteError(f"{func}: writes into a plain tensor; make that tensor inside the reference")
        return target.copy_(value)

    def lift_tensor(self, t: Tensor) -> Tensor:
        """A plain tensor as a wrapper tensor, where this kind of evaluation holds its dtype."""
        raise NotImplementedError

    def store(self, target: Any, value: Any) -> None:
        """Copy a value, which broadcasts, into what a wrapper tensor holds."""
        raise NotImplementedError

    def replace(self, target: Any, source: Any) -> None:
        """Make a wrapper tensor hold what another one of the same shape does."""
        raise NotImplementedError


def _floats(out: Any) -> bool:
    """Whether a result is, or holds, a floating tensor."""
    parts = out if isinstance(out, tuple | list) else (out,)
    return any(isinstance(t, Tensor) and t.is_floating_point() for t in parts)
