"""Names what compiled kernels check and count. Each set of instruments is compiled and cached as its own variant."""

from __future__ import annotations

from collections.abc import Iterable

INSTRUMENTS = ("bounds", "unwritten", "conflicts", "races", "overflow", "counters")
"""In the order in which a variant's name lists them.

bounds      accesses outside of an argument's storage, or of its view
unwritten   loads of allocated memory that nobody wrote
conflicts   stores of different values to one element by two programs of a launch
races       as conflicts, and loads of what another program of the launch stores
overflow    offsets whose 32-bit arithmetic wrapped around
counters    branches, masks, loops and selects
"""

Instruments = tuple[str, ...]
PLAIN: Instruments = ("bounds",)


def ordered(names: Iterable[str]) -> Instruments:
    """The instruments in their fixed order, without repetition. ValueError for one that does not exist."""
    chosen = set(names)
    if unknown := chosen - set(INSTRUMENTS):
        raise ValueError(f"unknown instruments {sorted(unknown)}; known: {', '.join(INSTRUMENTS)}")
    if "races" in chosen:
        chosen.add("conflicts")
    return tuple(name for name in INSTRUMENTS if name in chosen)


def device_name(instruments: Instruments) -> str:
    """The device by which Triton's caches in memory know a variant."""
    return "cpu" if instruments == PLAIN else "cpu:" + "+".join(instruments)
