"""Resolves the `loc(...)` annotations of TTIR to source lines."""

from __future__ import annotations

import os
import re
from functools import lru_cache

from fuzz.backends.cpu.frontend.ir import SourceLocation

ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)$", re.MULTILINE)
FILE = re.compile(r'^"((?:[^"\\]|\\.)*)":([0-9]{1,9}):[0-9]+')
NAMED = re.compile(r'^"(?:[^"\\]|\\.)*"\((.*)\)$')
FUSED = re.compile(r"^fused[^\[]*\[(.*)\]")
UNKNOWN = SourceLocation("?", 0)
LIBRARY = os.sep + os.path.join("triton", "language") + os.sep
MAX_DEPTH = 128
"""Locations inside each other; what lies deeper is unknown."""
Found = tuple[SourceLocation | None, SourceLocation | None]
"""The innermost source line outside Triton's own library, and the innermost of all."""


@lru_cache(maxsize=1 << 12)
def line_of(file: str, line: str) -> Found:
    """What a file and a line say: specialisations of a kernel name the same ones."""
    location = SourceLocation(file, int(line))
    return None if LIBRARY in file else location, location


class SourceLocations:
    """Resolves location text to the innermost source line outside Triton's own library."""

    def __init__(self, text: str) -> None:
        self.aliases = dict(ALIAS.findall(text))
        self.resolved: dict[str, Found] = {}

    def resolve(self, text: str) -> SourceLocation:
        own, innermost = self.find(text.strip())
        return own or innermost or UNKNOWN

    def find(self, text: str, depth: int = 0) -> Found:
        """What the text says; each text is resolved once, and is unknown inside itself."""
        if depth > MAX_DEPTH:
            return None, None
        if text not in self.resolved:
            self.resolved[text] = None, None
            self.resolved[text] = self.find_in(text, depth + 1)
        return self.resolved[text]

    def find_in(self, text: str, depth: int) -> Found:
        if match := FILE.match(text):
            return line_of(match[1], match[2])
        own = innermost = None
        for part in self.parts(text):
            found = self.find(part.strip(), depth)
            own, innermost = own or found[0], innermost or found[1]
        return own, innermost

    def parts(self, text: str) -> list[str]:
        """The locations of which this one is made, from the innermost call outwards."""
        if text.startswith("#"):
            return [self.aliases.get(text[1:], "unknown")]
        if match := NAMED.match(text):
            return [match[1]]
        if text.startswith("callsite("):
            callee, _, caller = text[len("callsite(") : -1].partition(" at ")
            return [callee, caller]
        if match := FUSED.match(text):
            return match[1].split(", ")
        return []
