"""Describes the places in a kernel that are checked or counted, for the launcher, which reads reports and counters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CheckSite:
    """One load, store, atomic or assertion: its line, its tensor's shape, the parameters whose memory it may touch (-1:
    any that is known), and the bytes of one element."""

    kind: str
    file: str
    line: int
    shape: tuple[int, ...]
    arguments: tuple[int, ...]
    size: int
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CheckSite:
        return cls(**data | {"shape": tuple(data["shape"]), "arguments": tuple(data["arguments"])})


@dataclass(frozen=True, slots=True)
class CounterSite:
    """One branch, loop, select or mask that is counted, with a counter for each of its outcomes."""

    kind: str
    file: str
    line: int
    outcomes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CounterSite:
        return cls(**data | {"outcomes": tuple(data["outcomes"])})
