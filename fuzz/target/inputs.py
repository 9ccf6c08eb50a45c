"""Makes cases of inputs that a person gives, or wrote down as seeds of a target: tensors of PyTorch, arrays or numbers.

PyTorch is not imported here: a tensor is known by its methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fuzz.errors import TargetError, one_line
from fuzz.model.case import Argument, Call, Case, Scalar
from fuzz.model.dims import Size, evaluate, names, resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import to_bits
from fuzz.model.layout import CONTIGUOUS, SPAN, Layout, find_layout
from fuzz.model.recipes import exact, recipe
from fuzz.target.arguments import OptionArgument, TensorArgument, plain_scalar
from fuzz.target.legal import make_legal
from fuzz.target.shapes import Shape, fitting
from fuzz.target.spec import Target

MAX_SEARCHED = 1 << 16
"""Sizes of a dim that are tried in search of one that gives an expression its value."""
FIELDS = {"values", "dtype", "layout"}
"""What may be said of a tensor that is given as a dict."""
Given = Mapping[str, Any]


def given_case(target: Target, calls: Sequence[Given]) -> Case:
    """A case of inputs that are to be examined as they are. TargetError where they do not fit the declaration."""
    where = f"target {target.name!r}: input"
    case = Case(target.name, tuple(make_call(target, given, where, strict=True) for given in calls))
    if make_legal(case, target) != case:
        raise TargetError(f"{where} holds values that the declaration rules out, such as an index beyond its bound")
    return case


def seed_cases(target: Target) -> tuple[Case, ...]:
    """The target's seeds as cases of one call, or of several. TargetError for one that does not fit the declaration."""
    return tuple(_seed_case(target, name) for name in target.seeds)


def _seed_case(target: Target, name: str) -> Case:
    """A seed: sizes, options, and the numbers of tensors; what it leaves out is the least size, the default, or 1."""
    seed, where = target.seeds[name], f"target {target.name!r}: seed {name!r}"
    calls = (seed,) if isinstance(seed, Mapping) else tuple(seed)
    case = Case(target.name, tuple(make_call(target, call, where, strict=False) for call in calls))
    return make_legal(case, target)


def make_call(target: Target, given: Given, where: str, *, strict: bool) -> Call:
    """One call. A size that is left out follows from the shapes, or is the least one; an option is its default.

    Where it is not `strict`, a tensor that is left out is ones, or indices 0, and one of another dtype is rounded to
    the plain one; where it is, sizes may be above the `high` of their dims.
    """
    cotangents = {f"grad_{key}": declared for key, declared in target.cotangents.items()}
    tensors = {**target.tensors, **cotangents}
    known = {*(dim.name for dim in target.sizes), *target.passed_sizes, *target.options, *tensors}
    for key in given:
        if key not in known:
            raise TargetError(f"{where} names {key!r}; there are {', '.join(sorted(known))}")
    try:
        options = {key: _choose(key, option, given) for key, option in target.options.items()}
        tensors = {key: _decided(declared, options) for key, declared in tensors.items()}
        described = {key: _describe(value) for key, value in given.items() if key in tensors and value is not None}
        ranks = _find_ranks(target, [(tensors[key], one["values"].ndim) for key, one in described.items()])
        shaped = [(_shapes(tensors[key], one["values"].ndim, ranks), one["values"]) for key, one in described.items()]
        dims = _find_dims(target, given, shaped)
        _check_sizes(target, dims, limited=not strict)
        made = {}
        for key, declared in tensors.items():
            if key in described:
                shapes = _shapes(declared, described[key]["values"].ndim, ranks)
                exact_ones = [one for one in shapes if resolve(one, dims) == described[key]["values"].shape]
                declared = replace(declared, shape=(exact_ones or shapes)[0])
                made[key] = _make_argument(key, declared, dims, described[key], strict=strict)
            elif strict and not declared.optional and key not in cotangents:
                raise TargetError(f"{key} is missing")
            elif not declared.optional:
                shape = fitting(declared.shapes, declared.runs, ranks)[0]
                made[key] = _plain_argument(declared, declared.legal_shape(shape, options))
    except (TargetError, ValueError, TypeError, AttributeError, OverflowError, RuntimeError, MemoryError) as error:
        # Values that do not fit into memory raise one of the last two.
        raise TargetError(f"{where}: {one_line(error)}") from None
    gradients = {key: made[f"grad_{key}"] for key in target.cotangents}
    return Call(dims, {key: made[key] for key in target.tensors if key in made}, options, gradients)


def _choose(key: str, option: OptionArgument, given: Given) -> Scalar:
    """The value of an option. TargetError for one that is none of its choices."""
    value = given.get(key, option.choices[0])
    # A file of tensors holds numbers as tensors without dims.
    value = plain_scalar(key, value.item() if getattr(value, "ndim", None) == 0 else value)
    if value not in option.choices:
        raise TargetError(f"{key} is {value!r}; it is one of {', '.join(map(repr, option.choices))}")
    return value


def _check_sizes(target: Target, dims: Mapping[str, int], *, limited: bool) -> None:
    """TargetError for a size that its dim does not have; beyond its `high` only where sizes are `limited`."""
    for dim in target.sizes:
        size = dims[dim.name]
        if size < dim.low or size % dim.multiple or limited and size > dim.high:
            range_of_dim = f"{dim.low} to {dim.high}" if limited else f"at least {dim.low}"
            multiple = f", a multiple of {dim.multiple}" if dim.multiple > 1 else ""
            raise TargetError(f"{dim.name} is {size}; it is {range_of_dim}{multiple}")


