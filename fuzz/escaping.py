"""Makes text safe to show and to store: on one line, valid Unicode, without control characters, of bounded length."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from functools import lru_cache

MAX_TEXT = 4096
"""Characters of the longest text of a finding or an entry."""
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories that are escaped: controls, invisible formatting, halves of surrogate pairs, separators."""
UNUSUAL = re.compile(r"[^\x20-\x7e\n\r\t]")
"""Anything but what a program prints, and lays out, in ASCII."""


def printable(text: str) -> str:
    """The text on one line: line ends and tabs become spaces, what a terminal would obey becomes an escape.

    The result is valid UTF-8 without NUL, and stays as it is when this is called again.
    """
    if text.isprintable():
        return text
    return "".join(map(_escape_unsafe, " ".join(text.splitlines()).replace("\t", " ")))


def printable_lines(text: str) -> str:
    """The text with its line ends, each line printable."""
    return "\n".join(map(printable, text.split("\n")))


def printable_output(text: str) -> str:
    """What a program prints: ends of lines, returns and tabs stay, the rest that a terminal would obey is escaped."""
    return UNUSUAL.sub(lambda found: _escape_unsafe(found[0]), text)


def clean_text(text: str, most: int = MAX_TEXT) -> str:
    """The printable text, of at most `most` characters: what findings and entries may hold.

    A longer one is cut between two words, where a word ends in its second half.
    """
    shown = printable(text[: most + 1])
    if len(shown) <= most:
        return shown
    space = shown.rfind(" ", most // 2, most - 2)
    return shown[: space if space > 0 else most - 3] + " .."


def is_storable(text: str) -> bool:
    """Whether the text is valid Unicode without control characters, so that databases and pages can hold it."""
    return not {"Cc", "Cs"} & set(map(unicodedata.category, text))


def shell_quote(text: str) -> str:
    """One argument of a shell's command line, printable; it is no option, whatever it begins with."""
    text = f"./{text}" if text.startswith("-") else text
    if printable(text) == text:
        return shlex.quote(text)
    return f"$'{''.join(map(_shell_character, os.fsencode(text)))}'"


@lru_cache(1 << 12)
def _escape_unsafe(character: str) -> str:
    if unicodedata.category(character) not in UNSAFE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def _shell_character(byte: int) -> str:
    if not 32 <= byte < 127:
        return f"\\x{byte:02x}"
    return f"\\{byte:c}" if byte in b"\\'" else chr(byte)
