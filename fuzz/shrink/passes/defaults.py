"""Passes towards defaults: plain layouts, dtypes and options, all at once and one by one; then a smaller split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fuzz.model.case import Argument, Call, Case, Split, first_floating
from fuzz.model.edit import map_tensors, tensors_of, with_argument, with_dtype, with_layout, with_option, with_shape
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.target.shapes import fitting
from fuzz.target.spec import Target, ranks_of

Choice = TypeVar("Choice")


def plain_everything(case: Case, target: Target) -> Iterator[Case]:
    """Every argument and option at its default at once; cotangents have the dtype of the first floating argument."""

    def plain(call: Call, name: str, value: Argument) -> Argument:
        of_cotangents = target.defaults.get(first_floating(call.arguments), value.dtype)
        dtype = str(target.defaults.get(name, of_cotangents))
        return with_dtype(with_layout(value, CONTIGUOUS, call), dtype)

    plainer = map_tensors(case, plain)
    for index, call in enumerate(plainer.calls):
        options = {name: target.options[name].choices[0] for name in call.options}
        plainer = plainer.with_call(index, replace(call, options=options))
    yield plainer


def fewer_arguments(case: Case, target: Target) -> Iterator[Case]:
    """Every argument that may be None at None, then one of them."""
    optional = [name for name, declared in target.tensors.items() if declared.optional]
    without_all = case
    for index, call in enumerate(case.calls):
        for name in optional:
            if name in call.arguments:
                without_all = without_all.with_call(index, without_all.calls[index].without_argument(name))
                yield case.with_call(index, call.without_argument(name))
    yield without_all


def plain_shapes(case: Case, target: Target) -> Iterator[Case]:
    """Fewer dims of a run in all tensors of a call, then one tensor in an earlier shape of its declaration."""
    for index, call in enumerate(case.calls):
        ranks = ranks_of(call, target)
        for name, run in target.runs.items():
            for rank in range(run.least, ranks[name]):
                yield case.with_call(index, _with_ranks(call, target, {**ranks, name: rank}))
        for name, declared in target.tensors.items():
            if name in call.arguments:
                shapes = fitting(declared.shapes, declared.runs, ranks)
                for shape in shapes:
                    if shape != call.arguments[name].shape:
                        yield with_argument(case, index, name, with_shape(call.arguments[name], shape, call))


def _with_ranks(call: Call, target: Target, ranks: Mapping[str, int]) -> Call:
    """The call with these numbers of dims of each run; a tensor has the plain shape of those."""
    cotangents = {f"grad {name}": value for name, value in target.cotangents.items()}
    for name, value in call.tensors.items():
        declared = target.tensors.get(name) or cotangents[name]
        if declared.runs:
            call = call.with_argument(name, with_shape(value, fitting(declared.shapes, declared.runs, ranks)[0], call))
    return call


def plain_layouts(case: Case, target: Target) -> Iterator[Case]:
    """One argument's layout at its default, or simpler of its kind."""
    for index, name, value in tensors_of(case):
        for layout in simpler_layouts(value.layout, len(value.shape)):
            yield with_argument(case, index, name, with_layout(value, layout, case.calls[index]))


def later_layouts(case: Case, target: Target) -> Iterator[Case]:
    """One argument's layout moved to another one that is contiguous, so that equal cases end in one of them."""
    for index, name, value in tensors_of(case):
        call = case.calls[index]
        for other, plain in call.tensors.items():
            special = value.layout != CONTIGUOUS and plain.layout == CONTIGUOUS
            if special and len(value.shape) == len(plain.shape):
                moved = call.with_argument(name, with_layout(value, CONTIGUOUS, call))
                moved = moved.with_argument(other, with_layout(plain, value.layout, call))
                yield case.with_call(index, moved)


def plain_dtypes(case: Case, target: Target) -> Iterator[Case]:
    """One argument's dtype earlier in the target's list; the first floating one's with the cotangents', then alone."""
    for index, call in enumerate(case.calls):
        for name, value in call.arguments.items():
            for dtype in earlier(value.dtype, target.tensors[name].dtypes):
                plainer = with_argument(case, index, name, with_dtype(value, dtype))
                if name == first_floating(call.arguments) and call.cotangents:
                    yield with_cotangents(plainer, index, dtype)
                yield plainer


def with_cotangents(case: Case, index: int, dtype: str) -> Case:
    """The case with all cotangents of a call in a dtype."""
    for name, value in case.calls[index].cotangents.items():
        case = with_argument(case, index, f"grad {name}", with_dtype(value, dtype))
    return case


def plain_options(case: Case, target: Target) -> Iterator[Case]:
    """One option earlier in its list of choices."""
    for index, call in enumerate(case.calls):
        for name, value in call.options.items():
            for choice in earlier(value, target.options[name].choices):
                yield with_option(case, index, name, choice)


def earlier(value: Choice, choices: Sequence[Choice]) -> Sequence[Choice]:
    """The choices before a value; all of them where it is none, as a given input or an older entry may have it."""
    return choices[: choices.index(value)] if value in choices else choices


def smaller_split(case: Case, target: Target) -> Iterator[Case]:
    """No split, fewer neighbours, fewer and earlier rows."""
    split = case.split
    if split is None:
        return
    yield replace(case, split=None)
    smaller_splits = [
        Split(0, 1),
        Split(split.start, 1),
        Split(split.start, split.length),
        replace(split, before=0, after=split.before + split.after),
        replace(split, after=0),
        replace(split, before=0),
        replace(split, before=split.before // 2, after=split.after // 2),
        replace(split, before=max(split.before - 1, 0)),
        replace(split, after=max(split.after - 1, 0)),
        replace(split, length=max(split.length // 2, 1)),
        replace(split, length=max(split.length - 1, 1)),
        replace(split, start=split.start // 2),
        replace(split, start=max(split.start - 1, 0)),
        replace(split, start=0),
    ]
    for smaller in smaller_splits:
        if smaller != split:
            yield replace(case, split=smaller)


def simpler_layouts(layout: Layout, rank: int) -> Iterator[Layout]:
    """The default, then the simplest of every kind, then layouts of the same kind with smaller numbers."""
    if layout == CONTIGUOUS:
        return
    yield CONTIGUOUS
    yield from (Layout(step=2), Layout(offset=1), Layout(pad=1))
    if rank == 2:
        yield from (Layout(expand=(1,)), Layout(expand=(0,)), Layout(order=(1, 0)))
    for field, least in (("offset", 0), ("pad", 0), ("step", 1), ("reach", 0)):
        value = getattr(layout, field)
        for smaller in sorted({least, least + 1, value - 1}):
            if least <= smaller < value:
                yield replace(layout, **{field: smaller})
    for index in range(len(layout.expand)):
        yield replace(layout, expand=layout.expand[:index] + layout.expand[index + 1 :])
