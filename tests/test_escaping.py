"""Texts on one line that terminals, shells, databases and pages can take."""

from __future__ import annotations

import os
import subprocess

import pytest

from fuzz.errors import one_line
from fuzz.escaping import MAX_TEXT, clean_text, is_storable, printable, shell_quote

HOSTILE = [
    "\ud800 half a pair", os.fsdecode(b"caf\xe9"), "nul \0", "\x1b]0;title\x07\x1b[2J", "two\n\n  lines\r\n", "a\ttab",
    "\u202eright to left", "\u2028 \u2029 \x85 \x0b", "\x7f\x9b", "\U000e0041 tag", "\ufeffbom",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_becomes_one_line_that_everything_can_hold(text: str) -> None:
    shown = printable(text)
    assert is_storable(shown) and shown.encode() and len(shown.splitlines()) <= 1
    assert printable(shown) == shown
    assert not set("\x1b\0\n\u202e\x9b") & set(shown)


@pytest.mark.parametrize("text", ["", " ", "a  b", "größer – 😀", "\xa0\u2009", "C:\\ud800", "<b>[red]{{7}}"])
def test_an_honest_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == clean_text(text) == text


def test_what_was_escaped_says_what_it_was() -> None:
    assert printable("a\0b\x1b\ud800\U000e0041") == "a\\x00b\\x1b\\ud800\\U000e0041"


@pytest.mark.parametrize("text", ["x" * (1 << 22), "\0" * MAX_TEXT])
def test_a_long_text_is_cut(text: str) -> None:
    assert len(clean_text(text)) == MAX_TEXT and clean_text(text).endswith(" ..")
    assert clean_text(clean_text(text)) == clean_text(text)


def test_a_long_text_is_cut_between_words() -> None:
    words = "the interpreter cannot compute with operands of this type"
    assert clean_text(words, 40) == "the interpreter cannot compute with .."
    assert clean_text(words, len(words)) == words and clean_text("x" + "y" * 99, 10) == "xyyyyyy .."


def test_a_storable_text_has_no_control_characters_and_is_unicode() -> None:
    assert is_storable("می‌خواهم 😀") and not any(map(is_storable, ("a\n", "\x1b", os.fsdecode(b"\xe9"))))


NAMES = [
    b"plain.yaml", b"two words", b"it's \"quoted\"", b"$(touch pwned)`touch pwned`", b"a;b|c&d>e", b"-x", b"--target=y",
    b"new\nline", b"caf\xe9", b"\x1b[2J'\\", b"*?[a]~#!", "größer 😀".encode(), "\u202e".encode(),
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_is_one_argument_of_a_shell_and_no_option(name: bytes) -> None:
    text = shell_quote(os.fsdecode(name))
    assert printable(text) == text
    done = subprocess.run(["bash", "-c", f'printf "%s\\0" {text}'], capture_output=True, check=True)
    assert done.stdout == (b"./" * name.startswith(b"-") + name) + b"\0"


def test_an_exception_is_told_on_one_line_whatever_it_says() -> None:
    text = one_line(RuntimeError("cannot open\n" + os.fsdecode(b"/caf\xe9") + "\0\x1b[2J" + "x" * (1 << 22)))
    assert text.startswith("RuntimeError: cannot open /caf\\udce9\\x00\\x1b[2Jxxx") and len(text) < 2 * MAX_TEXT


def test_the_name_of_an_errors_class_is_escaped_as_its_text_is() -> None:
    shown = one_line(type("Evil\x1b[31m" + "x" * MAX_TEXT, (Exception,), {})("\x1b"))
    assert shown.startswith("Evil\\x1b[31m") and is_storable(shown) and len(shown) == MAX_TEXT
