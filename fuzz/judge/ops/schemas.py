"""Reads the schemas of PyTorch's operations: which there are, what a call's arguments are named, which it writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fuzz.judge.formats.base import Tensors, name_outputs
from fuzz.judge.problem.description import TensorSlot

ATEN = "aten"
Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional arguments and the keywords of a call, as the dispatcher hands them to Python."""


def find_overload(name: str) -> Any:
    """The overload of ``namespace::name.overload``, whose last part may be left out; None where there is none."""
    namespace, _, rest = name.rpartition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace or ATEN), base, None)
    return getattr(packet, overload or "default", None)


def full_name(overload: Any) -> str:
    """The name of an overload, such as ``aten::add.Tensor``."""
    base = str(overload._schema.name)
    return f"{base}.{overload._schema.overload_name}" if overload._schema.overload_name else base


def overloads(base: str) -> list[Any]:
    """Every overload of aten's operation of this name."""
    packet = getattr(torch.ops.aten, base, None)
    return [getattr(packet, name) for name in packet.overloads()] if packet is not None else []


def is_written(argument: Any) -> bool:
    """Whether the schema says that an operation writes an argument."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def written_names(overload: Any) -> list[str]:
    return [one.name for one in overload._schema.arguments if is_written(one)]


def find_counterpart(name: str) -> Any:
    """The operation of PyTorch that an implementation is compared with; None where there is none.

    An operation of another library is compared with aten's operation of the same name whose arguments have the same
    types, as far as it has them, and which writes the same ones.
    """
    own = find_overload(name)
    if own is None or name.partition("::")[0] == ATEN:
        return own
    types = [(str(one.type), is_written(one)) for one in own._schema.arguments]
    for other in overloads(name.partition("::")[2].partition(".")[0]):
        arguments = other._schema.arguments
        same = [(str(one.type), is_written(one)) for one in arguments[: len(types)]] == types
        if same and all(one.has_default_value() for one in arguments[len(types) :]):
            return other
    return None


def find_functional(overload: Any) -> Any:
    """The operation that returns what this one writes; the operation itself where there is none."""
    written = [one for one in overload._schema.arguments if is_written(one)]
    if not written:
        return overload
    base = str(overload._schema.name).partition("::")[2]
    names = [one.name for one in overload._schema.arguments if not (is_written(one) and one.kwarg_only)]
    for place in (base, base.removesuffix("_")):
        for other in overloads(place):
            if not written_names(other) and [one.name for one in other._schema.arguments] == names:
                return other
    return overload


def bind(overload: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """A call as the dispatcher hands it to Python: without what equals a default at its end. TypeError if it cannot."""
    arguments = overload._schema.arguments
    plain = [one for one in arguments if not one.kwarg_only]
    given = dict(zip((one.name for one in plain), args, strict=False)) | dict(kwargs)
    if len(args) > len(plain) or set(given) - {one.name for one in arguments}:
        raise TypeError(f"{full_name(overload)} takes other arguments")
    positional: list[Any] = []
    for one in plain:
        if one.name not in given and not one.has_default_value():
            raise TypeError(f"{full_name(overload)} needs {one.name}")
        positional.append(given.get(one.name, one.default_value))
    while positional and is_default(plain[len(positional) - 1], positional[-1]):
        positional.pop()
    keywords = {
        one.name: given[one.name]
        for one in arguments
        if one.kwarg_only and one.name in given and not is_default(one, given[one.name])
    }
    return tuple(positional), keywords


def is_default(argument: Any, value: Any) -> bool:
    if not argument.has_default_value() or isinstance(value, torch.Tensor):
        return False
    return type(value) is type(argument.default_value) and bool(value == argument.default_value)


def named(overload: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """(argument of the schema, value) of every argument that a call gives."""
    arguments = overload._schema.arguments
    plain = [one for one in arguments if not one.kwarg_only]
    yield from zip(plain, args, strict=False)
    yield from ((one, kwargs[one.name]) for one in arguments if one.name in kwargs)


def plain_name(name: str) -> str:
    """The name of an argument, as Python's methods may be called with it."""
    return "input" if name == "self" else name


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors that an argument is, or holds."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [one for part in value for one in tensors_of(part)] if isinstance(value, list | tuple) else []


def take_tensors(overload: Any, call: Call) -> tuple[Call, Tensors]:
    """The call with slots in the place of tensors, which are named as the schema names the arguments."""
    found: Tensors = {}

    def take(value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            found[name] = value
            return TensorSlot(name)
        if isinstance(value, list | tuple):
            return type(value)(take(part, f"{name}_{place}") for place, part in enumerate(value))
        return value

    args, kwargs = call
    names = [plain_name(one.name) for one in overload._schema.arguments if not one.kwarg_only]
    positional = tuple(take(value, name) for name, value in zip(names, args, strict=False))
    return (positional, {name: take(value, name) for name, value in kwargs.items()}), found


def name_results(overload: Any, result: Any, call: Call) -> Tensors:
    """What a call returned, and what is afterwards in the arguments that it writes by its schema."""
    outputs = {} if result is None else name_outputs(result)
    for argument, value in named(overload, *call):
        if is_written(argument):
            found = tensors_of(value)
            name = plain_name(argument.name)
            names = [f"{name}_{place}" if len(found) > 1 else name for place in range(len(found))]
            outputs |= {f"{one} written": tensor for one, tensor in zip(names, found, strict=True)}
    return outputs