def _decided(declared: TensorArgument, options: Given) -> TensorArgument:
    """The argument, with one shape alone where an option decides it."""
    if not declared.option:
        return declared
    return replace(declared, shape=declared.legal_shape(declared.shape, options), others=())


def _describe(value: Any) -> dict[str, Any]:
    """`values` as an array, and where the input says so the `dtype` and the `layout` of a tensor."""
    if isinstance(value, Mapping):
        if "values" not in value or set(value) - FIELDS:
            raise ValueError(f"a tensor is a dict of {', '.join(sorted(FIELDS))}, not of {', '.join(map(str, value))}")
        parts: Any = {key: tuple(one) if isinstance(one, list) else one for key, one in value.get("layout", {}).items()}
        return {**value, "values": np.asarray(value["values"]), "layout": Layout(**parts)}
    if isinstance(value, np.ndarray):
        return {"values": value, "dtype": value.dtype.name}
    if not hasattr(value, "storage_offset"):
        return {"values": np.asarray(value)}
    name, plain = str(value.dtype).removeprefix("torch."), value.detach().cpu()
    layout = find_layout(tuple(value.shape), tuple(value.stride()), int(value.storage_offset())) or CONTIGUOUS
    return {"values": (plain.double() if value.is_floating_point() else plain).numpy(), "dtype": name, "layout": layout}


def _find_ranks(target: Target, given: Sequence[tuple[TensorArgument, int]]) -> dict[str, int]:
    """How many dims each run of dims has in tensors of these ranks."""
    ranks = {name: run.least for name, run in target.runs.items()}
    for declared, rank in given:
        shape = next((one for one in declared.shapes if len(one) == rank), declared.shape)
        ranks |= {run.name: run.rank_in(shape) for run in declared.runs}
    return ranks


def _shapes(declared: TensorArgument, rank: int, ranks: Mapping[str, int]) -> list[Shape]:
    """The shapes that a given tensor of a rank may have; all that are declared at these ranks where none has it."""
    found = fitting(declared.shapes, declared.runs, ranks)
    return [shape for shape in found if len(shape) == rank] or found


def _find_dims(target: Target, given: Given, shaped: Sequence[tuple[list[Shape], Any]]) -> dict[str, int]:
    """The sizes: given, or those with which every tensor has its shape. TargetError where there are none."""
    known = {dim.name: int(given[dim.name]) for dim in target.sizes if dim.name in given}
    known |= {dim: int(given[key]) for key, dim in target.passed_sizes.items() if key in given}
    pairs = [
        (texts[0], size)
        for shapes, values in shaped
        if len(shapes[0]) == values.ndim
        for *texts, size in zip(*shapes, values.shape, strict=True)
        if size > 1 or len(set(texts)) == 1
    ]
    for one in pairs:
        if one[0].isidentifier():
            known.setdefault(*one)
    for dim in target.sizes:
        if dim.name not in known:
            known |= _solve(dim, pairs, known)
    return {dim.name: known.get(dim.name, dim.least) for dim in target.sizes}


def _solve(dim: Size, pairs: Sequence[tuple[str, int]], known: Mapping[str, int]) -> dict[str, int]:
    """The first size of a dim that gives an expression over it and known dims its value; nothing without one."""
    for text, wanted in pairs:
        if set(names(text)) - known.keys() == {dim.name}:
            for size in range(dim.least, dim.high + 1, dim.multiple)[:MAX_SEARCHED]:
                if evaluate(text, {**known, dim.name: size}) == wanted:
                    return {dim.name: size}
    return {}


def _make_argument(
    key: str, declared: TensorArgument, dims: Mapping[str, int], described: Mapping[str, Any], *, strict: bool
) -> Argument:
    shape, values = resolve(declared.shape, dims), described["values"]
    if values.shape != shape and (strict or values.size != int(np.prod(shape))):
        raise ValueError(f"{key} has the shape {values.shape}, where {shape} is due")
    dtype = described.get("dtype", declared.dtypes[0])
    if dtype not in declared.dtypes:
        if strict:
            raise TypeError(f"{key} is {dtype}; it is one of {', '.join(declared.dtypes)}")
        dtype = declared.dtypes[0]
    layout = described.get("layout", CONTIGUOUS)
    if not layout.fits(len(shape)):
        raise ValueError(f"the layout of {key} does not fit {len(shape)} dims")
    if min(layout.step - 1, layout.pad, layout.offset, layout.reach) < 0 or layout.offset + layout.span(shape) > SPAN:
        raise ValueError(
            f"the layout of {key} has a step below 1, a negative number, or spans more than {SPAN} elements"
        )
    kind = named_dtype(dtype)
    stored = values.reshape(shape)[tuple(slice(0, n) for n in layout.stored(shape))]
    numbers = stored.astype(np.float64 if kind.is_float else np.int64)
    return Argument(declared.shape, dtype, exact(np.asarray(to_bits(numbers, kind)).reshape(-1), kind), layout)


def _plain_argument(declared: TensorArgument, shape: Shape) -> Argument:
    """Ones, or indices 0, in the plain dtype."""
    dtype = declared.dtypes[0]
    return Argument(shape, dtype, recipe("ones" if named_dtype(dtype).is_float else "zeros"))
