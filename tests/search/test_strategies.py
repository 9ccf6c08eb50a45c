"""What cases are drawn: every one is legal, nothing that matters is rare, and a seed gives the same ones always."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise, product
from pathlib import Path
from typing import NoReturn

import pytest

from fuzz import indices, option, size, target, tensor
from fuzz.backends import BACKENDS
from fuzz.backends.base import DOUBLING_PLANS, FIRST_PLANS, ReplicaLimits
from fuzz.model.case import SEED_STRIDE, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.entry import digest
from fuzz.model.layout import KINDS
from fuzz.model.recipes import CURRENT, Recipe
from fuzz.search.engines import EngineScheduler, RandomEngine, make_scheduler
from fuzz.search.statistics import LARGE
from fuzz.target.loader import load
from fuzz.target.spec import Target

COUNT = 2000
LARGEST = 1 << 23
"""Elements of a case that a small machine can still take."""


@cache
def drawn(name: str) -> tuple[Case, ...]:
    """The first cases of seed 0, as a run has them."""
    groups = EngineScheduler([RandomEngine(load(name), 0)]).plans()
    replicas = (plan.replica(number) for plan, size in groups for number in range(size))
    return tuple(islice(replicas, COUNT))


def tensors_of(case: Case) -> list[object]:
    return [value for call in case.calls for value in call.tensors.values()]


@pytest.mark.parametrize("name", ["gelu_bw", "layernorm_bw"])
def test_one_case_in_a_hundred_is_large(name: str) -> None:
    assert sum(case.elements() > LARGE for case in drawn(name)) >= COUNT / 100


def test_no_case_is_larger_than_a_small_machine_can_take(built_in: Target) -> None:
    assert max(case.elements() for case in drawn(built_in.name)) <= LARGEST


def test_every_dims_extremes_occur(built_in: Target) -> None:
    for dim in built_in.sizes:
        sizes = {call.dims[dim.name] for case in drawn(built_in.name) for call in case.calls}
        assert (min(sizes), max(sizes)) == (dim.low, dim.high), dim.name


def test_sizes_beside_powers_of_two_are_common(built_in: Target) -> None:
    near = Counter(
        bits
        for case in drawn(built_in.name)
        for size in case.last.dims.values()
        for bits in range(1, 12)
        if abs(size - (1 << bits)) <= 1
    )
    assert all(near[bits] >= COUNT / 200 for bits in range(1, 8)), near


def test_every_recipe_that_fits_is_in_one_case_of_two_hundred(built_in: Target) -> None:
    general = {name: kind for name, kind in CURRENT.items() if "float" in kind.fits and kind.general}
    fitting = {name for name, kind in general.items() if kind.finite or built_in.nonfinite}
    found = Counter(
        name
        for case in drawn(built_in.name)
        for name in {v.values.name for c in case.calls for v in c.tensors.values()}
    )  # type: ignore[union-attr]
    assert set(found) == fitting
    assert min(found.values()) >= COUNT / 200, found


def test_every_dtype_and_layout_is_in_one_case_of_two_hundred(built_in: Target) -> None:
    dtypes = Counter(name for case in drawn(built_in.name) for name in {v.dtype for v in case.last.tensors.values()})
    assert set(dtypes) == {"float32", "bfloat16", "float16"} and min(dtypes.values()) >= COUNT / 200
    layouts = Counter(
        name for case in drawn(built_in.name) for name in {v.layout.kind for v in case.last.tensors.values()}
    )
    vectors = {"contiguous", "strided", "misaligned", "expanded"}
    matrices = any(len(argument.shape) > 1 for argument in built_in.tensors.values())
    assert set(layouts) == (set(KINDS) if matrices else vectors)
    assert min(layouts.values()) >= COUNT / 200, layouts


def test_dtypes_of_arguments_differ_now_and_then(layernorm: Target) -> None:
    mixed = sum(len({value.dtype for value in case.last.arguments.values()}) > 1 for case in drawn("layernorm_bw"))
    assert COUNT / 20 < mixed < COUNT / 2


def test_every_option_calls_and_splits_occur(layernorm: Target) -> None:
    cases = drawn("layernorm_bw")
    options = Counter(case.last.options["eps"] for case in cases)
    assert set(options) == {1e-5, 1e-6, 1e-12} and min(options.values()) > COUNT / 10
    calls = Counter(len(case.calls) for case in cases)
    assert set(calls) == {1, 2, 3} and min(calls.values()) >= COUNT / 200
    splits = [case.split for case in cases if case.split]
    assert COUNT / 20 < len(splits) < COUNT / 2
    assert any(split.before and split.after for split in splits) and any(
        not split.before + split.after for split in splits
    )
    assert any(split.length == 1 for split in splits) and any(split.length > 1 for split in splits)


def test_values_are_nonfinite_only_where_the_target_allows_them() -> None:
    names = {value.values.name for case in drawn("layernorm_bw") for value in case.last.tensors.values()}  # type: ignore[union-attr]
    assert "nonfinite" not in names


def test_a_targets_constants_reach_its_values() -> None:
    found = [
        value.values
        for case in drawn("gelu_bw")
        for value in case.last.tensors.values()
        if isinstance(value.values, Recipe) and value.values.name == "boundaries"
    ]
    assert any(("c0", -3.7) in values.params for values in found)


def test_every_case_is_legal(built_in: Target) -> None:
    for case in drawn(built_in.name):
        assert case.target == built_in.name and 1 <= len(case.calls) <= 3
        for call in case.calls:
            assert list(call.dims) == [dim.name for dim in built_in.sizes]
            assert all(dim.clamp(call.dims[dim.name]) == call.dims[dim.name] for dim in built_in.sizes)
            assert list(call.arguments) == list(built_in.tensors)
            assert all(value in built_in.options[name].choices for name, value in call.options.items())
            for name, value in call.arguments.items():
                shape = call.shape(name)
                assert value.dtype in built_in.tensors[name].dtypes and value.layout.fits(len(shape))
                assert min(value.layout.strides(shape), default=0) >= 0
        if case.split:
            rows = case.last.dims[built_in.batch or ""]
            assert 0 <= case.split.start and 1 <= case.split.length <= rows - case.split.start


def test_every_cases_words_fill_its_tensors(built_in: Target) -> None:
    small = [case for case in drawn(built_in.name) if case.elements() < 1 << 12][:400]
    for case in small:
        for call in case.calls:
            for name, value in call.tensors.items():
                bits = value.bits(call.dims)
                assert bits.dtype == named_dtype(value.dtype).unsigned
                assert bits.size == math.prod(value.layout.stored(call.shape(name)))


def test_a_seeds_cases_do_not_depend_on_what_was_drawn_before(built_in: Target) -> None:
    first, again = RandomEngine(built_in, 0), RandomEngine(built_in, 0)
    for number in (1999, 3, 700, 3):
        assert again.case(number).key == first.case(number).key


@pytest.mark.parametrize("limits", [BACKENDS[name].replica_limits(guided=False) for name in ("cpu", "cuda")])
def test_the_first_plans_have_one_replica_or_few_and_later_ones_as_many_as_are_small_together(
    built_in: Target, limits: ReplicaLimits
) -> None:
    engine = RandomEngine(built_in, 0, limits=limits)
    groups = list(islice(EngineScheduler([engine]).plans(), FIRST_PLANS + DOUBLING_PLANS))
    assert max(size for _, size in groups[:FIRST_PLANS]) == limits.first
    assert max(size for _, size in groups) == limits.replicas
    assert all(size == 1 or size * plan.elements() <= limits.elements for plan, size in groups)
    large = sum(size for plan, size in groups[FIRST_PLANS:] if plan.elements() > 1 << 16)
    assert large >= 0.01 * sum(size for _, size in groups[FIRST_PLANS:])


def test_the_first_plans_of_random_have_as_many_replicas_as_a_run_asks_for(built_in: Target) -> None:
    def start_process(folder: Path) -> NoReturn:
        raise AssertionError("the engine random starts no process")

    limits = BACKENDS["cpu"].replica_limits(guided=False)
    assert limits.first < 64
    scheduler = make_scheduler("random", built_in, "cpu", 0, (), start_process, first_replicas=64)
    groups = list(islice(scheduler.plans(), 40))
    assert max(size for _, size in groups) == 64


def test_later_plans_have_up_to_four_times_as_many_replicas(built_in: Target) -> None:
    limits = BACKENDS["cpu"].replica_limits(guided=False)
    engine = RandomEngine(built_in, 0, limits=limits)
    most = []
    for doublings in (0, 1, 2):
        engine.first = FIRST_PLANS + doublings * DOUBLING_PLANS
        proposals = [engine.propose() for _ in range(100)]
        assert all(
            each.replica_count * each.plan.elements() <= 4 * limits.elements
            for each in proposals
            if each.replica_count > 1
        )
        most.append(max(each.replica_count for each in proposals))
    assert most == [limits.replicas, 2 * limits.replicas, 4 * limits.replicas]
    assert limits.at(100 * FIRST_PLANS) == limits.at(FIRST_PLANS + 2 * DOUBLING_PLANS) and limits.at(0) == limits


def test_replicas_differ_in_their_seeds_alone(built_in: Target) -> None:
    plan = RandomEngine(built_in, 0).case(FIRST_PLANS + 1)
    one, two = plan.replica(1), plan.replica(2)
    assert plan.replica(0) is plan and len({plan.key, one.key, two.key}) == 3
    for name, value in plan.last.tensors.items():
        again = two.last.tensors[name]
        assert isinstance(value.values, Recipe) and isinstance(again.values, Recipe)
        assert again.values.seed == value.values.seed + 2 * SEED_STRIDE
        assert replace(again, values=value.values) == value
    assert (one.last.dims, one.last.options, one.split) == (plan.last.dims, plan.last.options, plan.split)


def test_replicas_may_share_their_integers() -> None:
    drawn = RandomEngine(load("cross_entropy"), 0).case(FIRST_PLANS + 1)
    plan = replace(drawn, shares_integers=True)
    other, own = plan.replica(3).last.tensors, drawn.replica(3).last.tensors
    assert plan == drawn and plan.replica(3) != drawn.replica(3)
    for name, value in plan.last.tensors.items():
        assert other[name] == (own[name] if value.is_float else value)


def test_other_seeds_give_other_cases(built_in: Target) -> None:
    other = RandomEngine(built_in, 1)
    same = sum(other.case(index).key == drawn(built_in.name)[index].key for index in range(100))
    assert same < 5


def test_another_process_draws_the_same_cases() -> None:
    program = """
