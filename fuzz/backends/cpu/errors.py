"""The ways in which compiling or running a kernel on the CPU is refused."""

from __future__ import annotations


class UnsupportedOperation(NotImplementedError):
    """A kernel uses an operation that this backend does not translate; it is never approximated."""

    def __init__(self, what: str, kernel: str = "?", where: str = "?") -> None:
        super().__init__(f"{what} is not supported by the cpu backend (kernel {kernel}, {where})")
        self.what = what
        self.located = where != "?"


class NoCompiler(RuntimeError):
    """No C compiler was found."""


class CompilerFailed(RuntimeError):
    """The machine's C compiler refused the C of a kernel: a defect of this backend or of the machine."""


class CompilerTimeout(RuntimeError):
    """The machine's C compiler did not finish in time."""


class MalformedIR(RuntimeError):
    """The text of a kernel's TTIR is not what Triton prints: the parser stops instead of guessing."""
