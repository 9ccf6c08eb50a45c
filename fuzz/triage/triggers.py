"""Finds the triggers of a bug: conditions on a case, each made false by one edit, without which the bug does not show.

Candidates are the simplifications that shrinking could not make: defaults of what is off its default in the least case,
other sizes of its dims, and plainer values of its tensors. A candidate is a trigger where its edit makes both the least
case and the unshrunk one agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain

import numpy as np

from fuzz.model import edit
from fuzz.model.case import Argument, Call, Case, Scalar
from fuzz.model.dims import Size
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import exact
from fuzz.shrink.passes.dims import SMALL_SIZES, resize
from fuzz.shrink.passes.parts import find_ragged, resize_parts
from fuzz.target.indices import IndexArgument
from fuzz.target.legal import make_legal
from fuzz.target.spec import Target

Edit = Callable[[Case], Case]
Agrees = Callable[[Case], bool]
"""Whether a case runs, and does not show a bug."""
Shows = Callable[[Case], bool]
"""Whether a case shows a bug; one that shows another bug instead may neither agree nor show this one."""
Prefetch = Callable[[Iterable[Case]], None]
"""Is given the cases of which it may be asked next whether they agree, to try several in parallel."""
MAX_SIZE, MAX_ELEMENTS = 256, 1 << 16
"""The largest size of a dim, and the elements of the largest case, that are tried in search of triggers."""
MAX_EDITED = 1 << 18
"""Stored elements of the largest tensor whose values are edited."""
ORDINARY = 0.75
"""A number that shows what is wrong with a factor, as 1 does not, in every dtype."""
ValueEdit = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Trigger:
    """A condition on a case, which holds where `edit` changes the case and `shows_like` does not deny it.

    In what `edit` returns it is false. `shows_like` says whether the least case still shows the bug when it becomes
    like another case in this respect, `is_of_values` that the edit changes numbers of a tensor only.
    """

    name: str
    edit: Edit
    shows_like: Callable[[Case], bool] = lambda case: True
    is_of_values: bool = False

    def changes(self, case: Case) -> bool:
        """Whether there is something to edit in a case; where there is not, the condition is false in it."""
        return self.edit(case).key != case.key

    def holds(self, case: Case) -> bool:
        return self.changes(case) and self.shows_like(case)

    def is_needed(self, case: Case, agrees: Agrees) -> bool:
        """Whether the condition holds in a case that shows a bug, which agrees without it."""
        return self.holds(case) and agrees(self.edit(case))


def all_hold(triggers: Sequence[Trigger], case: Case) -> bool:
    """Whether a case may show the bug with these triggers; False where none is known."""
    return bool(triggers) and all(trigger.holds(case) for trigger in triggers)


def no_prefetch(cases: Iterable[Case]) -> None:
    """Draws no case: each is tried when it is asked about."""


def find_triggers(
    least: Case,
    unshrunk: Case,
    target: Target,
    agrees: Agrees,
    shows: Shows,
    prefetch: Prefetch = no_prefetch,
    *,
    costly: bool,
) -> tuple[Trigger, ...]:
    """The triggers of the bug that two cases show. Where a run is `costly`, only departures from defaults are tried.

    Of a bug that needs earlier calls that is the only trigger that is looked for: each try takes a new process.
    """
    if len(least.calls) > 1:
        found = [EARLIER_CALLS] if EARLIER_CALLS.is_needed(least, agrees) else []
    else:
        prefetch(_edited(least, target, costly=costly))
        found = [trigger for trigger in departures(least, target, shows) if trigger.is_needed(least, agrees)]
        if not costly:
            for dim in target.sizes:
                candidates = _size_triggers(least, unshrunk, target, dim, agrees, shows)
                found += [one for one in candidates if one.is_needed(unshrunk, agrees)][:1]
            found += [one for name in least.last.tensors for one in _value_triggers(least, name, target, agrees)]
    if unshrunk.key != least.key:
        prefetch(edited for trigger in found if (edited := trigger.edit(unshrunk)).key != unshrunk.key)
        found = [trigger for trigger in found if trigger.is_needed(unshrunk, agrees)]
    return tuple(found)


def _edited(least: Case, target: Target, *, costly: bool) -> Iterator[Case]:
    """A least case of one call as each candidate edits it, where that changes it."""
    edits: Iterator[Edit] = (trigger.edit for trigger in departures(least, target))
    if not costly:
        sizes = (
            partial(with_size, target, dim.name, (size,))
            for dim in target.sizes
            for size in _sizes_to_try(least, target, dim)
        )
        values = (
            partial(edit_values, name, change)
            for name in least.last.tensors
            for changes in _value_edits(least, name, target).values()
            for change in changes
        )
        edits = chain(edits, sizes, values)
    yield from (case for case in (change(least) for change in edits) if case.key != least.key)


def departures(case: Case, target: Target, shows: Shows = lambda case: True) -> Iterator[Trigger]:
    """One candidate for everything that is off its default in a case.

    An option does not hold in cases with a third choice, with which this case does not show the bug either.
    """
    if len(case.calls) > 1:
        yield EARLIER_CALLS
    for name in case.last.arguments:
        if target.tensors[name].optional:
            yield Trigger(f"{name} given", partial(leave_out, name))
    for name, value in case.last.tensors.items():
        default = target.defaults.get(name)
        if default is not None and value.dtype != default:
            yield Trigger(f"{name} dtype", partial(set_dtype, target, name, str(default)))
        if value.layout != CONTIGUOUS:
            yield Trigger(f"{name} layout", partial(set_contiguous, target, name))
    for name, option in case.last.options.items():
        if option != (default := target.options[name].choices[0]):
            edited = partial(set_option, target, name, default)
            yield Trigger(name, edited, _shows_with_option_of(case, target, name, shows))
    for name in case.last.launch.as_dict() if case.last.launch else ():
        yield Trigger(f"launch {name}", partial(drop_launch_option, name))


def keep_last_call(case: Case) -> Case:
    """The case with its last call alone."""
    return case if len(case.calls) == 1 else replace(case, calls=(case.last,))


EARLIER_CALLS = Trigger("earlier calls", keep_last_call)


def leave_out(name: str, case: Case) -> Case:
    """The case with an argument at None in its last call."""
    return case.with_call(len(case.calls) - 1, case.last.without_argument(name))


def set_dtype(target: Target, name: str, dtype: str, case: Case) -> Case:
    """The case with an argument in another dtype."""
    return _edit_argument(case, target, name, lambda call, value: edit.with_dtype(value, dtype))


def set_contiguous(target: Target, name: str, case: Case) -> Case:
    """The case with a tensor made contiguous."""
    return _edit_argument(case, target, name, lambda call, value: edit.with_layout(value, CONTIGUOUS, call))


def set_option(target: Target, name: str, choice: Scalar, case: Case) -> Case:
    """The case with another choice of an option."""
    for index in range(len(case.calls)):
        case = edit.with_option(case, index, name, choice)
    return make_legal(case, target)


def _shows_with_option_of(least: Case, target: Target, name: str, shows: Shows) -> Shows:
    """Says whether a least case still shows its bug with another case's choice of an option."""
    answers = {repr(least.last.options[name]): True}

    def shows_like(other: Case) -> bool:
        choice = other.last.options[name]
        if repr(choice) not in answers:
            answers[repr(choice)] = shows(set_option(target, name, choice, least))
        return answers[repr(choice)]

    return shows_like


