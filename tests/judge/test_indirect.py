"""Whether the address of an access follows from loaded values."""

from __future__ import annotations

import pytest

from fuzz.judge.indirect import is_indirect

KERNEL = """
def kernel(index, x, out, stride):
    at = tl.program_id(0)
    row = tl.load(index + at)
    place = out
    place += row * stride
    value = tl.load(x + at)
    tl.store(place, value)
    tl.store(out + at // 2, value)
    tl.store(out + tl.load(index), 1.0)
"""


@pytest.mark.parametrize(("line", "expected"), [(8, True), (9, False), (10, True), (7, False), (40, False)])
def test_addresses_that_follow_from_loads(line: int, expected: bool) -> None:
    assert is_indirect(KERNEL, line) == expected
