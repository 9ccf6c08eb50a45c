"""Draws inputs of one class that are like a case: its calls, dtypes, options and launch options stay.

The plans of a class come in the order of how ordinary they are, so that the first one that shows a finding is its
typical case. They depend on the case and the class alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np

from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import resolve
from fuzz.model.dtypes import DType, from_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import CURRENT, Recipe, recipe
from fuzz.search.strategies import draw_dims, draw_layout, draw_split, draw_values, largest_within
from fuzz.target.arguments import TensorArgument
from fuzz.target.legal import make_call_legal
from fuzz.target.spec import Target

Numbers = Mapping[str, int]
Variant = tuple[str, Numbers]
"""A recipe's name with parameters; the names below stand for a choice that each tensor makes alone."""
MIXED, EQUAL = "mixed", "equal"
ORDINARY_SCALES, SPECIAL = (-7, 13), 32
"""Standard deviations of normal values of 2^-10 to 2^16, and the largest exponent of special values, as powers of 2."""
ORDINARY_SIZES, SMALL_SHARE = (-14, 16), 0.1
"""Powers of 2 between which ordinary values are, and the share of them that may be smaller: normal values near 0."""
MAX_ELEMENTS = 1 << 20
"""Elements of all tensors of the largest case that is not extreme by its size."""
REALISTIC_ELEMENTS, FEW, MANY = 1 << 11, 4, 512
"""The elements of the largest tensor of a realistic case, and the sizes of its dims: few rows of many columns."""
DRAWN_BUDGETS = (((1, 1 << 11),), ((1, 1 << 14),))
"""Budgets of elements of the other shapes."""
NEAR_LIMIT = 7
"""Values of a standard deviation as many powers of 2 from the ends of the dtype's range are not near its limits."""
MANTISSA_BITS = {"constant": 8}
"""Bits of a recipe's mantissa, where its values may be so many powers of 2 larger than its exponent says."""

VARIANTS: dict[str, tuple[Variant, ...]] = {
    "ordinary": (
        ("normal", {"exponent": 0}),
        ("normal", {"exponent": 3}),
        ("uniform", {"exponent": 0, "signed": 0}),
        ("normal", {"exponent": 6}),
        (MIXED, {}),
        ("normal", {"exponent": -5}),
        ("normal", {"exponent": 12}),
        ("sparse", {"exponent": 0, "rarity": 1}),
        (MIXED, {}),
    ),
    "special": (
        ("ones", {}), ("integers", {"bound": 4}), ("rows_constant", {}), ("ties", {}), ("mean_shift", {}),
        ("outliers", {}), ("cancelling", {}), ("near_constant", {}), ("ramp", {}), ("onehot", {}),
        ("alternating", {}), ("signed_zeros", {}), ("mean_shift", {"mean": 12}), ("exponents", {}),
        (EQUAL, {}), (MIXED, {}), (MIXED, {}), (MIXED, {}), (MIXED, {}), (MIXED, {}),
    ),
    "layout": (("normal", {"exponent": 0}), (MIXED, {}), ("normal", {"exponent": 0}), (MIXED, {}), (EQUAL, {})),
    "extreme": (
        ("exponents", {}), ("huge", {}), ("boundaries", {}), ("subnormals", {}), ("tiny", {}), (MIXED, {}), (MIXED, {}),
    ),
}  # fmt: skip
"""What the values of a class are drawn from, the most ordinary first."""
CHOICES = {
    "ordinary": (*VARIANTS["ordinary"][:4], *VARIANTS["ordinary"][5:8], ("zeros", {})),
    "special": (*VARIANTS["special"][:14], ("zeros", {}), ("constant", {}), *VARIANTS["ordinary"][:2]),
    "layout": (("normal", {"exponent": 0}), ("ones", {}), ("integers", {"bound": 4}), ("exponents", {})),
    "extreme": (*VARIANTS["extreme"][:5], *VARIANTS["ordinary"][:2], ("ones", {}), ("zeros", {})),
}
"""What a tensor's values are drawn from where each tensor chooses alone."""