def drop_launch_option(name: str, case: Case) -> Case:
    """The case without one of its launch options."""
    launch = case.last.launch
    return edit.with_launch(case, replace(launch, **{name: None})) if launch else case


def _edit_argument(case: Case, target: Target, name: str, change: Callable[[Call, Argument], Argument]) -> Case:
    edited = edit.map_tensors(case, lambda call, other, value: change(call, value) if other == name else value)
    return make_legal(edited, target) if edited.key != case.key else case


def _size_triggers(
    least: Case, unshrunk: Case, target: Target, dim: Size, agrees: Agrees, shows: Shows
) -> Iterator[Trigger]:
    """The candidates that other sizes of a dim agree: the largest ones, as powers of two may, and all smaller ones.

    Smaller sizes that agree say nothing where all of them are tiny: sums of one or two terms hide most mistakes. Nor
    does a larger one: what fills it beside the values of the least case may hide the mistake.
    """
    own = max(_sizes_of(least, target, dim.name))
    answers = {size: agrees(with_size(target, dim.name, (size,), least)) for size in _sizes_to_try(least, target, dim)}
    disagreeing = [own, *(size for size, agreed in answers.items() if not agreed)]
    larger = [size for size, agreed in answers.items() if agreed and size > max(disagreeing)]
    smaller = [size for size in answers if size < own]
    if len(larger) > 1:

        @cache
        def shows_at(size: int) -> bool:
            resized = (with_size(target, dim.name, (size,), case) for case in (least, unshrunk))
            return size == own or any(shows(case) for case in resized)

        edited = partial(with_size, target, dim.name, tuple(larger))
        yield Trigger(dim.name, edited, lambda case: any(map(shows_at, _sizes_of(case, target, dim.name))))
    if own > SMALL_SIZES and smaller and all(answers[size] for size in smaller):
        yield Trigger(dim.name, partial(limit_size, target, dim.name, max(smaller)))


def _sizes_to_try(least: Case, target: Target, dim: Size) -> list[int]:
    own, lowest = max(_sizes_of(least, target, dim.name)), dim.least
    powers = (1 << power for power in range(MAX_SIZE.bit_length()))
    sizes = {lowest, dim.clamp(own - 1), *(power for power in powers if dim.clamp(power) == power)}
    fits = sorted(sizes - {own})
    return [size for size in fits if with_size(target, dim.name, (size,), least).elements() <= MAX_ELEMENTS]


