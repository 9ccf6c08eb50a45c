"""Says in words what a shrunk case needs to show its finding, as far as it was tried with and without."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fuzz.model.case import Case
from fuzz.model.layout import CONTIGUOUS
from fuzz.shrink.passes import USUAL, fill
from fuzz.target.legal import make_legal
from fuzz.target.spec import Target
from fuzz.triage.triggers import (
    Agrees,
    Edit,
    Prefetch,
    Shows,
    drop_launch_option,
    keep_last_call,
    leave_out,
    no_prefetch,
    set_contiguous,
    set_dtype,
    set_option,
)

MAX_CHOICES = 4
"""Other choices of an option that are tried."""

LAUNCH_OPTIONS = {
    "config": "autotuner configuration",
    "multiprocessor_count": "a device whose multiprocessor_count is",
    "max_shared_mem": "a device whose max_shared_mem is",
}


Alternative = tuple[str, Edit]


def never_shows(case: Case) -> bool:
    """The answer where no other values are tried."""
    return False


def describe_conditions(
    case: Case,
    target: Target,
    agrees: Agrees,
    *,
    shows: Shows = never_shows,
    unshrunk: Case | None = None,
    prefetch: Prefetch = no_prefetch,
) -> tuple[str, ...]:
    """What is off its default in the least case, in words: `only` where every alternative was tried, and agrees.

    The least case has the values that show the bug with what it has off its default. An alternative may need others:
    it agrees only where none that `shows` is found among usual ones and those of the unshrunk case.
    """
    sentences, departures = [], list(_departures(case, target))
    prefetch(change(case) for _, alternatives, _ in departures for _, change in alternatives)
    for present, alternatives, is_all in departures:
        agreeing = [
            name
            for name, change in alternatives
            if agrees(change(case)) and not any(map(shows, _with_other_values(change, case, unshrunk, target)))
        ]
        if is_all and len(agreeing) == len(alternatives):
            sentences.append(f"only {present}")
        elif agreeing:
            sentences.append(f"{present}, not {' or '.join(agreeing)}")
    return tuple(dict.fromkeys(sentences))


def _with_other_values(change: Edit, case: Case, unshrunk: Case | None, target: Target) -> Iterator[Case]:
    """A least case and its unshrunk one changed in one way, that one first, then both with usual values."""
    if unshrunk is not None and unshrunk.key != case.key:
        yield change(unshrunk)
        yield make_legal(fill(change(unshrunk), USUAL[0]), target)
    for values in USUAL:
        yield make_legal(fill(change(case), values), target)


def non_defaults(case: Case, target: Target) -> frozenset[str]:
    """The arguments and options that are off their default in any call: of the least case, what its cause needs."""
    names = set()
    for call in case.calls:
        for name, value in call.arguments.items():
            names |= {f"{name} dtype"} if value.dtype != target.defaults.get(name, value.dtype) else set()
        names |= {f"{name} given" for name in call.arguments if target.tensors[name].optional}
        names |= {f"{name} layout" for name, value in call.tensors.items() if value.layout != CONTIGUOUS}
        names |= {name for name, option in call.options.items() if option != target.defaults.get(name, option)}
        names |= {f"launch {name}" for name in (call.launch.as_dict() if call.launch else ())}
    return frozenset(names)


def _departures(case: Case, target: Target) -> Iterator[tuple[str, list[Alternative], bool]]:
    """(what is off its default, alternatives to it, whether these are all that there are)."""
    tried: list[Alternative]
    if len(case.calls) > 1:
        yield _name_call(case), [("alone", keep_last_call)], True
    for name, value in case.last.tensors.items():
        declared = target.tensors.get(name)
        if declared and declared.optional:
            yield f"where {name} is given", [("where it is None", partial(leave_out, name))], True
        if declared and value.dtype != declared.dtypes[0]:
            dtypes = [dtype for dtype in declared.dtypes if dtype != value.dtype]
            tried = [(f"in {dtype}", partial(set_dtype, target, name, dtype)) for dtype in dtypes]
            yield f"with {name} in {value.dtype}", tried, True
        if value.layout != CONTIGUOUS:
            tried = [("where it is contiguous", partial(set_contiguous, target, name))]
            yield f"where {name} is {value.layout.kind}", tried, False
    for name, option in case.last.options.items():
        choices = target.options[name].choices
        if option != choices[0]:
            others = [choice for choice in choices if choice != option]
            tried = [(f"with {name}={one!r}", partial(set_option, target, name, one)) for one in others[:MAX_CHOICES]]
            yield f"with {name}={option!r}", tried, len(others) <= MAX_CHOICES
    for name, number in (case.last.launch.as_dict() if case.last.launch else {}).items():
        tried = [("without", partial(drop_launch_option, name))]
        yield f"with {LAUNCH_OPTIONS[name]} {number}", tried, False


def _name_call(case: Case) -> str:
    """The last call, by those before it."""
    count = len(case.calls)
    if all(call == case.last for call in case.calls):
        return f"in call {count} of a process, of {count} equal ones"
    return "after another call" if count == 2 else f"after {count - 1} other calls"
