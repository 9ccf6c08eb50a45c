"""What engines make of cases by mutating them is legal, can be saved, and is no larger than it may be."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from fuzz.corpus import codec
from fuzz.model.case import Case, sort_key
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits
from fuzz.model.entry import Entry
from fuzz.search.engines import RandomEngine
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.mutations import (
    MAX_TENSOR,
    MUTATIONS,
    MutationContext,
    known_dim,
    known_values,
    mutate,
    other_bits,
    set_dim,
)
from fuzz.target.legal import make_legal
from fuzz.target.loader import load
from fuzz.target.spec import Target

NUMBERS = [4097, 12.5, 0x41200000, -3.0, 1e-8, 100, 7]


def make_context(target: Target, seed: int = 0) -> MutationContext:
    dictionary = Dictionary()
    dictionary.add(NUMBERS)
    return MutationContext(target, dictionary, Random(seed))


def chain(target: Target, length: int) -> list[Case]:
    context, case, found = make_context(target), RandomEngine(target, 3).case(2), []
    for number in range(length):
        if number % 20 == 0:
            case = RandomEngine(target, 3).case(2 + number)
        case = mutate(case, context, MUTATIONS, 1)
        found.append(case)
    return found


def test_mutated_cases_are_legal_and_can_be_saved(built_in: Target) -> None:
    for case in chain(built_in, 60):
        assert make_legal(case, built_in) == case
        sort_key(case, built_in.defaults)
        assert codec.loads(codec.dumps(Entry(case)).encode()).case == case
        for dim in built_in.sizes:
            assert dim.clamp(case.last.dims[dim.name]) == case.last.dims[dim.name]
        for name, value in case.last.tensors.items():
            shape = case.last.shape(name)
            assert math.prod(shape) <= 8 * MAX_TENSOR and value.layout.fits(len(shape))
            if math.prod(shape) <= 4096:
                numbers = from_bits(value.bits(case.last.dims), named_dtype(value.dtype))
                assert name in built_in.nonfinite or np.isfinite(numbers).all()


def test_mutations_change_everything_that_a_case_has() -> None:
    target = load("layernorm_bw")
    seen = chain(target, 400)
    assert len({case.key for case in seen}) > 300
    for what in (
        {tuple(case.last.dims.values()) for case in seen},
        {value.dtype for case in seen for value in case.last.tensors.values()},
        {value.layout.kind for case in seen for value in case.last.tensors.values()},
        {tuple(case.last.options.values()) for case in seen},
        {type(value.values).__name__ for case in seen for value in case.last.tensors.values()},
    ):
        assert len(what) > 1


def test_the_dictionary_gives_sizes_and_words_beside_its_numbers() -> None:
    target = load("layernorm_bw")
    context, case = make_context(target), RandomEngine(target, 0).case(1)
    sizes = {made.last.dims["N"] for _ in range(200) if (made := known_dim(case, context))}
    assert {4096, 4097, 4098, 99, 100, 101, 6, 7, 8} <= sizes
    assert context.dictionary.centres(named_dtype("float32")).count(0x41200000) == 1
    bits = context.dictionary.patterns(named_dtype("float32"))
    one = 0x41480000  # 12.5
    assert {one - 1, one, one + 1, one | 1 << 31} <= set(bits)
    assert set(context.dictionary.centres(named_dtype("int8"))) == {100, 7, 256 - 100, 256 - 7, 256 - 3, 3}
    for _ in range(20):
        made = known_values(case, context)
        assert made is not None and "boundaries" in {getattr(v.values, "name", "") for v in made.last.tensors.values()}


@pytest.mark.parametrize("size", [1, 8192])
def test_where_one_dim_is_large_the_others_become_small(size: int) -> None:
    target = load("layernorm_bw")
    case = RandomEngine(target, 0).case(1)
    call = replace(case.last, dims={"M": 4096, "N": 3})
    made = set_dim(replace(case, calls=(call,)), make_context(target), "N", size)
    assert made is not None and made.last.dims["N"] == size
    assert made.last.dims["M"] == 4096 if size == 1 else made.last.dims["M"] <= 3


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_the_place_of_a_nan_takes_another_word(name: str) -> None:
    kind, context = named_dtype(name), MutationContext(load("gelu_bw"), Dictionary(), Random(0))
    bits = {other_bits(kind.inf_bits + 1, 0, 0, kind, context) for _ in range(200)}
    assert len(bits) > 20 and all(0 <= pattern <= kind.max_bits for pattern in bits)
