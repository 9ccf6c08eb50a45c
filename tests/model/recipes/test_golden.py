"""The bits that recipes make, written down: a change here breaks every corpus entry that names the recipe."""

from __future__ import annotations

import pytest
from fitting_dtypes import fitting_dtype

from fuzz.model.recipes import CURRENT, Recipe, generate

# float32 bits of shape (2, 3), int32 for recipes of integers, bool for those of flags
GOLDEN = {
    "zeros/1 seed=7": "00000000 00000000 00000000 00000000 00000000 00000000",
    "ones/1 seed=7": "3f800000 3f800000 3f800000 3f800000 3f800000 3f800000",
    "constant/1 seed=7 mantissa=1 exponent=0": "3f800000 3f800000 3f800000 3f800000 3f800000 3f800000",
    "normal/1 seed=7 exponent=0": "be34b92c 3e4b451e bf78c79e bcfda9b8 bd9f9330 3e4227dd",
    "uniform/1 seed=7 exponent=0 signed=1": "3f1e5adc 3e6cf7c8 bf6ae186 bf1a6c7f bd87fbb7 bf30edf0",
    "exponents/1 seed=7 width=1100 subnormals=1": "3ed913fa af6b5f3a 55f7a280 32db20d8 c4c92c68 f6325dec",
    "rows_constant/1 seed=7 exponent=0": "bf3eb6a8 bf3eb6a8 bf3eb6a8 bf1b7fa8 bf1b7fa8 bf1b7fa8",
    "near_constant/1 seed=7 exponent=0 ulps=2": "3f251da7 3f251da9 3f251da8 be9225a3 be9225a2 be9225a3",
    "mean_shift/1 seed=7 exponent=0 mean=8": "437f5cd7 4380a4c3 43807202 437f8884 437f6b63 43802b61",
    "outliers/1 seed=7 exponent=0 factor=8 channels=1": "3e1f3ced bf9b9751 c34f8ea3 3f241ad0 3f13f6c1 c337d1ff",
    "cancelling/1 seed=7 exponent=0 ulps=1": "3eebd059 beebd059 00000000 00000000 3f6023df bf6023df",
    "sparse/1 seed=7 exponent=0 rarity=3": "00000000 00000000 bfa5650f 00000000 3f0b12b4 00000000",
    "integers/1 seed=7 bound=4": "c0000000 00000000 40800000 3f800000 40400000 40800000",
    "ties/1 seed=7 exponent=0 distinct=3": "bf073f66 bf282134 bf073f66 bf282134 bf282134 bf282134",
    "subnormals/1 seed=7": "0005be9b 80007cc8 8004d2ec 80000006 00000001 00000b6b",
    "signed_zeros/1 seed=7 rarity=3": "80000000 00000000 80000000 80000000 80000000 00000000",
    "boundaries/1 seed=7 spread=1 builtin=1": "418aa3d8 c11b3332 b3ffffff 42aea8f6 411b3333 c4800001",
    "huge/1 seed=7 binades=2": "7f3404d3 ff20a19f 7ecc78b0 7f218335 7f5ad111 fe94485d",
    "tiny/1 seed=7 binades=2": "813bdc1c 8129d3be 81475634 80e26242 013cd7a8 810031b5",
    "ramp/1 seed=7 start=0 step=1": "00000000 3f800000 40000000 00000000 3f800000 40000000",
    "onehot/1 seed=7 exponent=0": "3f800000 00000000 00000000 3f800000 00000000 00000000",
    "alternating/1 seed=7 exponent=0": "bf1dd7c3 3f1dd7c3 bf1dd7c3 3f273254 bf273254 3f273254",
    "nonfinite/1 seed=7 exponent=0 rarity=3 kinds=7": "be73674a 3fc08d1a ff800000 3ec83a13 3ee3f296 bf99edc6",
    "indices/1 seed=7 below=16": "00000000 00000000 00000001 0000000c 0000000d 0000000f",
    "indices_edges/1 seed=7 below=16": "0000000b 0000000f 0000000f 0000000f 00000008 00000000",
    "indices_sentinel/1 seed=7 below=16 sentinel=-1 rarity=3": "00000006 0000000d 0000000a 00000007 ffffffff ffffffff",
    "locations/1 seed=7 signed=0": "3f3cd896 be40af0f 3f453317 3ddbe5e0 bdb75e69 3e523384",
    "location_outside/1 seed=7 signed=0": "410cef48 c03c7bc0 40aecf2f 40b9c2a6 40229bdc 40c2b452",
    "location_edges/1 seed=7 signed=0 align=0 spread=1 levels=1 points=1 s0=4 s1=4 s2=4 s3=4 s4=4 s5=4 s6=4 s7=4": (
        "3f800000 bdffffff 3ec00000 3f8fffff 3ec00000 3ebfffff"
    ),
    "prefixes/1 seed=7": "00000001 00000001 00000001 00000001 00000001 00000000",
    "random_bits/1 seed=7": "289169ab ae9a7ed2 bfd6251d a00b8d06 1c13123b e12501e4",
}


@pytest.mark.parametrize("text", GOLDEN)
def test_words(text: str) -> None:
    recipe = Recipe.parse(text)
    d = fitting_dtype(recipe.kind, "float32", "int32")
    assert " ".join(f"{pattern:08x}" for pattern in generate(recipe, (2, 3), d).flat) == GOLDEN[text]
    assert recipe.text() == text


def test_every_recipe_is_written_down() -> None:
    assert {text.split("/")[0] for text in GOLDEN} == set(CURRENT)
