"""Picks C identifiers for SSA values: the kernel's own variable names where they are free."""

from __future__ import annotations

import re

from fuzz.backends.cpu.codegen.prelude import LIBDEVICE, PRELUDE

KEYWORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof
bool true false nullptr constexpr main linux unix i386 near far errno y0 y1 yn j0 j1 jn gamma signgam""".split()
WORD = re.compile(r"[A-Za-z_]\w*")
# Locals of the prelude are short; what it defines at top level is not.
PRELUDE_NAMES = frozenset(word for word in WORD.findall(PRELUDE + LIBDEVICE) if len(word) > 2) | {"u8", "i8", "i1"}
# Names that the emitted text uses for itself.
LOCALS = set("i j k p z outer inner scale row right_row half step run arena packed launch release program Slot".split())
LOCALS |= set("slow first last address value bits before after tag".split())
LOCALS |= {f"{side}{axis}" for side in ("low", "high") for axis in range(32)}
RESERVED = frozenset(KEYWORDS) | PRELUDE_NAMES | {f"d{axis}" for axis in range(32)} | LOCALS


class Identifiers:
    """Picks identifiers that are used nowhere else in the function."""

    def __init__(self) -> None:
        self.taken: set[str] = set(RESERVED)

    def pick(self, wanted: str) -> str:
        base = re.sub(r"\W", "_", wanted)
        if not base or not base[0].isalpha():
            base = f"v{base}"
        name, count = base, 1
        while name in self.taken or f"{name}_all" in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken |= {name, f"{name}_all"}
        return name
