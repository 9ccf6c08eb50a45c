"""A counter-based random number generator: the bits of element n are a hash of n, the same on every machine.

Nothing but 64-bit integer arithmetic with wraparound, so numpy and torch agree bit for bit on any device. The mixer is
mx3 by Jon Maiga (http://jonkagstrom.com/mx3/mx3_rev2.html): three multiplications, every output bit depends on every
input bit; its author tested it with PractRand on counters, rotated and reversed ones included. Counters are spread by
the golden ratio first, as in SplitMix64 (Steele, Lea, Flood, OOPSLA 2014); the key is where in that sequence a stream
starts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from fuzz.model.recipes.namespace import Namespace

Array: TypeAlias = Any
"""A numpy array or a torch tensor, as the namespace at hand makes them: int64 for bits and counters, else float64."""

ALL = (1 << 64) - 1
MX3 = 0xBEA225F9EB34556D
SHIFTS = (32, 29, 32, 29)
_GOLDEN = 0x9E3779B97F4A7C15


def signed(x: int) -> int:
    """The 64-bit pattern x as a signed integer, the only kind that torch computes with."""
    x &= ALL
    return x - (1 << 64) if x >> 63 else x


_GOLDEN_SIGNED = signed(_GOLDEN)

LANES = (0, signed(_GOLDEN << 62), signed(_GOLDEN << 63), signed(_GOLDEN * 3 << 62))
"""Added to a hash's input they give up to four draws per counter: counters use 62 bits, lanes are the two above."""

_HALVES = 0x0000_FFFF_0000_FFFF
_LOW32 = 0xFFFF_FFFF
_CENTRE = (6 * 0xFFFF << 32) + (1 << 31)
NORMAL_STEP = -48
"""`normal_integers` counts steps of 2^-48."""


def mix(x: int) -> int:
    """mx3 of one Python integer; a bijection of 64-bit patterns."""
    x &= ALL
    for shift in SHIFTS[:3]:
        x = (x ^ x >> shift) * MX3 & ALL
    return x ^ x >> SHIFTS[3]


@lru_cache(maxsize=4096)
def stream_key(seed: int, salt: int, stream: int) -> int:
    """The key of one stream of draws: `salt` tells recipes apart, `stream` the draws within a recipe."""
    return signed(mix(seed ^ mix((salt << 8) + stream)))


def hash64(counter: Array, key: int, xp: Namespace, lanes: int = 0) -> Array:
    """64 random bits for each int64 counter; with `lanes` so many independent ones of each, on a new first axis."""
    x = counter * _GOLDEN_SIGNED
    x += key
    if lanes:
        x = x + xp.lanes(lanes)
    return xp.mix(x)


def below(bits: Array, bound: int, xp: Namespace) -> Array:
    """Integers in [0, bound), bound <= 2^32, from the upper 31 of 64 random bits: a multiply and shift, no division."""
    return xp.shr(bits, 33) * bound >> 31


def below_low(bits: Array, bound: int) -> Array:
    """The same from the lower 32 bits (bound <= 2^31), so that one hash serves two draws."""
    return (bits & _LOW32) * bound >> 32


def uniform(bits: Array, xp: Namespace) -> Array:
    """float64 in [0, 1), multiples of 2^-53, from 64 random bits."""
    return xp.real(xp.shr(bits, 11)) * 2.0**-53


def uniform24(bits: Array, xp: Namespace) -> Array:
    """float64 in [0, 1), multiples of 2^-24: exact in float32."""
    return xp.real(xp.shr(bits, 40)) * 2.0**-24


def normal_integers(counter: Array, key: int, xp: Namespace) -> Array:
    """Nearly normal integers of mean 0 and standard deviation 2^48, |x| < 6.01 * 2^48.

    The sum of twelve uniform 16-bit integers (Irwin-Hall; variance 12 * (2^32 - 1) / 12), 16 bits in each quarter of
    three hashes. Below it stand 32 more bits, a parity of the same hashes: without them values would be multiples of
    2^-16, sums of which are exact in float32, and no order of summation would ever show.
    """
    patterns = hash64(counter, key, xp, lanes=3)
    pairs = patterns & _HALVES
    pairs += xp.shr(patterns, 16) & _HALVES
    halves = pairs[0] + pairs[1]
    halves += pairs[2]
    total = (halves & _LOW32) + (halves >> 32)
    parity = patterns[0] ^ patterns[1]
    parity ^= patterns[2]
    return (total << 32) + ((parity & _LOW32) - _CENTRE)
