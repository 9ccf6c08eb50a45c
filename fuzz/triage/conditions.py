"""Names what a shrunk case needs to show its finding: what shrinking could not set to its default."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.model.case import Case
from fuzz.model.layout import CONTIGUOUS
from fuzz.target.spec import Target

LAUNCH_OPTIONS = {
    "config": "autotuner configuration",
    "multiprocessor_count": "a device whose multiprocessor_count is",
    "max_shared_mem": "a device whose max_shared_mem is",
}


def describe_triggers(case: Case, target: Target) -> tuple[str, ...]:
    """What is off its default in the least case, in words. Shrinking tried the default of each."""
    return tuple(dict.fromkeys(_describe_departures(case, target)))


def non_defaults(case: Case, target: Target) -> frozenset[str]:
    """The arguments and options that are off their default in any call: of the least case, what its cause needs."""
    names = set()
    for call in case.calls:
        for name, value in call.arguments.items():
            names |= {f"{name} dtype"} if value.dtype != target.defaults.get(name, value.dtype) else set()
        names |= {f"{name} layout" for name, value in call.tensors.items() if value.layout != CONTIGUOUS}
        names |= {name for name, option in call.options.items() if option != target.defaults.get(name, option)}
        names |= {f"launch {name}" for name in (call.launch.as_dict() if call.launch else ())}
    return frozenset(names)


def _describe_departures(case: Case, target: Target) -> Iterator[str]:
    if len(case.calls) > 1:
        yield f"only after {'another call' if len(case.calls) == 2 else f'{len(case.calls) - 1} other calls'}"
    for name, value in case.last.tensors.items():
        default = target.defaults.get(name)
        if value.dtype != default and default is not None:
            yield f"only with {name} in {value.dtype}"
        if value.layout != CONTIGUOUS:
            yield f"only where {name} is {value.layout.kind}"
    for name, option in case.last.options.items():
        if option != target.defaults.get(name):
            yield f"only with {name}={option!r}"
    for name, number in (case.last.launch.as_dict() if case.last.launch else {}).items():
        yield f"only with {LAUNCH_OPTIONS[name]} {number}"
