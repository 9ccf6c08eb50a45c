"""The order of bit patterns, and samples of every sign and exponent."""

from __future__ import annotations

from math import nextafter

import numpy as np
import pytest

from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits
from fuzz.sweep.ranks import bits_at, rank_of, sample_strata, sample_with_edges


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_every_word_has_one_rank_and_ranks_are_in_the_order_of_values(name: str) -> None:
    kind = named_dtype(name)
    ranks = np.arange(1 << kind.bits, dtype=np.uint64)
    bits = bits_at(ranks, kind)
    assert sorted(bits.tolist()) == list(range(1 << kind.bits))
    np.testing.assert_array_equal(rank_of(bits, kind), ranks)
    values = from_bits(bits, kind)
    assert (np.diff(values[~np.isnan(values)][1:-1]) >= 0).all()


def test_a_stratum_is_one_sign_and_exponent_with_its_ends() -> None:
    """Stratum 512 - 1 - 127 = 384 less than the middle: bfloat16 bits 0xbf80 + .., -1 to -2."""
    kind = named_dtype("float32")
    values = from_bits(sample_with_edges(255 - 127, 50, kind, ()), kind)
    assert len(values) >= 54 and (np.diff(values) > 0).all()
    assert values[0] == nextafter(-2.0, 0) or values[0] == -2.0 + 2.0**-23
    assert values[-1] == -1.0
    assert len(set(sample_strata([3], 1 << 30, named_dtype("bfloat16"), (0, 3)).tolist())) == 128
