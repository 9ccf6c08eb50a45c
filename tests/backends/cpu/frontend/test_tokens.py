"""TTIR text is split into tokens; nothing of it is skipped but space and comments."""

import pytest

from fuzz.backends import cpu
from fuzz.backends.cpu.frontend.tokens import Token, Tokens


def test_tokens_know_where_they_stand():
    text = '  %a#1 = "b"  // c\n'
    assert Tokens(text).all == [
        Token("value", "%a#1", 2, 6),
        Token("punctuation", "=", 7, 8),
        Token("string", '"b"', 9, 12),
        Token("end", "", len(text), len(text)),
    ]


def test_an_unknown_character_is_named_with_its_own_line():
    with pytest.raises(cpu.MalformedIR, match=r"unknown character in TTIR: '; %b'"):
        Tokens("%a // first\n\n  ; %b\n%c")
