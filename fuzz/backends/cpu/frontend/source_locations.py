"""Resolves the `loc(...)` annotations of TTIR to source lines."""

from __future__ import annotations

import os
import re

from fuzz.backends.cpu.frontend.ir import Location

ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)$", re.MULTILINE)
FILE = re.compile(r'^"((?:[^"\\]|\\.)*)":(\d+):\d+')
NAMED = re.compile(r'^"(?:[^"\\]|\\.)*"\((.*)\)$')
UNKNOWN = Location("?", 0)
LIBRARY = os.sep + os.path.join("triton", "language") + os.sep


class Locations:
    """Resolves location text to the innermost source line outside Triton's own library."""

    def __init__(self, text: str) -> None:
        self.aliases = dict(ALIAS.findall(text))
        self.resolved: dict[str, Location] = {}

    def resolve(self, text: str) -> Location:
        if text not in self.resolved:
            chain = self.chain(text)
            own = [location for location in chain if LIBRARY not in location.file]
            self.resolved[text] = (own or chain or [UNKNOWN])[0]
        return self.resolved[text]

    def chain(self, text: str) -> list[Location]:
        """Source lines from the innermost call outwards."""
        text = text.strip()
        if text.startswith("#"):
            return self.chain(self.aliases.get(text[1:], "unknown"))
        if match := FILE.match(text):
            return [Location(match[1], int(match[2]))]
        if match := NAMED.match(text):
            return self.chain(match[1])
        if text.startswith("callsite("):
            callee, _, caller = text[len("callsite(") : -1].partition(" at ")
            return self.chain(callee) + self.chain(caller)
        if text.startswith("fused"):
            parts = text[text.index("[") + 1 : text.rindex("]")].split(", ")
            return [location for part in parts for location in self.chain(part)]
        return []
