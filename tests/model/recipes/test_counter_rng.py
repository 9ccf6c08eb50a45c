"""The generator against a model in Python's own integers, and its statistics."""

from __future__ import annotations

import math

import numpy as np

from fuzz.model.recipes.counter_rng import (
    LANES,
    below,
    below_low,
    hash64,
    mix,
    normal_integers,
    signed,
    stream_key,
    uniform,
    uniform24,
)
from fuzz.model.recipes.namespace import NUMPY

ALL = (1 << 64) - 1
COUNT = 1 << 18
COUNTERS = np.arange(COUNT).reshape(1, -1)


def _model(counter: int, key: int, lane: int = 0) -> int:
    """mx3 as its author writes it, of the golden ratio's multiples."""
    x = (counter * 0x9E3779B97F4A7C15 + key + LANES[lane]) & ALL
    x ^= x >> 32
    x = x * 0xBEA225F9EB34556D & ALL
    x ^= x >> 29
    x = x * 0xBEA225F9EB34556D & ALL
    x ^= x >> 32
    x = x * 0xBEA225F9EB34556D & ALL
    return x ^ x >> 29


def test_hash_agrees_with_the_model() -> None:
    key = stream_key(123, 45, 6)
    counters = np.array([[0, 1, 2, 1 << 32, (1 << 62) - 1]])
    got = hash64(counters, key, NUMPY, lanes=4).view(np.uint64)
    assert got.reshape(4, -1).tolist() == [[_model(c, key, lane) for c in counters[0].tolist()] for lane in range(4)]
    assert mix(5) == _model(0, 5) and signed(mix(key)) == int(NUMPY.mix(np.array([[key]]))[0, 0])
    assert counters.tolist()[0][:3] == [0, 1, 2]  # the counters are left alone


def test_normals_agree_with_the_model() -> None:
    key = stream_key(1, 2, 3)
    for n, got in enumerate(normal_integers(np.arange(50).reshape(1, -1), key, NUMPY)[0].tolist()):
        bits = [_model(n, key, lane) for lane in range(3)]
        total = sum(pattern >> s & 0xFFFF for pattern in bits for s in (0, 16, 32, 48))
        low = (bits[0] ^ bits[1] ^ bits[2]) & 0xFFFFFFFF
        assert got == (total << 32) + low - (6 * 0xFFFF << 32) - (1 << 31)


def test_every_input_bit_moves_half_of_the_output() -> None:
    base = hash64(COUNTERS[:, :4096], 0, NUMPY)
    for bit in range(62):
        flipped = hash64(COUNTERS[:, :4096] ^ (1 << bit), 0, NUMPY)
        changed = np.unpackbits((base ^ flipped).view(np.uint8)).reshape(4096, 64).mean(axis=0)
        assert np.abs(changed - 0.5).max() < 0.05, bit


def test_streams_and_seeds_are_unrelated() -> None:
    keys = {stream_key(seed, salt, stream) for seed in range(20) for salt in range(20) for stream in range(20)}
    assert len(keys) == 8000
    first, second = (uniform(hash64(COUNTERS, stream_key(s, 0, 0), NUMPY), NUMPY) for s in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(COUNT)
    shifted = np.corrcoef(first[0, 1:], first[0, :-1])[0, 1]
    assert abs(shifted) < 5 / math.sqrt(COUNT)


def test_normals_are_normal() -> None:
    x = normal_integers(COUNTERS, stream_key(9, 9, 9), NUMPY)[0] * 2.0**-48
    root = math.sqrt(COUNT)
    assert abs(x.mean()) < 5 / root and abs(x.std() - 1) < 5 / root
    assert abs((x**3).mean()) < 5 * math.sqrt(15) / root
    assert abs((x**4).mean() - 2.9) < 0.1  # the sum of twelve has kurtosis 3 - 1.2 / 12
    assert abs((np.abs(x) < 1).mean() - 0.6827) < 0.01 and 4 < np.abs(x).max() < 6
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 5 / root


def test_normals_use_every_bit_of_a_float32() -> None:
    """Multiples of a coarse step would add up exactly, and hide every order of summation."""
    x = (normal_integers(COUNTERS, 7, NUMPY)[0] * 2.0**-48).astype(np.float32)
    ones = (x.view(np.uint32)[:, None] >> np.arange(23) & 1).mean(axis=0)
    assert np.abs(ones[:16] - 0.5).max() < 0.01
    assert np.add.accumulate(x[:1000])[-1] != np.add.accumulate(x[:1000][::-1])[-1]


def test_uniforms_are_uniform() -> None:
    bits = hash64(COUNTERS, 3, NUMPY)[0]
    for x, step in ((uniform(bits, NUMPY), 53), (uniform24(bits, NUMPY), 24)):
        assert 0 <= x.min() and x.max() < 1 and (np.ldexp(x, step) % 1 == 0).all()
        assert abs(x.mean() - 0.5) < 0.003 and abs(x.var() - 1 / 12) < 0.002
    for draw in (below(bits, 10, NUMPY), below_low(bits, 10)):
        counts = np.bincount(draw, minlength=10)
        assert counts.size == 10 and np.abs(counts / COUNT - 0.1).max() < 0.005
    top = np.array([-1])
    assert below(top, 1 << 32, NUMPY).tolist() == [2**32 - 2] and below_low(top, 1 << 31).tolist() == [2**31 - 1]


def test_signed() -> None:
    assert [signed(1 << 63), signed(ALL), signed(5), signed(1 << 64)] == [-(1 << 63), -1, 5, 0]