def limit_size(target: Target, name: str, most: int, case: Case) -> Case:
    """The case with a dim of at most this size."""
    return _change_sizes(target, name, (lambda size: min(size, most),), case)


def with_size(target: Target, name: str, sizes: Sequence[int], case: Case) -> Case:
    """The case with a dim of the nearest of these sizes.

    Parts that divide it, where these were too many rows, have no larger sizes, or are empty as before.
    """

    def nearest(own: int) -> int:
        return min(sizes, key=lambda size: abs(size - own))

    def no_larger(own: int) -> int:
        return max((size for size in sizes if size <= own), default=min(sizes))

    return _change_sizes(target, name, (nearest, no_larger, lambda own: own and no_larger(own)), case)


def _change_sizes(target: Target, name: str, changes: Sequence[Callable[[int], int]], case: Case) -> Case:
    """The case with another size of a dim in each call; where parts divide the dim, each of them has another size.

    The sizes are those of the first change by which the parts have as many rows as there may be.
    """
    change, divided = changes[0], set[int]()
    for ragged in find_ragged(case, target):
        if ragged.rows.name == name:
            resized = (
                resize_parts(case, target, ragged, [one(length) for length in ragged.lengths]) for one in changes
            )
            case = next((one for one in resized if one is not case), case)
            divided.add(ragged.call)
    for index, call in enumerate(case.calls):
        if index not in divided and change(call.dims[name]) != call.dims[name]:
            case = resize(case, target, index, {**call.dims, name: change(call.dims[name])})
    return make_legal(case, target)


def _sizes_of(case: Case, target: Target, name: str) -> list[int]:
    """The size of a dim in the last call; those of all parts where parts divide it."""
    last = len(case.calls) - 1
    divided = [one for one in find_ragged(case, target) if (one.call, one.rows.name) == (last, name)]
    return [length for one in divided for length in one.lengths] or [case.last.dims[name]]


def _value_triggers(least: Case, name: str, target: Target, agrees: Agrees) -> Iterator[Trigger]:
    """The first candidate, nearest to the values as they are, of each family of edits of a tensor's values."""
    for what, edits in _value_edits(least, name, target).items():
        triggers = (
            Trigger(f"{name} {what}", partial(edit_values, name, change), is_of_values=True) for change in edits
        )
        yield from (one for one in [next((t for t in triggers if t.is_needed(least, agrees)), None)] if one)


def _value_edits(least: Case, name: str, target: Target) -> Mapping[str, Sequence[ValueEdit]]:
    """Of numbers all families of edits; of indices the one without the sentinel that the case's options make legal."""
    if least.last.tensors[name].is_float:
        return VALUE_EDITS
    declared = target.tensors.get(name)
    sentinel = declared.legal_sentinel(least.last.options) if isinstance(declared, IndexArgument) else None
    return {} if sentinel is None else {"sentinel": (partial(_without_sentinel, sentinel),)}


def edit_values(name: str, change: ValueEdit, case: Case) -> Case:
    """The case with the values of a tensor changed."""

    def edited(call: Call, other: str, value: Argument) -> Argument:
        if other != name or np.prod(value.stored_shape(call.dims)) > MAX_EDITED:
            return value
        kind = named_dtype(value.dtype)
        numbers = from_bits(value.bits(call.dims), kind)
        changed = change(numbers)
        if np.array_equal(changed, numbers, equal_nan=True):
            return value
        return replace(value, values=exact(to_bits(changed, kind), kind))

    return edit.map_tensors(case, edited)


def _limited(limit: float, numbers: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(numbers, -limit, limit))


def _raised(power: int, numbers: np.ndarray) -> np.ndarray:
    small = (np.abs(numbers) < 2.0**power) & (numbers != 0)
    return np.where(small, np.copysign(2.0**power, numbers), numbers)


def _without_sentinel(sentinel: int, numbers: np.ndarray) -> np.ndarray:
    return np.where(numbers == sentinel, 0, numbers)


def _rounded(numbers: np.ndarray) -> np.ndarray:
    short = named_dtype("bfloat16")
    return np.asarray(from_bits(to_bits(numbers, short), short))


VALUE_EDITS: dict[str, tuple[ValueEdit, ...]] = {
    "not finite": (lambda numbers: np.where(np.isfinite(numbers), numbers, ORDINARY),),
    "large": tuple(
        partial(_limited, limit) for limit in (*(2.0**power for power in (100, 64, 16, 8, 6, 4, 2, 1)), ORDINARY)
    ),
    "small": tuple(partial(_raised, power) for power in (-126, -64, -20, -10, -5, -2)),
    "negative": (np.abs,),
    "positive": (lambda numbers: -np.abs(numbers),),
    "zero": (lambda numbers: np.where(numbers == 0, ORDINARY, numbers),),
    "long": (_rounded,),
}
"""Edits of a tensor's values by the property of which they rid it, the one that changes least first."""
