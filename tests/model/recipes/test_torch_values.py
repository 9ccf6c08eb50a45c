"""numpy and torch make the same bits: every recipe, every format, many shapes, and on a GPU where there is one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from fitting_dtypes import fitting_dtype

import fuzz.model.recipes
from fuzz.model.dtypes import DTYPES, DType, dtype, to_bits
from fuzz.model.recipes import CURRENT, Exact, Patched, Recipe, bits_of, generate, generate_replicas, recipe
from fuzz.model.recipes import torch_values as tv

SHAPES = [(), (0,), (1,), (7,), (4, 0), (0, 4), (3, 5), (2, 3, 4), (1, 300), (300, 1), (3, 70001)]
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
PAIRS = [(name, d) for name, kind in CURRENT.items() for d in DTYPES.values() if d.kind in kind.fits]


def _variants(name: str) -> list[Recipe]:
    params = CURRENT[name].params
    ends = [recipe(name, end, **{key: bounds[end] for key, bounds in params.items()}) for end in (0, 1)]
    return [recipe(name, 5), *ends]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "d"), PAIRS, ids=lambda v: v.name if isinstance(v, DType) else v)
def test_same_bits(name: str, d: DType, device: str) -> None:
    for made in _variants(name):
        for shape in SHAPES[:-1] if made.seed != 5 else SHAPES:
            want = generate(made, shape, d)
            bits = generate(made, shape, d, tv.namespace(device))
            np.testing.assert_array_equal(bits.cpu().numpy().view(d.unsigned), want, made.text())
            tensor = tv.tensor(made, shape, d.name, device)
            assert tensor.shape == shape and tensor.is_contiguous() and tensor.dtype == getattr(torch, d.name)
            np.testing.assert_array_equal(tv.to_bits(tensor), want, made.text())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CURRENT)
def test_stacked_replicas_are_the_tensors_of_their_seeds(name: str, device: str) -> None:
    made = recipe(name, 99)
    d = fitting_dtype(made.kind, "bfloat16", "int16")
    seeds = [3, 1, 4, 1, 5, 2**63 - 1]
    for shape in [(), (0,), (5,), (3, 4), (2, 3, 4), (40, 700)]:
        alone = [generate(Recipe(name, 1, seed, made.params), shape, d) for seed in seeds]
        np.testing.assert_array_equal(tv.to_bits(tv.tensors(made, seeds, shape, d.name, device)), np.stack(alone))
        bits = generate_replicas(made, seeds, shape, d, tv.namespace(device)).cpu().numpy()
        np.testing.assert_array_equal(bits.view(d.unsigned), np.stack(alone))
        np.testing.assert_array_equal(generate_replicas(made, seeds, shape, d), np.stack(alone))
    assert generate_replicas(made, [], (2, 3), d).shape == (0, 2, 3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_rounding_is_the_same(name: str, device: str) -> None:
    """Doubles at and beside ties of every size, subnormal and past the largest included."""
    d = dtype(name)
    rng = np.random.default_rng(1)
    ties = np.ldexp(
        rng.integers(1 << d.mantissa, 2 << d.mantissa, 100_000) + 0.5, rng.integers(-d.bias - 60, d.bias, 100_000)
    )
    ties = ties * 2.0**-d.mantissa
    x = np.concatenate([ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf), [0.0, -0.0, d.largest, 1e300, 5e-324]])
    x = np.concatenate([x, -x])
    bits = tv.namespace(device).round(torch.from_numpy(x).to(device), d).cpu().numpy()
    np.testing.assert_array_equal(bits.astype(d.unsigned), to_bits(np.clip(x, -d.largest, d.largest), d))


@pytest.mark.parametrize("device", DEVICES)
def test_exact_words_and_overrides(device: str) -> None:
    for d in DTYPES.values():
        top = d.max_bits
        kept = Exact((0, top, 1), d.name)
        np.testing.assert_array_equal(tv.to_bits(tv.tensor(kept, (3, 1), d.name, device)), bits_of(kept, (3, 1), d))
        patched = Patched(recipe("ones"), ((0, top), (4, 0)))
        got = tv.to_bits(tv.tensor(patched, (2, 3), d.name, device))
        np.testing.assert_array_equal(got, bits_of(patched, (2, 3), d))
    large = Patched(recipe("normal"), ((5, 0), (9_999, 0xFFFF)))
    got = tv.to_bits(tv.tensor(large, (300, 100), "bfloat16", device))
    np.testing.assert_array_equal(got, bits_of(large, (300, 100), dtype("bfloat16")))
    bits = generate(large.recipe, (300, 100), dtype("bfloat16"), tv.namespace(device))
    tv.override_in_place(bits, large.overrides, dtype("bfloat16"))
    np.testing.assert_array_equal(bits.cpu().numpy().view(np.uint16), got)
    with pytest.raises(ValueError, match="outside 3"):
        tv.tensor(Patched(recipe("ones"), ((3, 0),)), (3,), "float32", device)


def test_words_of_any_layout() -> None:
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    np.testing.assert_array_equal(tv.to_bits(x.T), to_bits(x.T.double().numpy(), dtype("float32")))
    np.testing.assert_array_equal(tv.to_bits(x[:, :1].expand(2, 3)).shape, (2, 3))


def test_flushed_subnormals_do_not_matter() -> None:
    want = {name: generate(recipe("subnormals"), (500,), dtype(name)) for name in ("float32", "bfloat16", "float64")}
    small = generate(recipe("normal", exponent=-24), (500,), dtype("float16"))
    try:
        torch.set_flush_denormal(True)
        for name, bits in want.items():
            made = generate(recipe("subnormals"), (500,), dtype(name), tv.namespace("cpu"))
            np.testing.assert_array_equal(made.numpy().view(bits.dtype), bits)
        got = generate(recipe("normal", exponent=-24), (500,), dtype("float16"), tv.namespace("cpu")).numpy()
    finally:
        torch.set_flush_denormal(False)
    np.testing.assert_array_equal(got.view(small.dtype), small)


def test_only_the_torch_half_imports_torch() -> None:
    folder = Path(fuzz.model.recipes.__file__).parent
    named = [path.name for path in folder.glob("*.py") if "import torch" in path.read_text()]
    assert named == ["torch_values.py"]
