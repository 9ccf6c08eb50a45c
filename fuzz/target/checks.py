"""Checks that the parts of a target's declaration fit together."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fuzz.errors import TargetError
from fuzz.target.arguments import check_writable
from fuzz.target.contract import BITS, RANGES

if TYPE_CHECKING:
    from fuzz.target.spec import Target

WORKING_PRECISIONS = ("float32", "float64", "float16", "bfloat16", "inputs")


def check_declaration(target: Target) -> None:
    """TargetError names what of a target does not fit together."""
    where = f"target {target.name!r}"
    is_number = isinstance(target.timeout, int | float) and not isinstance(target.timeout, bool)
    if not is_number or not 0 < target.timeout < math.inf:
        raise TargetError(f"{where}: timeout is a number of seconds, more than 0, not {target.timeout!r}")
    _check_names(target, where)
    if target.exact is not None and (target.differentiable or target.reference is None):
        raise TargetError(f"{where}: exact= goes with a reference, and not with differentiable=")
    if target.accumulate not in WORKING_PRECISIONS or target.dot not in ("ieee", "tf32"):
        raise TargetError(f"{where}: accumulate is one of {', '.join(WORKING_PRECISIONS)}, dot is 'ieee' or 'tf32'")
    _check_promises(target, where)
    named = (target.tensors, target.options, target.passed_sizes, target.cotangents)
    for key, value in (pair for arguments_of_kind in named for pair in arguments_of_kind.items()):
        check_writable(key, value)
    if not target.tensors:
        raise TargetError(f"{where}: none of its arguments is a tensor; one is due, such as x=tensor(N)")
    if any(value.optional for value in target.cotangents.values()) or all(
        value.optional for value in target.tensors.values()
    ):
        raise TargetError(f"{where}: one of its tensors at least, and each cotangent, is never None")
    least = {dim.name: dim.least for dim in target.sizes}
    for key, tensor_argument in (*target.tensors.items(), *target.cotangents.items()):
        if not tensor_argument.dtypes:
            raise TargetError(f"{where}: argument {key!r} has no dtypes, nor has the target")
        try:
            tensor_argument.check(key, least, target.options)
        except TargetError as error:
            raise TargetError(f"{where}: {error}") from None


def _check_names(target: Target, where: str) -> None:
    """TargetError for a promise about a tensor or a dim that there is not."""
    for key in (*target.in_place, *target.nonfinite, *target.linear, *target.shifts):
        written = key in target.in_place and key.removeprefix("grad ") in target.cotangents
        if key not in target.tensors and not written:
            raise TargetError(f"{where}: {key!r} is no tensor argument; there are {', '.join(target.tensors)}")
    for option in filter(None, target.in_place.values()):
        if option not in target.options:
            there_are = ", ".join(target.options) or "none"
            raise TargetError(f"{where}: in_place= names {option!r}, which is no option; there are {there_are}")
    known = {dim.name for dim in target.sizes}
    if len({*filter(None, [target.batch]), *target.rows.values()}) > 1 or target.batch and target.rows:
        raise TargetError(f"{where}: rows= goes without batch=, and its outputs are rows of one dim")
    for dim in [*filter(None, [target.batch]), *target.rows.values()]:
        if dim not in known:
            raise TargetError(f"{where}: {dim!r} is no dim of its arguments; there are {', '.join(sorted(known))}")


def _check_promises(target: Target, where: str) -> None:
    """TargetError for a promise that nothing can check."""
    if target.contract.kind == "bitwise" and target.baseline is None:
        raise TargetError(f"{where}: contract 'bitwise' needs a baseline= to have the bits of")
    if target.contract.kind == "ulps" and target.reference is None:
        raise TargetError(f"{where}: contract ulps(..) needs a reference=")
    if target.as_good_as not in ("", "torch"):
        raise TargetError(f"{where}: as_good_as is 'torch', not {target.as_good_as!r}")
    if target.as_good_as and (target.contract.kind != "envelope" or target.reference is None):
        raise TargetError(f"{where}: as_good_as='torch' goes with a reference= and the contract 'envelope'")
    if target.contract.kind != "bitwise" and target.baseline is not None and target.reference is None:
        raise TargetError(f"{where}: without a reference= a baseline= is compared bit by bit: contract='bitwise'")
    for name, value in (("invariance", target.invariance), ("layout", target.layout)):
        if value not in BITS:
            raise TargetError(f"{where}: {name} is one of {', '.join(BITS)}, not {value!r}")
    if target.range not in RANGES:
        raise TargetError(f"{where}: range is one of {', '.join(RANGES)}, not {target.range!r}")
    if target.range == "full" and target.reference is None:
        raise TargetError(f"{where}: range='full' needs a reference=")
    if target.invariance == "envelope" and target.reference is None:
        raise TargetError(f"{where}: invariance='envelope' needs a reference=")
    if target.invariance != "bitwise" and not target.batch_dim:
        raise TargetError(f"{where}: invariance= needs batch= or rows=, the dim whose rows are independent")
    if target.linear and target.reference is None:
        raise TargetError(f"{where}: linear= needs a reference=, which tells where underflow breaks it")
