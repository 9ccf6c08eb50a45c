"""Assertions inside kernels that did not hold."""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """One `device_assert` (kind `assert`) or `assume` that was false in one lane of one program."""

    kernel: str
    file: str
    line: int
    kind: str
    message: str
    program: tuple[int, int, int]
    lane: tuple[int, ...]

    def __str__(self) -> str:
        what = "device_assert failed" if self.kind == "assert" else "tl.assume of what is false"
        text = f"{what} in kernel {self.kernel} at {self.file}:{self.line}, program {self.program}, lane {self.lane}"
        details = [self.message, linecache.getline(self.file, self.line).strip()]
        return ": ".join([text, *(detail for detail in details if detail)])


class DeviceAssertion(RuntimeError):
    """A kernel's assertion failed. As on a GPU nothing after it ran; also inside `observe()`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.failure = failure
