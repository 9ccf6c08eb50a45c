"""Derives inputs that a target's declaration rules out: an index out of range, a short argument, a wrong rank or dtype.

Each differs in one argument from a call that the declaration allows. That argument has memory of its own, exactly as
large as it says, so that an access outside it is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fuzz.model.case import Argument, Call
from fuzz.model.dims import names, resolve
from fuzz.model.dtypes import Bits, from_bits, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import exact
from fuzz.target.arguments import TensorArgument
from fuzz.target.spec import Target

WRONG_FLOATS, WRONG_INTEGERS = ("float64", "int64"), ("float32",)
"""Dtypes that are tried where floating-point numbers are declared, or other ones."""


@dataclass(frozen=True)
class InvalidInput:
    """A call in which `argument` is not what the target declares. `what` says in words how it differs.

    `kind` is index, short, rank or dtype; `variant` tells those of one argument and kind apart.
    """

    call: Call
    argument: str
    kind: str
    variant: str
    what: str


def derive_invalid_inputs(call: Call, target: Target) -> Iterator[InvalidInput]:
    """Everything that is invalid in one argument of a call."""
    for name, value in call.arguments.items():
        declared = target.tensors[name]
        yield from _invalid_values(name, value, declared, call)
        yield from _too_short(name, value, declared, call, target)
        yield from _wrong_ranks(name, value, declared, call)
        yield from _wrong_dtypes(name, value, declared, call)


def _invalid_values(name: str, value: Argument, declared: TensorArgument, call: Call) -> Iterator[InvalidInput]:
    """Values that the kind of argument rules out, such as an index at its bound."""
    kind, bits = named_dtype(value.dtype), _whole(value, call)
    for variant, what, numbers in declared.invalid_values(from_bits(bits, kind), call):
        changed = to_bits(numbers, kind)
        if np.array_equal(from_bits(changed, kind), numbers):  # Else the dtype does not hold such a number.
            yield InvalidInput(_with(call, name, value, changed), name, "index", variant, f"{name} {what}")


def _too_short(
    name: str, value: Argument, declared: TensorArgument, call: Call, target: Target
) -> Iterator[InvalidInput]:
    """One element less in a dim that something else in the call fixes."""
    bits = _whole(value, call)
    for axis, text in enumerate(value.shape):
        size = bits.shape[axis]
        short = np.delete(bits, -1, axis) if size > 1 else bits
        if size < 2 or not _is_fixed(axis, name, call, target) or _allows(declared, short.shape, call):
            continue
        wanted = f"{text} = {size}" if any(names(text)) else str(size)
        place = f" in dim {axis}" if bits.ndim > 1 else ""
        elements = "1 element" if size == 2 else f"{size - 1} elements"
        what = f"{name} has {elements}{place} where {wanted}"
        yield InvalidInput(_with(call, name, value, short), name, "short", f"dim {axis}", what)


def _wrong_ranks(name: str, value: Argument, declared: TensorArgument, call: Call) -> Iterator[InvalidInput]:
    """Without the first dim, or with a last one of a single element."""
    bits = _whole(value, call)
    if declared.runs:  # Whose number of dims varies.
        return
    for variant, changed in (("fewer", bits[0] if bits.ndim and bits.size else bits), ("more", bits[..., None])):
        if changed.ndim != bits.ndim and not any(len(shape) == changed.ndim for shape in declared.shapes):
            what = f"{name} has shape {_show(changed.shape)} where ({', '.join(value.shape)}) is {_show(bits.shape)}"
            yield InvalidInput(_with(call, name, value, changed), name, "rank", variant, what)


def _wrong_dtypes(name: str, value: Argument, declared: TensorArgument, call: Call) -> Iterator[InvalidInput]:
    """Dtypes that are not declared, with the same numbers as far as these have them."""
    numbers = from_bits(_whole(value, call), named_dtype(value.dtype))
    for other in WRONG_FLOATS if value.is_float else WRONG_INTEGERS:
        if other not in declared.dtypes:
            changed = _with(call, name, replace(value, dtype=other), to_bits(numbers, named_dtype(other)))
            what = f"{name} is {other} where {', '.join(declared.dtypes)} is declared"
            yield InvalidInput(changed, name, "dtype", other, what)


def _whole(value: Argument, call: Call) -> Bits:
    """The bits of all elements, of the argument's shape."""
    return np.broadcast_to(value.bits(call.dims), resolve(value.shape, call.dims))


def _with(call: Call, name: str, value: Argument, bits: Bits) -> Call:
    """The call with these bits, contiguous, as an argument of their shape."""
    shape = tuple(map(str, bits.shape))
    return call.with_argument(name, Argument(shape, value.dtype, exact(bits, named_dtype(value.dtype)), CONTIGUOUS))


def _is_fixed(axis: int, name: str, call: Call, target: Target) -> bool:
    """Whether the size of a dim follows from the rest of the call: one that nothing else has may be any.

    Bounds of indices fix nothing: what is wrong there is the index.
    """
    here = call.arguments[name].shape
    texts = [text for other, value in call.arguments.items() for text in value.shape if other != name]
    texts += [*here[:axis], *here[axis + 1 :], *target.passed_sizes.values()]
    dims = set(names(here[axis]))
    return not dims or any(dims & set(names(text)) for text in texts)


def _allows(declared: TensorArgument, shape: tuple[int, ...], call: Call) -> bool:
    """Whether one of the declared shapes is this one."""
    return any(resolve(each, call.dims) == shape for each in declared.shapes)


def _show(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
