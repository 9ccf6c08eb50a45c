"""Reads a strict subset of YAML: from a file's bytes to mappings, lists and text, and to what a field must be.

Every function raises CorpusError in one line for what is not as it should be.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import BaseConstructor

from fuzz.errors import CorpusError

FORMAT, GRADED_FORMAT = "fuzz-case/1", "fuzz-case/2"
"""The format of an entry, and of one with a grade, which versions that know no grades must refuse."""
UNKNOWN = "unknown"
"""Stands for the digest of what is not kept."""
LARGEST_FILE = 1 << 23
"""Bytes of the largest file that is read, entries aside."""
LARGEST_CASE = 1 << 25
"""Bytes of the hex words of the largest case that an entry is written of."""
LARGEST_ENTRY = 2 * LARGEST_CASE + LARGEST_FILE
"""Bytes of the largest entry that is read: a typical case may stand beside the least one."""
DEEPEST = 12
"""Mappings and lists inside each other."""
LARGEST_NUMBER = 1 << 53
"""The largest size, index or count: databases, JSON and float64 hold it exactly."""
MAX_VALUES = 1 << 16
"""Keys, texts, lists and mappings in one file."""
SURROGATE = re.compile(r"\\(?:(u[dD][89a-fA-F])|.)")
"""An escape in quotes; halves of surrogate pairs, which older versions wrote, stay as they are spelt."""
LONGEST_QUOTE = 60
"""Characters of a wrong text that a message repeats."""


class _Strict(Composer):
    """Makes tags, anchors, aliases, repeated keys, deep nesting and many values errors of a loader of yaml."""

    depth = values = 0

    def compose_node(self: Any, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        self.values += 1
        if self.values > MAX_VALUES:
            raise CorpusError(f"more than {MAX_VALUES} values")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise CorpusError("anchors and aliases are not allowed")
        if getattr(event, "tag", None):
            raise CorpusError(f"tag {shorten(event.tag)} is not allowed")
        if self.depth > DEEPEST:
            raise CorpusError(f"nested more than {DEEPEST} deep")
        self.depth += 1
        node = Composer.compose_node(self, parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self: Any, node: Any, deep: bool = False) -> dict[Any, Any]:
        known: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise CorpusError("a key is not plain text")
            if key.value in known:
                raise CorpusError(f"key {shorten(key.value)} is repeated")
            known.add(key.value)
        return BaseConstructor.construct_mapping(self, node, deep)


# libyaml reads a text in a tenth of the time, and finds an error at its end as fast.
_SAFE, _BASE = (yaml.CSafeLoader, yaml.CBaseLoader) if yaml.__with_libyaml__ else (yaml.SafeLoader, yaml.BaseLoader)


class TypedLoader(_Strict, _SAFE):  # type: ignore[misc, valid-type]
    """Reads numbers, booleans and null as such."""

    def __init__(self, source: str) -> None:
        _SAFE.__init__(self, source)
        Composer.__init__(self)


def _construct_integer(loader: Any, node: Any) -> int:
    number: int = loader.construct_yaml_int(node)
    if number.bit_length() > 64:
        raise CorpusError(f"{shorten(node.value)} has more than 64 bits")
    return number


TypedLoader.add_constructor("tag:yaml.org,2002:int", _construct_integer)


class TextLoader(_Strict, _BASE):  # type: ignore[misc, valid-type]
    """Leaves every scalar text."""

    def __init__(self, source: str) -> None:
        _BASE.__init__(self, source)
        Composer.__init__(self)


def fields_of(data: bytes) -> Any:
    """What an entry's bytes hold, as mappings, lists and text."""
    source = decode(data, LARGEST_ENTRY)
    if not source.strip():
        raise CorpusError("the file is empty")
    first = source.splitlines()[0]
    if first not in (f"format: {FORMAT}", f"format: {GRADED_FORMAT}"):
        raise CorpusError(
            f"line 1 is {shorten(first)}, not 'format: {FORMAT}' or {GRADED_FORMAT[-1]}; a newer version may read it"
        )
    return parse(SURROGATE.sub(lambda escape: "\\" * bool(escape[1]) + escape[0], source), TextLoader)


def decode(data: bytes, limit: int = LARGEST_FILE) -> str:
    """The text of a file's bytes, of which there are so many at most."""
    if len(data) > limit:
        raise CorpusError(f"more than the {limit} bytes that are read")
    try:
        source = data.decode("utf-8")
    except UnicodeDecodeError:
        raise CorpusError("not text: the file is binary") from None
    if "\0" in source:
        raise CorpusError("not text: the file is binary")
    return source


def parse(source: str, loader: Any) -> Any:
    """What a text holds."""
    try:
        return yaml.load(source, Loader=loader)
    except (yaml.YAMLError, ValueError, ArithmeticError) as error:
        # What looks like a number or a date and is none is no error of yaml's own.
        reason = " ".join(str(error).split())
        raise CorpusError(f"not readable as text of this format: {reason}") from None


def shorten(value: Any) -> str:
    """A wrong value in a message, cut to one short piece."""
    spelt = repr(value)
    return spelt if len(spelt) <= LONGEST_QUOTE else spelt[:LONGEST_QUOTE] + " .."


def mapping(value: Any, what: str, allowed: str = "", *, needed: str = "") -> dict[str, Any]:
    """A mapping with these keys at most, and at least the needed ones; with names as keys where none are listed."""
    if not isinstance(value, dict):
        raise CorpusError(f"{what} is not a mapping")
    for key in value:
        if allowed and key not in allowed.split():
            raise CorpusError(f"unknown key {shorten(key)} in {what}; known: {', '.join(allowed.split())}")
        if not allowed:
            name(key, f"a key of {what}")
    for key in needed.split():
        if key not in value:
            raise CorpusError(f"{what} lacks {key!r}")
    return value


def sequence(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise CorpusError(f"{what} is not a list")
    return value


def text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise CorpusError(f"{what} is not text")
    return value


def texts(value: Any, what: str) -> tuple[str, ...]:
    return tuple(text(one, f"one of {what}") for one in sequence(value, what))


def name(value: Any, what: str) -> str:
    if not text(value, what).isidentifier():
        raise CorpusError(f"{what} is {shorten(value)}, which is not a name; a path is not allowed here")
    return str(value)


def natural(value: Any, what: str, most: int = LARGEST_NUMBER) -> int:
    """A whole number from 0 to `most`."""
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", text(value, what), re.ASCII):
        raise CorpusError(f"{what} is {shorten(value)}, not a whole number from 0 up")
    if int(value) > most:
        raise CorpusError(f"{what} is {value}, more than {most}")
    return int(value)
