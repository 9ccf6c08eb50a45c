"""Splits TTIR text into tokens."""

from __future__ import annotations

import re
from typing import NamedTuple

from fuzz.backends.cpu.errors import MalformedIR

SPACE = re.compile(r"\s*+(?://[^\n]*+\s*+)*+")
# Kinds that are frequent come first, but words after types, which begin like them.
PATTERN = re.compile(
    SPACE.pattern
    + r"""
    (?:
      (?P<punctuation>[()<>{}\[\]:,=*?|+])
    | (?P<value>%[\w$.-]+(?:\#\d+)?)
    | (?P<alias>\#[\w.]+)
    | (?P<type>(?:tensor|!tt\.ptr)<[^<>]*+(?:<[^<>]*+(?:<[^<>]*+>[^<>]*+)*+>[^<>]*+)*+>|![\w.]+(?:<[^>]*>+)?)
    | (?P<word>[A-Za-z_][\w.$]*)
    | (?P<number>-?(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?))
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<arrow>->)
    | (?P<symbol>@(?:"[^"]*"|[\w$.-]+))
    | (?P<block>\^\w+)
    | (?P<end>\Z)
    )
    """,
    re.VERBOSE,
)
ALIAS_LINE = re.compile(r"^#\w+ = .*$", re.MULTILINE)


MAX_DIGITS = 300
"""Digits of the longest whole number."""


def parse_integer(text: str) -> int:
    """A whole number: decimal, also with zeros before it, or hexadecimal with `0x`."""
    if not re.fullmatch(rf"-?(0x[0-9A-Fa-f]{{1,{MAX_DIGITS}}}|[0-9]{{1,{MAX_DIGITS}}})", text):
        raise MalformedIR(f"{text[:MAX_DIGITS]!r} is not a whole number")
    return int(text, 16 if "0x" in text else 10)


def parse_number(text: str) -> int | float:
    """A number as an attribute holds it; one in hexadecimal is whole."""
    is_decimal = "0x" not in text and re.search("[.eE]", text) is not None
    return float(text) if is_decimal else parse_integer(text)


class Token(NamedTuple):
    """A piece of the text, with the offsets of its start and end there."""

    kind: str
    text: str
    start: int
    end: int


class Tokens:
    """A cursor over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = ALIAS_LINE.sub(lambda match: " " * len(match[0]), text)
        self.all = self.split()
        self.position = 0

    def split(self) -> list[Token]:
        tokens: list[Token] = []
        at, make = 0, tuple.__new__
        for match in iter(PATTERN.scanner(self.text).match, None):  # type: ignore[attr-defined]
            kind = match.lastgroup
            start, at = match.span(kind)
            # As Token(..) does, in half the time.
            tokens.append(make(Token, (kind, match[kind], start, at)))
            if kind == "end":
                return tokens
        raise MalformedIR(f"unknown character in TTIR: {self.line_at(self.skip_space(at))!r}")

    def skip_space(self, offset: int) -> int:
        """Where the next token starts."""
        space = SPACE.match(self.text, offset)
        return space.end() if space else offset

    def line_at(self, offset: int) -> str:
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        return self.text[start : len(self.text) if end < 0 else end].strip()

    @property
    def next(self) -> Token:
        return self.all[self.position]

    def peek(self, ahead: int = 1) -> Token:
        return self.all[min(self.position + ahead, len(self.all) - 1)]

    def take(self) -> Token:
        token = self.all[self.position]
        if token.kind == "end":
            raise self.malformed("the text ends")
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        """Steps over the token if it is this one."""
        token = self.all[self.position]
        if token.text != text or token.kind == "string":
            return False
        self.position += 1
        return True

    def expect(self, text: str) -> Token:
        if self.next.text != text:
            raise self.malformed(f"expected {text!r}")
        return self.take()

    def expect_kind(self, kind: str) -> Token:
        if self.next.kind != kind:
            raise self.malformed(f"expected a {kind}")
        return self.take()

    def expect_end(self) -> None:
        if self.next.kind != "end":
            raise self.malformed("expected the end")

    def malformed(self, why: str) -> MalformedIR:
        return MalformedIR(f"{why} at {self.next.text!r} in TTIR line: {self.line_at(self.next.start)}")

    def balanced(self, opening: str, closing: str) -> str:
        """The text between the next pair of brackets, nested ones included."""
        start = self.expect(opening).end
        depth = 1
        while depth:
            token = self.take()
            depth += (token.text == opening) - (token.text == closing)
        return self.text[start : self.all[self.position - 1].start]
