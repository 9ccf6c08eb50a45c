"""Makes cases of the seeds that a target's author wrote down, which every run tries before it draws any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fuzz.errors import TargetError, one_line
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import to_bits
from fuzz.model.recipes import Values, exact, recipe
from fuzz.target.arguments import TensorArgument
from fuzz.target.legal import make_legal
from fuzz.target.spec import Target


def seed_cases(target: Target) -> tuple[Case, ...]:
    """The target's seeds as cases of one contiguous call. TargetError for one that does not fit the declaration."""
    return tuple(_case(target, name, seed) for name, seed in target.seeds.items())


def _case(target: Target, name: str, seed: Mapping[str, Any]) -> Case:
    """A seed: sizes, options, and the numbers of tensors; what it leaves out is the least size, the default, or 1."""
    where = f"target {target.name!r}: seed {name!r}"
    sizes, cotangents = {dim.name: dim for dim in target.sizes}, {f"grad_{key}": key for key in target.cotangents}
    known = {*sizes, *target.options, *target.tensors, *cotangents}
    for key in seed:
        if key not in known:
            raise TargetError(f"{where} names {key!r}; there are {', '.join(sorted(known))}")
    dims = {key: int(seed.get(key, dim.clamp(dim.low))) for key, dim in sizes.items()}
    options = {key: seed.get(key, option.choices[0]) for key, option in target.options.items()}
    try:
        arguments = {
            key: _argument(spec, dims, seed.get(key))
            for key, spec in target.tensors.items()
            if not spec.optional or seed.get(key) is not None
        }
        gradients = {key: _argument(target.cotangents[key], dims, seed.get(text)) for text, key in cotangents.items()}
    except (ValueError, TypeError) as error:
        raise TargetError(f"{where}: {one_line(error)}") from None
    return make_legal(Case(target.name, (Call(dims, arguments, options, gradients),)), target)


def _argument(spec: TensorArgument, dims: Mapping[str, int], numbers: Any) -> Argument:
    """A contiguous tensor of the plain dtype, its numbers rounded to it."""
    dtype = spec.dtypes[0]
    kind, values = named_dtype(dtype), np.asarray(numbers, dtype=np.float64)
    chosen: Values = recipe("ones" if kind.is_float else "zeros")
    if numbers is not None:
        shape = resolve(spec.shape, dims)
        if values.size != int(np.prod(shape)):
            raise ValueError(f"{values.size} numbers for a tensor of shape {shape}")
        chosen = exact(
            np.asarray(to_bits(values if kind.is_float else values.astype(np.int64), kind)).reshape(-1), kind
        )
    return Argument(spec.shape, dtype, chosen)
