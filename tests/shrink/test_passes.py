"""Every pass: proposes legal cases only, the same ones each time, and comes to an end."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from itertools import islice

import pytest
import torch

from fuzz import size, tensor
from fuzz import target as declare
from fuzz.model.case import Argument, Call, Case, LaunchOptions, Split, sort_key
from fuzz.model.dtypes import DTYPES, from_bits, to_bits
from fuzz.model.edit import base_recipe, with_dtype, with_launch
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import Exact, Recipe, patched, recipe
from fuzz.model.recipes.table import RECIPES
from fuzz.search.engines import RandomEngine
from fuzz.shrink.passes import COARSE, FINE, Pass, write_out_small
from fuzz.shrink.passes.defaults import earlier, plain_dtypes, plain_everything, simpler_layouts
from fuzz.shrink.passes.dims import combinations_of_small_dims, keep_slices, resize
from fuzz.target.loader import load
from fuzz.target.spec import Target

PASSES = tuple(dict.fromkeys((*COARSE, *FINE)))
LOOKED_AT = 120
"""Candidates of one case that are checked."""


def starts(target: Target) -> list[Case]:
    """Small drawn cases, with recipes and with their bits written out."""
    engine = RandomEngine(target, 11)
    drawn = [case for case in map(engine.case, range(60)) if case.elements() < 600][:8]
    launched = [with_launch(case, LaunchOptions(3, 108)) for case in drawn[:1]]
    return [*drawn, *launched, *map(write_out_small, drawn)]


def legal(case: Case, target: Target) -> bool:
    """Whether a target can be asked about a case."""
    for call in case.calls:
        if list(call.dims) != [dim.name for dim in target.sizes] or list(call.arguments) != list(target.tensors):
            return False
        if any(dim.clamp(call.dims[dim.name]) != call.dims[dim.name] for dim in target.sizes):
            return False
        if any(value not in target.options[name].choices for name, value in call.options.items()):
            return False
        for name, value in call.arguments.items():
            if value.dtype not in target.tensors[name].dtypes or not value.layout.fits(len(value.shape)):
                return False
            if value.bits(call.dims).size != math.prod(value.layout.stored(call.shape(name))):
                return False
    return bool(case.calls)


def judged(step: Pass, case: Case, target: Target) -> list[bool]:
    """For each candidate whether it is legal; those that do not fill their tensors are no cases at all."""
    found = []
    for candidate in islice(step(case, target), LOOKED_AT):
        try:
            sort_key(candidate, target.defaults)
        except ValueError:
            continue  # The shrinker drops these: a pass may leave bits that no longer fit.
        found.append(legal(candidate, target))
    return found


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.__name__)
def test_candidates_are_legal_cases(step: Pass, built_in: Target) -> None:
    for case in starts(built_in):
        assert all(judged(step, case, built_in))


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.__name__)
def test_a_pass_proposes_the_same_each_time(step: Pass, built_in: Target) -> None:
    for case in starts(built_in)[::5]:
        first, again = ([candidate.key for candidate in islice(step(case, built_in), LOOKED_AT)] for _ in range(2))
        assert first == again


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.__name__)
def test_a_pass_ends(step: Pass) -> None:
    target = load("layernorm_bw")
    for case in starts(target)[::6]:
        assert sum(1 for _ in step(case, target)) < 60_000


@pytest.mark.parametrize("step", PASSES, ids=lambda step: step.__name__)
def test_a_pass_leaves_the_case_itself_alone(step: Pass, built_in: Target) -> None:
    for case in starts(built_in)[::7]:
        before = case.key
        for _ in islice(step(case, built_in), 50):
            pass
        assert case.key == before


def test_every_pass_makes_some_case_smaller(built_in: Target) -> None:
    engine = RandomEngine(built_in, 2)
    every = [with_launch(engine.case(0), LaunchOptions(1)), *map(engine.case, range(200))]
    drawn = [case for case in every if case.elements() < 400]
    large = [case for case in every if 2000 < case.elements() < 20_000 and len(case.calls) == 1 and not case.split]
    idle = set()
    for step in PASSES:
        if not any(_smaller(step, case, built_in) for case in [*drawn, *map(write_out_small, drawn[:40]), *large]):
            idle.add(step.__name__)
    assert idle <= {"fewer_arguments", "plain_shapes", "fewer_parts", "shorter_parts"} | (
        {"plain_options"} if not built_in.options else set()
    )


def test_what_the_target_does_not_declare_becomes_what_it_does() -> None:
    """A given input, or an entry older than its target, may have other options and dtypes."""
    assert list(earlier(0.5, (1, 2, 3))) == [1, 2, 3] and list(earlier(3, (1, 2, 3))) == [1, 2]


@pytest.mark.parametrize(("old", "new"), [("float16", "float32"), ("float32", "bfloat16")])
def test_values_that_override_a_recipe_are_rounded_to_another_dtype(old: str, new: str) -> None:
    words = to_bits([1.0, -8.0], DTYPES[old]).tolist()
    value = Argument(("N",), old, patched(recipe("normal", 1), ((3, words[0]), (5, words[1]))))
    other = with_dtype(value, new)
    bits = other.bits({"N": 8})
    assert other.dtype == new and from_bits(bits, DTYPES[new])[[3, 5]].tolist() == [1.0, -8.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_recipe_that_does_not_fit_another_dtype_gives_way_to_one_that_does(dtype: str) -> None:
    new = DTYPES[dtype]
    for kind in RECIPES.values():
        old = next(one for one in DTYPES.values() if one.kind in kind.fits)
        one = recipe(kind.name, 7)
        for values in (one, patched(one, ((2, 1),))):
            other = with_dtype(Argument(("N",), old.name, values), dtype)
            assert other.dtype == dtype and len(other.bits({"N": 8})) == 8
            kept = base_recipe(other.values)
            assert kept == one or new.kind not in kind.fits and kept is not None and kept.seed == 7


@pytest.mark.parametrize("step", [plain_dtypes, plain_everything], ids=lambda step: step.__name__)
def test_cotangents_follow_the_dtype_of_the_first_argument(step: Pass) -> None:
    target = load("layer_norm")
    drawn = map(RandomEngine(target, 3).case, range(200))
    case = next(case for case in drawn if case.last.tensors["grad y"].dtype == "bfloat16" and len(case.calls) == 1)
    first = next(iter(case.last.arguments))
    candidates = [candidate.last.tensors for candidate in step(case, target)]
    changed = [tensors for tensors in candidates if tensors[first].dtype == "float32"]
    assert {changed[0][name].dtype for name in (first, "grad y")} == {"float32"}


def _smaller(step: Pass, case: Case, target: Target) -> bool:
    least = sort_key(case, target.defaults)
    for candidate in islice(step(case, target), 200):
        try:
            if sort_key(candidate, target.defaults) < least:
                return True
        except ValueError:
            continue
    return False


def made(bits: tuple[int, ...] = (0x3F9D70A4, 0xC0490FDB), layout: Layout = CONTIGUOUS) -> Case:
    x = Argument(("N",), "float32", Exact(bits, "float32"), layout)
    dy = Argument(("N",), "float32", recipe("ones"))
    return Case("gelu_bw", (Call({"N": 2}, {"dy": dy, "x": x}),))


def candidates(name: str, case: Case) -> list[Case]:
    step = next(step for step in PASSES if step.__name__ == name)
    return list(step(case, load("gelu_bw")))


def x_words(case: Case) -> tuple[int, ...]:
    values = case.last.arguments["x"].values
    assert isinstance(values, Exact)
    return values.bits


def test_zero_chunks_goes_from_all_to_single_elements() -> None:
    found = [x_words(case) for case in candidates("zero_chunks", made())]
    assert found == [(0, 0), (0, 0xC0490FDB), (0x3F9D70A4, 0)]


def test_fewer_bits_reaches_every_number_of_leading_bits() -> None:
    found = {x_words(case)[1] for case in candidates("fewer_bits", made())}
    # -3.1415927: -3 and -4 have fewer significant bits; 3.1415927 is not negative.
    assert {0xC0400000, 0xC0800000, 0x40490FDB} <= found


def test_sorted_values_puts_words_in_order_at_once_and_pair_by_pair() -> None:
    call = replace(made((3, 1, 2)).last, dims={"N": 3})
    found = [x_words(case) for case in candidates("sorted_values", Case("gelu_bw", (call,)))]
    assert found == [(1, 2, 3), (1, 3, 2)]


def test_keep_slices_takes_runs_that_can_be_written_out_from_all_over() -> None:
    call = made().last
    large = {name: replace(value, values=recipe("normal", 3)) for name, value in call.arguments.items()}
    case = Case("gelu_bw", (replace(call, dims={"N": 2000}, arguments=large),))
    bits, found = case.last.arguments["x"].bits(case.last.dims), candidates("keep_slices", case)
    places = [next(at for at in range(2000) if bits[at] == x_words(one)[0]) for one in found]
    assert places == list(range(0, 1488, 256)) + [1488]
    for place, one in zip(places, found, strict=True):
        assert one.last.dims == {"N": 512} and x_words(one) == tuple(bits[place : place + 512].tolist())
    assert candidates("keep_slices", made()) == []
    other = replace(large["x"], shape=("K",))
    empty = Call({"N": 0, "K": 2000}, {"x": large["x"], "other": other})
    with_sizes = copy(load("gelu_bw"))
    with_sizes.sizes = (size("N", 0, 8), size("K", 1, 4096))
    assert [one.last.dims for one in keep_slices(Case("t", (empty,)), with_sizes)][:1] == [{"N": 0, "K": 512}]


def test_plain_numbers_tries_1_for_every_element() -> None:
    found = {x_words(case) for case in candidates("plain_numbers", made())}
    assert {(0x3F800000, 0xC0490FDB), (0x3F9D70A4, 0x3F800000), (0x3F800000, 0x3F800000)} <= found


def test_plain_numbers_makes_truth_values_of_truth_values() -> None:
    mask = Argument(("N",), "bool", Exact((1, 0), "bool"))
    case = Case("gelu_bw", (Call({"N": 2}, {"dy": mask, "x": mask}),))
    assert {x_words(one) for one in candidates("plain_numbers", case)} == {(1, 0)}


def test_halve_dims_tries_the_least_first() -> None:
    case = made((1, 2))
    large = replace(case, calls=(replace(case.last, dims={"N": 64}, arguments={
        name: replace(value, values=recipe("normal", 1)) for name, value in case.last.arguments.items()
    }),))  # fmt: skip
    sizes = [one.last.dims["N"] for one in candidates("smaller_dims", large)]
    assert sizes[0] == 1 and 33 in sizes and sizes[-1] == 63


def test_fewer_calls_tries_each_call_alone() -> None:
    case = made()
    three = replace(case, calls=tuple(made((index, 0)).last for index in range(3)))
    alone = [one for one in candidates("fewer_calls", three) if len(one.calls) == 1]
    assert {x_words(one)[0] for one in alone} == {0, 1, 2}
    assert candidates("fewer_calls", case) == []


def test_smaller_split_tries_none_first() -> None:
    found = [case.split for case in candidates("smaller_split", replace(made(), split=Split(1, 2, 3, 4)))]
    assert found[0] is None and Split(0, 1) in found and Split(1, 2, 0, 4) in found and Split(1, 2, 3, 4) not in found


LAYOUTS = [
    Layout(offset=5),
    Layout(pad=4),
    Layout(pad=4, offset=2),
    Layout(step=3),
    Layout(expand=(0,)),
    Layout(expand=(0, 1)),
    Layout(order=(1, 0)),
    Layout(reach=30),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_simpler_layouts_start_with_the_default_and_come_to_an_end(layout: Layout) -> None:
    found = list(simpler_layouts(layout, 2))
    assert found[0] == CONTIGUOUS
    assert list(simpler_layouts(CONTIGUOUS, 2)) == []


def test_written_words_are_the_same_bits(built_in: Target) -> None:
    for case in starts(built_in)[:12]:
        written = write_out_small(case)
        for call, other in zip(case.calls, written.calls, strict=True):
            for name, value in call.tensors.items():
                assert isinstance(other.tensors[name].values, Exact) or isinstance(value.values, Recipe)
                assert (value.bits(call.dims) == other.tensors[name].bits(other.dims)).all()


def test_sizes_are_those_of_their_dim_in_whatever_order_a_case_lists_them() -> None:
    """An entry may be older than the order of the target's arguments."""
    rows, columns = size("M", 1, 8), size("N", 64, 512, multiple_of=64)

    @declare(x=tensor(rows), y=tensor(columns), reference=lambda x, y: dict(out=x.sum() + y.sum()))
    def sums(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return dict(out=x.sum() + y.sum())

    case = RandomEngine(sums, 0).case(0)
    turned = case.with_call(0, replace(case.last, dims={"N": 128, "M": 8}))
    proposed = [made.last.dims for made in combinations_of_small_dims(turned, sums)]
    assert {"N": 64, "M": 1} in proposed and all(dims["N"] % 64 == 0 for dims in proposed)


def test_one_dim_grows_where_another_shrinks_more_however_many_dims_there_are() -> None:
    """msda has nine dims: two queries of one place each have 16 elements, one query of two places has 15."""
    target = load("msda")
    least = {dim.name: dim.least for dim in target.sizes}
    case = resize(RandomEngine(target, 0).case(0), target, 0, {**least, "Q": 2})
    proposed = list(combinations_of_small_dims(case, target))
    assert {**least, "P": 2} in [made.last.dims for made in proposed if made.elements() < case.elements()]
    assert all(made.elements() <= case.elements() for made in proposed)