import sys
from fuzz.search.engines import RandomEngine
from fuzz.model.entry import digest
from fuzz.target.loader import load
for name in sys.argv[1:]:
    engine = RandomEngine(load(name), 0)
    print(*(digest(engine.case(index)) for index in range(5, 25) if engine.case(index).elements() < 4096))
"""
    names = "layernorm_bw", "gelu_bw"
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, timeout=300)
    wanted = []
    for name in names:
        cases = map(RandomEngine(load(name), 0).case, range(5, 25))
        wanted += [digest(case) for case in cases if case.elements() < 4096]
    assert done.stdout.split() == wanted, done.stderr


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_adversarial_cases_come_early(layernorm: Target, seed: int) -> None:
    engine = RandomEngine(layernorm, seed)
    early = [engine.case(index) for index in range(60)]
    kinds = {value.layout.kind for case in early for value in case.last.tensors.values()}
    names = {value.values.name for case in early for value in case.last.tensors.values()}  # type: ignore[union-attr]
    assert len(kinds) >= 6 and len(names) >= 15
    assert {1} <= {case.last.dims["M"] for case in early} and {1} <= {case.last.dims["N"] for case in early}


def test_two_arguments_of_one_shape_now_and_then_hold_the_same_values(layernorm: Target) -> None:
    calls = [RandomEngine(layernorm, 0).case(number).last for number in range(300)]
    pairs = [(call.arguments["dy"], call.arguments["x"]) for call in calls]
    copies = sum(dy.values == x.values for dy, x in pairs if dy.dtype == x.dtype)
    assert 300 / 32 < copies < 300 / 4


def test_cotangents_have_the_dtype_of_the_first_floating_argument() -> None:
    """Not of indices, which an embedding takes first."""
    N, V, D = size("N", 1, 9), size("V", 1, 9), size("D", 1, 9)

    def launcher(ids, weight, bias):
        raise NotImplementedError

    declared = target(
        ids=indices(N, below=V), weight=tensor(V, D) | None, bias=tensor(D, dtypes=("float32",)) | None,
        differentiable=dict(y=tensor(N, D)), reference=lambda ids, weight, bias: dict(y=weight[ids] + bias),
    )(launcher)  # fmt: skip
    drawn = set()
    for case in map(RandomEngine(declared, 0).case, range(200)):
        given = case.last.arguments
        first = given.get("weight") or given.get("bias")
        assert case.last.cotangents["y"].dtype == (first.dtype if first else "float32")
        drawn.add(first.dtype if first else "")
    assert drawn == {"", "float32", "bfloat16", "float16"}


def written_layouts(overlapping: bool) -> dict[str, set[str]]:
    """The kinds of layouts of drawn calls: of an argument that is written, of one that an option asks to write, on and
    off, and of a cotangent that is written."""
    M, N = size("M", 2, 9), size("N", 2, 9)
    rows = tensor(M, N, overlapping=overlapping)

    def launcher(state, x, inplace):
        raise NotImplementedError

    written = {"state": "", "x": "inplace", "grad y": ""}
    declared = target(
        state=rows, x=rows, inplace=option(False, True), in_place=written, differentiable=dict(y=tensor(M, N)),
        reference=lambda state, x, inplace: dict(y=state + x),
    )(launcher)  # fmt: skip
    kinds = defaultdict[str, set[str]](set)
    for case in map(RandomEngine(declared, 0).case, range(400)):
        for name, value in case.last.tensors.items():
            asked = " asked" if name == "x" and case.last.options["inplace"] else ""
            kinds[name + asked].add(value.layout.kind)
    return kinds


def test_elements_of_an_argument_that_is_written_share_no_memory() -> None:
    kinds = written_layouts(overlapping=False)
    assert "expanded" not in kinds["state"] | kinds["x asked"]
    assert "expanded" in kinds["x"] & kinds["grad y"]
    assert "strided" in kinds["state"] & kinds["x asked"]


def test_they_do_where_the_target_says_so() -> None:
    kinds = written_layouts(overlapping=True)
    assert "expanded" in kinds["state"] & kinds["x asked"]


def test_a_later_call_may_differ_from_the_one_before_it_in_sizes_or_options_alone() -> None:
    """What a kernel keeps between calls may lack one of them in its key."""
    n, base = size("N", 1, 64), option(*range(8))
    kept = target(x=tensor(n), base=base, reference=lambda x, base: dict(y=x))(lambda x, base: dict(y=x))
    engine = RandomEngine(kept, 0)
    seen = Counter()
    for case in map(engine.case, range(1500)):
        for before, after in pairwise(case.calls):
            seen[before.dims == after.dims, before.options == after.options] += 1
    assert set(seen) == {*product((False, True), repeat=2)} and min(seen.values()) > 10
