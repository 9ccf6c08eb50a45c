"""Recipe text, refusals, and what each recipe promises of its values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fitting_dtypes import fitting_dtype

from fuzz.model.dtypes import DTYPES, dtype, from_bits, ordinal, to_bits
from fuzz.model.recipes import (
    CURRENT,
    RECIPES,
    Exact,
    Patched,
    Recipe,
    bits_of,
    exact,
    generate,
    override,
    patched,
    recipe,
)

F32 = dtype("float32")
FLOATS = [d for d in DTYPES.values() if d.is_float]
EACH_FLOAT = pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)


def values(name: str, shape: tuple[int, ...], d=F32, seed: int = 3, **params) -> np.ndarray:
    return from_bits(generate(recipe(name, seed, **params), shape, d), d)


# ---------------------------------------------------------------- text


@pytest.mark.parametrize("name", CURRENT)
def test_text_reads_back_at_both_ends_of_every_range(name: str) -> None:
    kind = CURRENT[name]
    for end in (0, 1):
        made = recipe(name, 2**63 - 1, **{key: bounds[end] for key, bounds in kind.params.items()})
        assert Recipe.parse(made.text()) == made and hash(made) == hash(Recipe.parse(made.text()))
        d = fitting_dtype(kind, "float32", "int8")
        assert generate(made, (3, 5), d).shape == (3, 5)
    assert Recipe.parse(f"{name}/1 seed=0") == recipe(name)
    assert kind.meaning and set(kind.defaults) == set(kind.params)


def test_constants_are_part_of_the_text() -> None:
    made = recipe("boundaries", 1, builtin=0, c0=-3.7, c1=1e-30)
    assert made.text() == "boundaries/1 seed=1 spread=1 builtin=0 c0=-3.7 c1=1e-30"
    assert Recipe.parse(made.text()) == made
    assert Recipe.parse("boundaries/1 seed=1 c1=1e-30 c0=-3.7 builtin=0 spread=1") == made


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "should look like"),
        ("normal", "should look like"),
        ("normal/1", "should look like"),
        ("normal/1 seed=-1", "should look like"),
        ("normal/1 seed=01", "followed by"),
        ("normal/1 seed=7 exponent=0" + " " * 2000, "should look like"),
        ("gauss/1 seed=7", "unknown recipe 'gauss': known are zeros, .*normal"),
        ("normal/2 seed=7", "normal/2: known is normal/1"),
        ("normal/1 seed=7 ", "none of its parameters"),
        ("normal/1 seed=7  exponent=0", "none of its parameters"),
        ("normal/1 seed=7 exponent=0\n", "none of its parameters"),
        ("normal/1 seed=7 scale=1", "exponent in -24..13"),
        ("normal/1 seed=7 exponent=+1", "integer"),
        ("normal/1 seed=7 exponent=1.0", "integer"),
        ("normal/1 seed=7 exponent=14", "integer in -24..13"),
        ("normal/1 seed=7 exponent=1 exponent=1", "twice"),
        ("normal/1 seed=9223372036854775808", "2\\^63"),
        ("normal/1 seed=7 c0=1.0", "exponent in"),
        ("boundaries/1 seed=7 c1=1.0", "in this order"),
        ("boundaries/1 seed=7 c8=1.0", "up to 8 constants"),
        ("boundaries/1 seed=7 c0=nan", "finite float"),
        ("boundaries/1 seed=7 c0=1e999", "finite float"),
    ],
)
def test_text_that_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe.parse(text)


def test_recipes_that_are_refused() -> None:
    for bad in (
        lambda: Recipe("normal", 1, 0, ()),
        lambda: Recipe("normal", 1, 0, (("exponent", 1.0),)),
        lambda: Recipe("normal", 1, 0, (("exponent", True),)),
        lambda: Recipe("near_constant", 1, 0, (("ulps", 1), ("exponent", 0))),
        lambda: recipe("normal", ulps=1),
        lambda: recipe("boundaries", c0=1),
        lambda: generate(recipe("normal"), (3,), dtype("int8")),
        lambda: generate(recipe("indices"), (3,), F32),
    ):
        with pytest.raises(ValueError):
            bad()


# ---------------------------------------------------------------- all recipes


@EACH_FLOAT
@pytest.mark.parametrize("name", [name for name, kind in CURRENT.items() if kind.finite and "float" in kind.fits])
def test_finite_recipes_stay_finite_at_the_ends_of_their_ranges(name: str, d) -> None:
    for end in (0, 1):
        params = {key: bounds[end] for key, bounds in CURRENT[name].params.items()}
        assert np.isfinite(values(name, (40, 30), d, **params)).all()


PLACED = {"outliers", "cancelling", "onehot", "nonfinite", "prefixes"}
"""Recipes that place something by the number of rows or columns."""


@pytest.mark.parametrize("name", sorted(set(CURRENT) - PLACED))
def test_an_element_depends_on_its_place_only(name: str) -> None:
    d = fitting_dtype(CURRENT[name], "float32", "int32")
    whole = generate(recipe(name, 1), (6, 40), d)
    np.testing.assert_array_equal(generate(recipe(name, 1), (2, 7), d), whole[:2, :7])
    np.testing.assert_array_equal(generate(recipe(name, 1), (2, 3, 40), d).reshape(6, 40), whole)


@pytest.mark.parametrize("name", CURRENT)
def test_blocks_do_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fuzz.model.recipes.namespace import NUMPY

    d = fitting_dtype(CURRENT[name], "float32", "int32")
    whole = generate(recipe(name, 1), (9, 41), d)
    for block in (8, 64, 100):
        monkeypatch.setattr(NUMPY, "block", block)
        np.testing.assert_array_equal(generate(recipe(name, 1), (9, 41), d), whole)


# ---------------------------------------------------------------- each recipe


@EACH_FLOAT
def test_fills(d) -> None:
    assert (values("zeros", (5,), d) == 0).all() and (values("ones", (5,), d) == 1).all()
    assert (values("constant", (5,), d, mantissa=-3, exponent=-2) == -0.75).all()
    assert values("ramp", (2, 3), d, start=5, step=-2).tolist() == [[5, 3, 1], [5, 3, 1]]
    assert values("constant", (2,), dtype("int8"), mantissa=200, exponent=0).tolist() == [127, 127]
    assert values("ramp", (3,), dtype("uint8"), start=-1).tolist() == [0, 0, 1]


def test_normal_and_uniform() -> None:
    x = values("normal", (500, 400), exponent=-3)
    assert abs(x.mean()) < 1e-3 and abs(x.std() * 8 - 1) < 0.01
    y = values("uniform", (500, 400), exponent=2)
    assert abs(y.mean()) < 0.03 and -4 <= y.min() < -3.99 and 3.99 < y.max() <= 4
    z = values("uniform", (500, 400), exponent=2, signed=0)
    assert abs(z.mean() - 2) < 0.01 and 0 <= z.min()
    assert (values("uniform", (500, 400), exponent=2, signed=-1) == -z).all()
    assert (values("normal", (500,), exponent=3) == 64 * values("normal", (500,), exponent=-3)).all()


@EACH_FLOAT
def test_exponents_cover_the_whole_range(d) -> None:
    x = np.abs(values("exponents", (40000,), d))
    powers = np.frexp(x[x > 0])[1] - 1
    assert powers.max() == d.bias and (x < d.smallest_normal).any()
    assert set(range(-d.bias + 1, d.bias + 1)) <= set(powers.tolist())
    assert np.abs(values("exponents", (4000,), d, subnormals=0)).min() >= d.smallest_normal
    narrow = np.abs(values("exponents", (4000,), d, width=2))
    assert 0.25 <= narrow.min() and narrow.max() < 8


def test_rows() -> None:
    x = values("rows_constant", (50, 9))
    assert (x == x[:, :1]).all() and len(set(x[:, 0])) == 50
    near = generate(recipe("near_constant", ulps=3), (50, 90), F32)
    spread = np.ptp(ordinal(near, F32), axis=1)
    assert (spread == 3).all()
    a = values("alternating", (5, 7))
    assert (a[:, 1:] == -a[:, :-1]).all() and (a != 0).all()
    hot = values("onehot", (500, 9), exponent=1)
    assert ((hot == 2).sum(axis=1) == 1).all() and (hot.sum(axis=1) == 2).all() and (hot.sum(axis=0) > 0).all()


def test_mean_shift_and_outliers() -> None:
    for seed in range(4):
        x = values("mean_shift", (300, 300), seed=seed, mean=10, exponent=-1)
        assert abs(abs(x.mean()) - 512) < 0.1 and abs(x.std() - 0.5) < 0.01
    x = np.abs(values("outliers", (300, 64), channels=3, factor=10)).mean(axis=0)
    assert 1 <= (x > 100).sum() <= 3 and (x[x <= 100] < 2).all()


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 9, 30, 256, 1001])
def test_rows_of_cancelling_values_vanish(columns: int) -> None:
    x = values("cancelling", (20, columns), ulps=0)
    pairs = columns // 2 * 2
    if columns == 1:
        assert (x != 0).all()
        return
    assert all(sorted(row[row > 0]) == sorted(-row[row < 0]) for row in x)
    assert ((x != 0).sum(axis=1) == pairs).all()
    y = values("cancelling", (20, columns), ulps=2)
    assert (np.abs(y.sum(axis=1)) <= 2.0**-21 * np.abs(y).sum(axis=1)).all()


def test_sparse_ties_and_integers() -> None:
    assert abs((values("sparse", (100, 1000), rarity=3) != 0).mean() - 1 / 8) < 0.005
    assert len(np.unique(values("ties", (1000,), distinct=5))) == 5
    assert set(values("integers", (1000,), bound=2).tolist()) == {-2, -1, 0, 1, 2}
    assert set(values("integers", (1000,), dtype("int8"), bound=2).tolist()) == {-2, -1, 0, 1, 2}


@EACH_FLOAT
def test_ends_of_the_format(d) -> None:
    small = np.abs(values("subnormals", (2000,), d))
    assert (small > 0).all() and (small < d.smallest_normal).all() and small.min() == d.smallest_subnormal
    big, tiny = np.abs(values("huge", (2000,), d)), np.abs(values("tiny", (2000,), d))
    assert big.max() > 0.99 * d.largest and big.min() >= 2.0 ** (d.bias - 1)
    assert d.smallest_normal <= tiny.min() < 1.02 * d.smallest_normal and tiny.max() < 4 * d.smallest_normal
    zeros = generate(recipe("signed_zeros"), (2000,), d)
    s, one = d.sign_mask, d.one_bits
    assert set(zeros.tolist()) == {0, s, one, one | s}


@EACH_FLOAT
def test_boundaries_hold_what_was_asked_for(d) -> None:
    bits = generate(recipe("boundaries", builtin=0, spread=1, c0=-3.7, c1=1e300, c2=0.0), (500,), d)
    centre, top = int(ordinal(to_bits(-3.7, d), d)), d.largest_bits
    got = set(ordinal(bits, d).tolist())
    assert {centre - 1, centre, centre + 1, -1, 0, 1} <= got
    assert (top in got) == (d.name != "float64")
    known = set(np.abs(values("boundaries", (20000,), d, spread=0)).tolist())
    assert {0.0, 0.5, 1.0, 2.0, d.largest, d.smallest_normal, d.smallest_subnormal, d.unit} <= known


@EACH_FLOAT
def test_nonfinite(d) -> None:
    for kinds, check in ((1, np.isposinf), (2, np.isneginf), (4, np.isnan)):
        assert check(values("nonfinite", (9,), d, kinds=kinds, rarity=0)).all()
        for seed in range(20):
            x = values("nonfinite", (2, 2), d, seed=seed, kinds=kinds, rarity=8)
            assert check(x).any() and (check(x) | np.isfinite(x)).all()
    x = values("nonfinite", (1000,), d)
    assert np.isposinf(x).any() and np.isneginf(x).any() and np.isnan(x).any()
    nans = generate(recipe("nonfinite", kinds=4, rarity=0), (3,), d)
    assert (nans == d.nan_bits).all()


def test_indices() -> None:
    for name, seen in (("indices", 9), ("indices_edges", 9)):
        x = values(name, (500, 3), dtype("int64"), below=9)
        assert len(np.unique(x)) == seen and x.min() == 0 and x.max() == 8
    assert values("indices", (500,), dtype("int8"), below=1 << 31).min() >= 0
    assert (values("indices_edges", (50, 50), dtype("int32"), below=1 << 20) == (1 << 20) - 1).mean() > 0.1
    marked = values("indices_sentinel", (5000,), dtype("int64"), below=9, sentinel=-100, rarity=2)
    assert abs((marked == -100).mean() - 0.25) < 0.03 and marked.max() == 8
    assert set(values("random_bits", (5000,), dtype("int8")).tolist()) == set(range(-128, 128))
    assert set(values("random_bits", (50,), dtype("bool")).tolist()) == {0, 1}


def test_prefixes_begin_their_rows_but_for_one_in_four() -> None:
    """Any number of elements is as likely as any other: none, and all, among them."""
    x = values("prefixes", (4000, 6), dtype("bool"))
    lengths = x.sum(1)
    is_prefix = (x == (np.arange(6) < lengths[:, None])).all(1)
    assert ((np.diff(x, axis=1, prepend=0, append=0) != 0).sum(1) <= 2).all(), "one run of elements a row"
    assert 0.8 < is_prefix.mean() < 0.95
    assert set(lengths.tolist()) == set(range(7)) and min(np.bincount(lengths[is_prefix].astype(int))) > 300


# ---------------------------------------------------------------- exact bits and overrides


def test_exact_words() -> None:
    bits = generate(recipe("normal"), (2, 3), F32)
    kept = exact(bits, F32)
    assert kept == Exact(tuple(bits.reshape(-1).tolist()), "float32")
    np.testing.assert_array_equal(bits_of(kept, (3, 2), F32), bits.reshape(3, 2))
    for bad in (
        lambda: bits_of(kept, (4,), F32),
        lambda: bits_of(kept, (2, 3), dtype("int32")),
        lambda: Exact((1 << 16,), "float16"),
        lambda: Exact((-1,), "float16"),
        lambda: Exact((2,), "bool"),
    ):
        with pytest.raises(ValueError):
            bad()
    assert bits_of(Exact((), "float32"), (0, 4), F32).shape == (0, 4)


def test_overrides() -> None:
    made = recipe("normal")
    plain = generate(made, (2, 3), F32)
    got = bits_of(Patched(made, ((1, 0), (5, F32.nan_bits))), (2, 3), F32)
    assert got[0, 1] == 0 and got[1, 2] == F32.nan_bits and (got == plain).sum() == 4
    np.testing.assert_array_equal(plain, generate(made, (2, 3), F32))
    assert patched(made, ()) is made and patched(made, ((1, 0),)) == Patched(made, ((1, 0),))
    for bad in (
        lambda: Patched(made, ((1, 0), (1, 0))),
        lambda: Patched(made, ((2, 0), (1, 0))),
        lambda: Patched(made, ((-1, 0),)),
        lambda: Patched(made, ()),
        lambda: override(plain, ((6, 0),), F32),
        lambda: override(plain, ((0, 1 << 32),), F32),
    ):
        with pytest.raises(ValueError):
            bad()


# ---------------------------------------------------------------- versions


def test_an_older_version_stays_readable_when_a_recipe_gets_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    old = recipe("normal", 7, exponent=-3)
    bits = generate(old, (3, 4), dtype("float32"))
    newer = replace(CURRENT["normal"], version=2, make=CURRENT["ones"].make)
    monkeypatch.setitem(RECIPES, ("normal", 2), newer)
    monkeypatch.setitem(CURRENT, "normal", newer)
    read = Recipe.parse(old.text())
    assert read == old and read.text() == "normal/1 seed=7 exponent=-3"
    np.testing.assert_array_equal(generate(read, (3, 4), dtype("float32")), bits)
    new = recipe("normal", 7)
    assert new.text() == "normal/2 seed=7 exponent=0" and (values("normal", (2,)) == 1).all()
    with pytest.raises(ValueError, match="normal/3: known is normal/1, normal/2"):
        Recipe.parse("normal/3 seed=7")