def plans(case: Case, target: Target, input_class: str, most: int | None = None) -> Iterator[Case]:
    """The plans of a class, whose replicas are its inputs; none where the case's tensors leave no choice.

    With `most` so many of them or fewer, spread over values and sizes.
    """
    seen = set()
    random = Random(f"{target.name} {input_class}")
    sizes = list(shapes(case, target, random, input_class))
    choices = list(product(VARIANTS[input_class], sizes))
    for variant, dims in choices[:: stride(len(choices), len(sizes), most)]:
        plan = make_plan(case, target, input_class, variant, dims, random)
        if plan.key not in seen:
            seen.add(plan.key)
            yield plan


def stride(count: int, sizes: int, most: int | None) -> int:
    """The step by which `count` choices are taken, so that at most `most` are, and of several sizes."""
    if most is None or count <= most:
        return 1
    step = math.ceil(count / max(most, 1))
    return step + (sizes > 1 and step % sizes == 0)


def shapes(case: Case, target: Target, random: Random, input_class: str) -> Iterator[dict[str, int]]:
    """Sizes of the last call: realistic ones, those with what the case needs of each dim, drawn ones, the case's."""
    least, realistic = dict(case.last.dims), realistic_dims(target)
    larger = {name: max(size, least.get(name, 0)) for name, size in realistic.items()}
    drawn = [draw_dims(random.randrange, target, budget) for budget in DRAWN_BUDGETS]
    limit = math.inf if input_class == "extreme" else MAX_ELEMENTS
    unique = {tuple(dims.items()): dims for dims in (realistic, larger, *drawn, least)}
    yield from (dims for dims in unique.values() if replace(case.last, dims=dims).elements() <= limit)


def realistic_dims(target: Target) -> dict[str, int]:
    """Few rows of many columns: the last dims are the largest, as far as a tensor of realistic size has room."""
    dims = {dim.name: dim.clamp(FEW) for dim in target.sizes}
    for dim in reversed(target.sizes):
        dims[dim.name] = max(
            dims[dim.name], dim.clamp(min(MANY, largest_within(target, dims, dim, REALISTIC_ELEMENTS)))
        )
    return dims


def make_plan(
    case: Case, target: Target, input_class: str, variant: Variant, dims: Mapping[str, int], random: Random
) -> Case:
    """The case with other sizes, values and layouts; a dim that differs between its calls keeps its size."""
    last = case.last.dims
    calls = []
    for call in case.calls:
        sizes = {name: dims[name] if size == last[name] else size for name, size in call.dims.items()}
        calls.append(make_call(replace(call, dims=sizes), target, input_class, variant, random))
    split = None
    if case.split and target.batch_dim:
        split = draw_split(random.randrange, calls[-1].dims[target.batch_dim])
    return Case(case.target, tuple(calls), split)


def make_call(call: Call, target: Target, input_class: str, variant: Variant, random: Random) -> Call:
    first: dict[object, Recipe] = {}
    for name, value in call.tensors.items():
        values = make_values(target, name, value, input_class, variant, random)
        if variant[0] == EQUAL:
            values = first.setdefault((value.shape, value.dtype, name in target.nonfinite), values)
        layout = make_layout(value.layout, resolve(value.shape, call.dims), input_class, random)
        call = call.with_argument(name, replace(value, values=values, layout=layout))
    return make_call_legal(call, target)


def make_layout(layout: Layout, shape: tuple[int, ...], input_class: str, random: Random) -> Layout:
    """The case's layout or another one where the class has any; no huge strides but in extreme inputs."""
    if input_class in ("ordinary", "special"):
        return CONTIGUOUS
    drawn = layout if random.randrange(2) else draw_layout(random.randrange, shape)
    return replace(drawn, reach=0) if input_class == "layout" else drawn


