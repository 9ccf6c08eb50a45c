"""Indices are legal in every case that is drawn or tried, small in shrunk ones, and survive the codec."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fuzz.corpus.codec import dumps, loads
from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import evaluate
from fuzz.model.dtypes import dtype, from_bits
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.recipes import Exact, recipe
from fuzz.search.engines.random import RandomEngine
from fuzz.shrink.passes import COARSE, FINE, write_out_small
from fuzz.shrink.shrinker import Budget, Shrinker
from fuzz.target.arguments import option, size, tensor
from fuzz.target.indices import IndexArgument, indices
from fuzz.target.legal import make_legal
from fuzz.target.loader import load
from fuzz.target.spec import Target, declare

N, V = size("N", 1, 64), size("V", 1, 1000)


def launcher(logits: torch.Tensor, labels: torch.Tensor, ignored: int | str) -> dict[str, torch.Tensor]:
    return dict(y=logits[0])


def made(sentinel: int | str | None = "ignored") -> Target:
    labels = indices(N, below=V, sentinel=sentinel)
    return declare(launcher, logits=tensor(N, V), labels=labels, ignored=option(-100, "none", -1))


def numbers(call: Call) -> list[int]:
    value = call.arguments["labels"]
    return [int(one) for one in from_bits(value.bits(call.dims), dtype(value.dtype)).reshape(-1)]


def check(case: Case, target: Target) -> None:
    declared = target.tensors["labels"]
    assert isinstance(declared, IndexArgument)
    for call in case.calls:
        allowed = declared.legal_sentinel(call.options)
        bound = evaluate("V", call.dims)
        assert all(0 <= one < bound or one == allowed for one in numbers(call)), (call.dims, numbers(call))


def drawn(target: Target) -> Iterator[Case]:
    engine = RandomEngine(target, 3)
    yield from (engine.case(number) for number in range(150))


@pytest.mark.parametrize("sentinel", [None, -100, "ignored"])
def test_drawn_indices_are_legal_and_of_all_kinds(sentinel: int | str | None) -> None:
    target = made(sentinel)
    seen = set()
    for case in drawn(target):
        check(case, target)
        seen |= {(call.arguments["labels"].values.name, call.arguments["labels"].dtype) for call in case.calls}  # type: ignore[union-attr]
    kinds = {"indices", "indices_edges", "zeros"} | ({"indices_sentinel"} if sentinel is not None else set())
    assert seen == {(name, dtype) for name in kinds for dtype in ("int64", "int32")}


def test_a_sentinel_is_drawn_only_under_the_option_that_allows_it() -> None:
    target = made()
    negative = {call.options["ignored"]: set() for case in drawn(target) for call in case.calls}
    for case in drawn(target):
        for call in case.calls:
            negative[call.options["ignored"]] |= {one for one in numbers(call) if one < 0}
    assert negative == {-100: {-100}, "none": set(), -1: {-1}}


@pytest.mark.parametrize("written", [False, True])
def test_whatever_a_pass_tries_becomes_legal(written: bool) -> None:
    target = made()
    logits = Argument(("N", "V"), "float32", recipe("normal", 1))
    labels = Argument(("N",), "int64", recipe("indices_sentinel", 5, below=9, sentinel=-100, rarity=1))
    case = Case("launcher", (Call({"N": 6, "V": 9}, dict(logits=logits, labels=labels), {"ignored": -100}),))
    case = write_out_small(case) if written else case
    tried = [made_ for step in (FINE if written else COARSE) for made_ in step(case, target)]
    moved = [(one, make_legal(one, target)) for one in tried]
    for before, after in moved:
        if all(isinstance(value.values, Exact) for value in before.last.arguments.values()) and not sizes_fit(before):
            continue
        check(after, target)
    assert any(before.key != after.key for before, after in moved)
    assert all(make_legal(after, target).key == after.key for _, after in moved)


def sizes_fit(case: Case) -> bool:
    try:
        numbers(case.last)
    except ValueError:
        return False
    return True


def test_a_bug_of_one_label_shrinks_to_the_least_index_that_shows_it() -> None:
    """Wrong where some label is 2 or more, and there is a row beside it: V = 3, labels 2 and 0."""
    target = made(-100)
    found = Finding("accuracy", ("y",), "value", "wrong")

    def shows(case: Case) -> Finding | None:
        return found if len(numbers(case.last)) > 1 and max(numbers(case.last)) >= 2 else None

    case = next(case for case in drawn(target) if shows(case) and len(case.calls) == 1)
    least = Shrinker(target, case, found, shows, Budget()).run()
    assert (least.last.dims, sorted(numbers(least.last))) == ({"N": 2, "V": 3}, [0, 2])


def test_indices_survive_the_codec() -> None:
    for case in list(drawn(made()))[:20]:
        for one in (case, write_out_small(case)):
            entry = Entry(case=one, finding=None, status="open")
            assert loads(dumps(entry).encode()).case == one


def test_what_cannot_be_an_index_is_refused() -> None:
    with pytest.raises(TargetError, match="are integers, not float32"):
        indices(N, below=V, dtypes=("float32",))
    with pytest.raises(TargetError, match="no index is legal"):
        indices(N, below=0)
    with pytest.raises(TargetError, match="no legal index at the smallest dims"):
        declare(launcher, logits=tensor(N, V), labels=indices(N, below=V - 1), ignored=option(0))
    with pytest.raises(TargetError, match="'other', which is no option"):
        declare(launcher, logits=tensor(N, V), labels=indices(N, below=V, sentinel="other"), ignored=option(0))


@pytest.mark.parametrize(("sentinel", "dtypes", "number", "limits"), [
    (-100, ("int64", "uint8"), -100, "uint8 is 0 to 255"), (255, ("int8",), 255, "int8 is -128 to 127"),
    ("ignored", ("int16", "int8"), -200, "int8 is -128 to 127"), (1 << 31, ("int64",), 1 << 31, "int64 is -2147483648"),
])  # fmt: skip
def test_a_sentinel_fits_every_dtype(sentinel: int | str, dtypes: tuple[str, ...], number: int, limits: str) -> None:
    labels = indices(N, below=V, sentinel=sentinel, dtypes=dtypes)
    with pytest.raises(TargetError, match=f"argument 'labels' has the sentinel {number}; one of {limits}"):
        declare(launcher, logits=tensor(N, V), labels=labels, ignored=option("none", -1, -200))


def test_indices_and_their_sentinel_may_be_unsigned() -> None:
    labels = indices(N, below=size("V", 1, 21), sentinel=255, dtypes=("uint8",))
    target = declare(launcher, logits=tensor(N), labels=labels, ignored=option(0))
    found = {number for case in drawn(target) for call in case.calls for number in numbers(call)}
    assert found == {*range(21), 255}


def test_a_target_in_a_file_draws_legal_labels() -> None:
    for case in list(drawn(load("cross_entropy")))[:50]:
        for call in case.calls:
            assert all(0 <= one < call.dims["V"] or one == -100 for one in numbers(call))
