"""Places in a kernel that touch memory or are counted. The launcher reads reports from C with their help."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CheckSite:
    """One load, store, atomic or assertion: where it is, its tensor's shape, and the parameters it may address."""

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
    """One place that is counted, with a counter for each of its outcomes."""

    kind: str
    file: str
    line: int
    outcomes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CounterSite:
        return cls(**data | {"outcomes": tuple(data["outcomes"])})