def make_values(
    target: Target, name: str, value: Argument, input_class: str, variant: Variant, random: Random
) -> Recipe:
    """A recipe of the class for one tensor."""
    seed, kind = random.randrange(1 << 16), named_dtype(value.dtype)
    declared = target.tensors.get(name)
    if declared and declared.recipes:
        return _declared_values(target, name, declared, value.dtype, input_class, random)
    if variant[0] in (MIXED, EQUAL):
        variant = random.choice(CHOICES[input_class])
        if name in target.nonfinite and input_class != "ordinary" and random.randrange(2):
            variant = "nonfinite", {"kinds": 2 if input_class != "extreme" else 7}
    recipe_name, params = variant
    if kind.kind not in CURRENT[recipe_name].fits:
        recipe_name, params = ("random_bits", {}) if kind.kind == "bool" else ("integers", {})
    drawn = {
        key: random.randint(*limits) for key, limits in CURRENT[recipe_name].params.items() if input_class != "ordinary"
    }
    return recipe(recipe_name, seed, **_limited(recipe_name, {**drawn, **params}, kind, input_class))


def _declared_values(
    target: Target, name: str, declared: TensorArgument, dtype: str, input_class: str, random: Random
) -> Recipe:
    """Values of an argument whose values have a meaning of their own: the first recipe's for ordinary inputs."""
    if input_class == "ordinary":
        return recipe(declared.recipes[0][1], random.randrange(1 << 16))
    return draw_values(random.randrange, target, name, declared, dtype)


def _limited(name: str, params: Numbers, kind: DType, input_class: str) -> dict[str, int]:
    """The parameters with an exponent that keeps values in the class, and away from the limits of the dtype."""
    limited = dict(params)
    if kind.is_float and input_class != "extreme":
        special = min(SPECIAL, kind.bias - NEAR_LIMIT)
        if "exponent" in limited:
            spread = sum(limited.get(key, 0) for key in ("mean", "factor")) + MANTISSA_BITS.get(name, 0)
            low, high = ORDINARY_SCALES if input_class == "ordinary" else (-special, special)
            low, high = max(low, -special), min(high, special - spread)
            limited["exponent"] = max(low, min(limited["exponent"], high))
        if name == "exponents":
            limited |= {"width": special, "subnormals": 0}
    return limited


def classify_drawn(case: Case, target: Target) -> str:
    """The class of a case as an engine proposed it: ordinary where most of its values are of ordinary size."""
    input_class = classify(case, target)
    tensors = [(call, value) for call in case.calls for value in call.tensors.values()]
    is_ordinary = input_class == "special" and all(_is_ordinary(value, call) for call, value in tensors)
    return "ordinary" if is_ordinary else input_class


def is_usual(case: Case, target: Target) -> bool:
    """Whether a case is none of extreme inputs."""
    return classify(case, target) != "extreme"


def _is_ordinary(value: Argument, call: Call) -> bool:
    """Whether no value is larger than ordinary ones, and only as many are smaller as normal values have near 0."""
    if not value.is_float:
        return True
    numbers = np.abs(from_bits(value.bits(call.dims), named_dtype(value.dtype)))
    small = (numbers != 0) & (numbers < 2.0 ** ORDINARY_SIZES[0])
    return bool((numbers <= 2.0 ** ORDINARY_SIZES[1]).all()) and small.sum() <= SMALL_SHARE * np.count_nonzero(numbers)


def classify(case: Case, target: Target) -> str:
    """The class of a case that no drawn input is like: special at best, since what is ordinary would be drawn."""
    tensors = [(call, name, value) for call in case.calls for name, value in call.tensors.items()]
    huge = case.elements() > MAX_ELEMENTS or case.has_huge_stride()
    if huge or any(_is_extreme(value, call, name in target.nonfinite) for call, name, value in tensors):
        return "extreme"
    return "layout" if any(value.layout != CONTIGUOUS for _, _, value in tensors) else "special"


def _is_extreme(value: Argument, call: Call, nonfinite: bool) -> bool:
    """Whether a value is none of a special input."""
    if not value.is_float:
        return False
    kind = named_dtype(value.dtype)
    numbers = np.abs(from_bits(value.bits(call.dims), kind)).astype(np.float64)
    allowed = np.isneginf(from_bits(value.bits(call.dims), kind)) if nonfinite else np.zeros(numbers.shape, bool)
    low, high = max(2.0**-SPECIAL, kind.smallest_normal), min(2.0**SPECIAL, kind.largest / 2)
    return bool((~(allowed | (numbers == 0) | ((numbers >= low) & (numbers <= high)))).any())
