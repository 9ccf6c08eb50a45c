"""Reads AI-bench's specs: YAML beside a problem's file that gives its inputs, and variants of its dims and dtypes.

A spec has `inputs` by name (shape as names of dims, dtype, or ``inherit`` for that of the variant, how values are
made), `inits`, which are the arguments of the constructor as names of dims, and lists of variants under other names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.corpus.codec.strict_yaml import LARGEST_FILE, TypedLoader, decode, parse
from fuzz.errors import UsageError, one_line
from fuzz.files import read_file
from fuzz.judge.problem.description import Variant
from fuzz.target.spec import FLOATS

INPUTS, INITS = "inputs", "inits"
INHERIT = "inherit"
ENDING = ".yaml"


@dataclass(frozen=True)
class SpecInput:
    """An input: its shape as names of dims or numbers, its dtype or INHERIT, what is done to normal values one after
    the other, and from and below which whole numbers lie, as names of dims or numbers."""

    shape: tuple[str | int, ...]
    dtype: str
    makers: tuple[str, ...] = ()
    range: tuple[str | int, ...] = (0, 2)


@dataclass(frozen=True)
class SpecVariant:
    """The names of the inputs that are given, the dims, of which some are no whole numbers, and the dtype."""

    params: tuple[str, ...]
    dims: Mapping[str, Any]
    dtype: str

    @property
    def sizes(self) -> dict[str, int]:
        """The dims that are whole numbers."""
        return {name: value for name, value in self.dims.items() if type(value) is int and value >= 0}


@dataclass(frozen=True)
class Spec:
    """A spec. `variants` are those of which the first is what a problem states: in float32, where one is."""

    inputs: Mapping[str, SpecInput]
    inits: tuple[str, ...]
    variants: tuple[SpecVariant, ...]

    @property
    def own(self) -> SpecVariant:
        return self.variants[0]

    def others(self) -> Iterator[Variant]:
        """What the other variants state that the first one does not, as far as whole numbers tell them apart."""
        found = dict.fromkeys(
            Variant(tuple(sorted(one.sizes.items())), one.dtype)
            for one in self.variants[1:]
            if one.params == self.own.params and all(self.value(name, one.sizes) == one.dims[name] for name in one.dims)
        )
        found.pop(Variant(tuple(sorted(self.own.sizes.items())), self.own.dtype), None)
        yield from found

    def value(self, name: str, sizes: Mapping[str, int]) -> Any:
        """A dim at these sizes: a list whose elements stand for other dims follows them."""
        value = self.own.dims[name]
        if isinstance(value, list):
            axes = self.axes(value)
            return [sizes[axis] if axis else one for axis, one in zip(axes, value, strict=True)]
        return sizes.get(name, value)

    def axes(self, values: list[Any]) -> list[str]:
        """The dims that the elements of a list stand for: consecutive axes of an input, or the one dim of that size."""
        sizes = self.own.sizes
        for one in self.inputs.values():
            for start in range(len(one.shape) - len(values), -1, -1):
                names = [str(axis) for axis in one.shape[start : start + len(values)]]
                if values and [sizes.get(name) for name in names] == values:
                    return names
        equal = [[name for name, size in sizes.items() if size == value and value != 1] for value in values]
        return [names[0] if len(names) == 1 else "" for names in equal]


def find_spec(problem: Path, given: Path | None) -> Path | None:
    """The spec of a problem: the file that is given, that of its name in the folder that is, or the one beside it.

    Raises UsageError where what is given is not there.
    """
    name = problem.stem + ENDING
    if given is None:
        beside = problem.parent / name
        return beside if beside.is_file() else None
    if given.is_dir():
        found = sorted(given.rglob(name), key=lambda path: (path.parent.name != problem.parent.name, str(path)))
        return found[0] if found else None
    if not given.is_file():
        raise UsageError(f"there is no spec {given}")
    return given


def read_spec(path: Path) -> Spec:
    """The spec of a file. Raises UsageError where it is none."""
    try:
        return make_spec(parse(decode(read_file(path, LARGEST_FILE + 1)), TypedLoader))
    except (OSError, UsageError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else one_line(error)
        raise UsageError(f"{path} is no spec of a problem: {reason}") from None


def make_spec(value: Any) -> Spec:
    """The spec that a mapping holds. Raises ValueError, TypeError, KeyError or AttributeError where it is none."""
    inputs = {name: make_input(one) for name, one in value[INPUTS].items()}
    inits = tuple(one["dim"] for one in value.get(INITS) or [])
    stated = [one for name, group in value.items() if name not in (INPUTS, INITS) for one in group or []]
    variants = [make_variant(one, inputs) for one in stated]
    if not variants:
        raise ValueError("it has no variants")
    missing = {name for name in inits for one in variants if name not in one.dims}
    if missing:
        raise ValueError(f"a variant lacks {', '.join(sorted(missing))}")
    variants.sort(key=lambda one: one.dtype != FLOATS[0])
    return Spec(inputs, inits, tuple(variants))


def make_input(value: Mapping[str, Any]) -> SpecInput:
    makers = tuple(value.get(INITS) or ())
    if not all(isinstance(one, str) for one in makers):
        raise ValueError(f"an input's {INITS} are names")
    return SpecInput(tuple(value["shape"]), str(value["dtype"]), makers, tuple(value.get("range") or (0, 2)))


def make_variant(value: Mapping[str, Any], inputs: Mapping[str, SpecInput]) -> SpecVariant:
    """A variant, whose dtype is that of its first input of floating numbers where no input inherits one."""
    params, dims = tuple(value["params"]), dict(value["dims"])
    floats = [dtype for name in params if (dtype := inputs[name].dtype) in (*FLOATS, INHERIT)]
    dtype = value.get("dtype", FLOATS[0]) if INHERIT in floats or not floats else floats[0]
    if dtype not in FLOATS:
        raise ValueError(f"the dtype of a variant is {dtype}, and none of {', '.join(FLOATS)}")
    unknown = {axis for name in params for axis in inputs[name].shape if isinstance(axis, str) and axis not in dims}
    if unknown:
        raise ValueError(f"a variant lacks {', '.join(sorted(unknown))}")
    return SpecVariant(params, dims, dtype)
