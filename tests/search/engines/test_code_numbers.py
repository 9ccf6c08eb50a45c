"""The numbers that a kernel compares with are read from its code and from what the compiler makes of it."""

from __future__ import annotations

import struct

import torch
import triton
import triton.language as tl

from fuzz.backends import cpu
from fuzz.backends.reached_functions import find_functions
from fuzz.search.engines.code_numbers import find_numbers

LIMIT = 31337
WIDTH = tl.constexpr(640)


@triton.jit
def helper(x):
    return tl.where(x > 77.5, x, -x)


@triton.jit
def compares(x, y, count, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = helper(tl.load(x + i, mask=i < count))
    bits = value.to(tl.int32, bitcast=True)
    if count == 4097 and eps < 1e-8:
        value += 1
    if BLOCK == 2 * 729 + 1 or BLOCK == WIDTH:
        value += 2
    value = tl.where(2 * value + 1 > 25.5, 3.0, value)
    value = tl.where(((bits >> 23) & 0xFF) == 0x90, 4.0, value)
    value = tl.where(bits == 0x42F6E979, 5.0, value)
    tl.store(y + i, value, mask=i < count)


def launches(x, kind):
    """Takes 17 of them."""
    if x.shape[0] > LIMIT or kind in ("a", "b"):
        return [part for part in (5, 6) if inner(part)]
    compares[(1,)](x, torch.empty_like(x), x.numel(), 1e-5, BLOCK=16)


def inner(number):
    return number == 4242


def test_code_is_followed_through_kernels_and_helpers() -> None:
    first, *called, last = (function.__name__ for function in find_functions(launches))
    # Where a comprehension's names stand among the others depends on Python's version.
    assert (first, sorted(called), last) == ("launches", ["compares", "inner"], "helper")
    assert {LIMIT, 640, 4242, 4097, 1e-8, 1459, 25.5, 0x90, 0x42F6E979, 77.5, 5, 6} <= set(find_numbers(launches))
    assert not {"a", "Takes 17 of them.", 17, True} & {number for number in find_numbers(launches) if number != 1}


def test_comparisons_are_solved_for_what_is_compared() -> None:
    before = len(cpu.constants.numbers)
    with cpu.active():
        compares[(1,)](torch.ones(8), torch.zeros(8), 8, 1e-5, BLOCK=16)
    found = set(cpu.constants.numbers[before:])
    nearly = struct.unpack("f", struct.pack("f", 123.456))[0]
    assert {4097, 77.5, 25.5, 24.5, 12.25, 0x90, 0x90 << 23, 2.0**17, 0x42F6E979, nearly} <= found
    assert any(abs(number - 1e-8) < 1e-15 for number in found)
