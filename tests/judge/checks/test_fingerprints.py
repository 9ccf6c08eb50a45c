"""Values of which common fingerprints agree, and of which no row does where they are exchanged."""

from __future__ import annotations

import numpy as np
import pytest

from fuzz.judge.checks.fingerprints import exchanged, moved, reversed_middle
from fuzz.model.dtypes import dtype, from_bits, to_bits

SHAPES = [(8,), (4,), (6, 8), (1, 16), (16, 1), (3, 4, 5), (64, 64)]


@pytest.mark.parametrize("reorder", [exchanged, reversed_middle])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_order_of_values_changes_and_their_fingerprints_stay(shape: tuple[int, ...], reorder: object) -> None:
    values = np.random.default_rng(0).integers(-8, 9, shape).astype(np.float32)
    values.reshape(-1)[1:3] = 7, -7
    assert callable(reorder)
    other = values.reshape(-1)[reorder(values)].reshape(shape)
    assert not np.array_equal(values, other)
    for fingerprint in (np.sum, np.max, lambda x: np.sum(x * x), lambda x: x.flat[0], lambda x: x.flat[-1]):
        assert fingerprint(values) == fingerprint(other)
    count = max(1, values.size // 4)
    assert np.array_equal(values.reshape(-1)[:count], other.reshape(-1)[:count])


def test_exchanged_elements_share_no_row_and_no_column() -> None:
    values = np.random.default_rng(0).integers(-8, 9, (6, 8)).astype(np.float32)
    other = values.reshape(-1)[exchanged(values)].reshape(values.shape)
    rows, columns = np.nonzero(values != other)
    assert len(set(rows)) == len(set(columns)) == 2


@pytest.mark.parametrize("shape", [(), (1,), (2,), (0,), (2, 0)])
def test_too_few_elements_stay_as_they_are(shape: tuple[int, ...]) -> None:
    values = np.ones(shape, np.float32)
    assert np.array_equal(exchanged(values), np.arange(values.size))
    assert np.array_equal(reversed_middle(values), np.arange(values.size))


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_values_move_by_one_part_in_16384_or_by_the_least_step(name: str) -> None:
    numbers = dtype(name)
    values = from_bits(to_bits(np.array([1.0, -1.0, 0.0, -0.0, 0.75, -3.0]), numbers), numbers)
    other = from_bits(moved(to_bits(values, numbers), numbers), numbers)
    least = max(2.0**-14, 2.0**-numbers.mantissa)
    away = np.abs(other) - np.abs(values)
    assert np.array_equal(away == 0, values == 0)
    assert np.all(away <= least * np.abs(values)) and away[0] == least
    assert np.array_equal(np.sign(other), np.sign(values))
