"""Infinities and NaN of the kinds that a target allows, in everything that is drawn, mutated, graded and shrunk."""

from __future__ import annotations

from itertools import islice
from random import Random

import numpy as np
import pytest

from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.recipes import Patched, exact, recipe
from fuzz.search.engines import RandomEngine
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.mutations import MUTATIONS, MutationContext, mutate
from fuzz.target.arguments import size, tensor
from fuzz.target.legal import make_call_legal
from fuzz.target.nonfinite import parse_nonfinite
from fuzz.target.spec import Target, declare
from fuzz.triage.input_classes import plans

N = size("N", 1, 64)
FLOAT = named_dtype("float32")


def make(**nonfinite: str) -> Target:
    return declare(
        lambda x, mask: {"y": x}, name="t", x=tensor(N), mask=tensor(N), nonfinite=nonfinite, dtypes=("float32",)
    )


def numbers(case: Case, name: str) -> np.ndarray:
    return np.concatenate([from_bits(call.arguments[name].bits(call.dims), FLOAT).reshape(-1) for call in case.calls])


def test_only_the_declared_kinds_are_drawn_and_mutated() -> None:
    target = make(mask="-inf")
    engine, context = RandomEngine(target, 0), MutationContext(target, Dictionary(), Random(0))
    drawn = [engine.case(number) for number in range(150)]
    drawn += [mutate(case, context, MUTATIONS, 3) for case in drawn]
    drawn += [plan for name in ("special", "extreme") for plan in islice(plans(drawn[0], target, name), 40)]
    masks = np.concatenate([numbers(case, "mask") for case in drawn])
    assert np.isneginf(masks).any() and not np.isposinf(masks).any() and not np.isnan(masks).any()
    assert np.isfinite(np.concatenate([numbers(case, "x") for case in drawn])).all()


def test_other_kinds_become_the_nearest_finite_number() -> None:
    given = np.array([np.inf, -np.inf, np.nan, 1.5], dtype=np.float32)
    largest = float(np.finfo(np.float32).max)
    patched = Patched(recipe("zeros"), ((0, FLOAT.inf_bits), (1, FLOAT.inf_bits | FLOAT.sign_mask)))
    for values, expected in (
        (exact(np.asarray(to_bits(given, FLOAT)), FLOAT), [largest, -np.inf, 0.0, 1.5]),
        (patched, [0.0, -np.inf, 0.0, 0.0]),
        (Patched(recipe("zeros"), ((0, FLOAT.inf_bits),)), [0.0] * 4),
        (recipe("nonfinite", 3, kinds=7, rarity=0), [-np.inf] * 4),
        (recipe("nonfinite", 3, kinds=1, rarity=0), [-np.inf] * 4),
    ):
        call = Call({"N": 4}, {name: Argument(("N",), "float32", values) for name in ("x", "mask")})
        legal = make_call_legal(call, make(mask="-inf"))
        assert from_bits(legal.arguments["mask"].bits(call.dims), FLOAT).tolist() == expected
        assert make_call_legal(legal, make(mask="-inf")) is legal


def test_names_alone_allow_all_kinds() -> None:
    assert parse_nonfinite(("x", "y")) == {"x": 7, "y": 7}
    assert parse_nonfinite({"x": ("inf", "nan")}) == {"x": 5}


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(TargetError, match="the kinds are inf, -inf, nan"):
        make(mask="+inf")
