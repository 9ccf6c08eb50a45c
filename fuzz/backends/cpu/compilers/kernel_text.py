"""The C of a kernel, read only where it has to be compiled: machine code is kept under the digest of what it is of."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

from fuzz.backends.cpu.errors import CompilerFailed


class KernelText:
    """C by its digest and its length in characters, and the file that holds it."""

    def __init__(self, digest: str, characters: int, path: str) -> None:
        self.digest, self.characters, self._path = digest, characters, path

    @classmethod
    def of(cls, text: str) -> KernelText:
        """C that is in no file."""
        known = cls(digest_of(text), len(text), "")
        known.text = text
        return known

    @cached_property
    def text(self) -> str:
        """The C itself. OSError where its file cannot be read, CompilerFailed where it holds another text."""
        text = Path(self._path).read_text(encoding="utf-8")
        if digest_of(text) != self.digest:
            raise CompilerFailed(f"{self._path} does not hold the C that was written to it")
        return text


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
