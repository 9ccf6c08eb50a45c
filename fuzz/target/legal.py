"""Makes cases legal: a kernel may read anywhere when it is given, say, an index that its contract rules out."""

from __future__ import annotations

from dataclasses import replace

from fuzz.model.case import Call, Case, Split
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.edit import with_layout, with_shape
from fuzz.target.arguments import TensorArgument
from fuzz.target.nonfinite import keep_kinds
from fuzz.target.spec import Target


def make_legal(case: Case, target: Target) -> Case:
    """The case with every argument legal for its dims and options, and its split; the same case where all are."""
    for index, call in enumerate(case.calls):
        legal_call = make_call_legal(call, target)
        if legal_call is not call:
            case = case.with_call(index, legal_call)
    split = legal_split(case.split, target)
    return case if split is case.split else replace(case, split=split)


def legal_split(split: Split | None, target: Target) -> Split | None:
    """The split with so many rows beside its own that the batch has a size that is declared, where there is one."""
    rows = next((dim for dim in target.sizes if dim.name == target.batch_dim), None)
    if split is None or rows is None:
        return split
    least = -(-max(split.length, rows.low) // rows.multiple) * rows.multiple
    count = -(-max(split.before + split.length + split.after, least) // rows.multiple) * rows.multiple
    others = max(min(count, rows.clamp(rows.high)), least) - split.length
    before = min(split.before, others)
    fits = (split.before, split.after) == (before, others - before)
    return split if fits else replace(split, before=before, after=others - before)


def make_call_legal(call: Call, target: Target) -> Call:
    """The call with every argument legal; the same call where all are."""
    writable = target.writable(call)
    for name, declared in target.tensors.items():
        if name in call.arguments:
            call = with_legal_shape(call, name, declared, written=name in writable)
            value = call.arguments[name]
            values = declared.legal_values(value, call)
            if value.is_float and name in target.nonfinite:
                values = keep_kinds(values, target.nonfinite[name], named_dtype(value.dtype))
            if values is not value.values and values != value.values:
                call = call.with_argument(name, replace(value, values=values))
    for name, declared in target.cotangents.items():
        call = with_legal_shape(call, f"grad {name}", declared) if name in call.cotangents else call
    return call


def with_legal_shape(call: Call, name: str, declared: TensorArgument, *, written: bool = False) -> Call:
    """The call with an argument or cotangent in a shape and layout that are declared; the same call where it is.

    Autograd expands cotangents (that of a sum, say), whoever writes over them. PyTorch writes no argument whose
    elements share memory: one that the launcher may write, `written`, has one element at each place.
    """
    value = call.tensors[name]
    shape = declared.legal_shape(value.shape, call.options)
    if shape != value.shape:
        value = with_shape(value, shape, call)
        call = call.with_argument(name, value)
    layout = declared.legal_layout(value.layout, written=written)
    return call if layout == value.layout else call.with_argument(name, with_layout(value, layout, call))
