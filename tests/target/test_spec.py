"""Targets: what a declaration holds, and what contradicts itself."""

from __future__ import annotations

from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import triton

import fuzz
from fuzz.corpus import codec
from fuzz.errors import TargetError
from fuzz.model.case import sort_key
from fuzz.model.dims import Size
from fuzz.model.entry import Entry
from fuzz.model.oracle_specs import ORACLE_NAMES
from fuzz.oracles.execution.probe import probe_reference
from fuzz.search.engines import RandomEngine
from fuzz.target.arguments import option, size, tensor
from fuzz.target.keywords import DUE
from fuzz.target.loader import load, load_planted
from fuzz.target.shapes import sizes
from fuzz.target.spec import KEYWORDS, Target, declare

M, N = size("M", 1, 8), size("N", 2, 16, multiple_of=2)


class Level(IntEnum):
    LOW = 1


def launcher(x: Any, eps: float = 0.0) -> dict[str, Any]:
    """Does nothing much."""
    return {"y": x}


@pytest.mark.parametrize("keyword", ["batch", "rows", "name", "range"])
@pytest.mark.parametrize("value", [tensor(M), option(1, 2), sizes("B", 0, 2)])
def test_an_argument_with_the_name_of_a_keyword_is_refused_in_one_line(keyword: str, value: Any) -> None:
    with pytest.raises(TargetError, match=f"^target 'launcher': {keyword}= is a keyword of @target.*another name$"):
        declare(launcher, x=tensor(M, N), **{keyword: value})


@pytest.mark.parametrize("keyword", ["range", "dims", "layout"])
def test_a_size_for_a_parameter_with_the_name_of_a_keyword_is_refused(keyword: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def launcher(x, {keyword}): ...", scope)
    with pytest.raises(TargetError, match=f"^target 'launcher': {keyword}= is a keyword of @target.*another name$"):
        declare(scope["launcher"], x=tensor(M, N), **{keyword: M})


def test_a_parameter_with_the_name_of_a_keyword_that_takes_a_size_is_named() -> None:
    with pytest.raises(TargetError, match="'batch' of the launcher is not declared: batch= is a keyword .* another"):
        declare(lambda x, batch: {}, x=tensor(M, N), batch=M)


SLIPS: list[tuple[dict[str, Any], str]] = [
    ({"reference": "torch.neg"}, "reference= takes a function, and not 'torch.neg'"),
    ({"refernce": launcher}, "@target has no keyword 'refernce'; write reference="),
    ({"btach": M}, "the launcher has no parameter 'btach'; it takes x, eps; the keyword is batch="),
    ({"rejects": launcher}, "rejects= takes a function for each input.* and not the function 'launcher'"),
    ({"rejects": {"short": {"x": 1}}}, "rejects= takes a function for each input"),
    ({"dims": M}, r"dims= takes sizes, such as \(M,\), and not 'M'"),
    ({"batch": "M"}, "batch= takes a dim, as in .* and not 'M'"),
    ({"rows": ("y",)}, r"rows= takes the dim of each output .*dict\(y=M\), and not \('y',\)"),
    ({"differentiable": ("y",)}, r"differentiable= takes the outputs' shapes, such as .* and not \('y',\)"),
    ({"differentiable": True}, "differentiable= takes the outputs' shapes, .* and not True"),
    ({"in_place": True}, "in_place= takes names of arguments, .* and not True"),
    ({"nonfinite": True}, "nonfinite= takes names of arguments, .* and not True"),
    ({"linear": True}, "linear= takes names of arguments, and not True"),
    ({"constants": 1.5}, "constants= takes numbers, .* and not 1.5"),
    ({"constants": "15"}, "constants= takes numbers, .* and not '15'"),
    ({"deterministic": False}, "deterministic= takes True, or a text that says why the bits may differ .* not False"),
    ({"deterministic": ""}, "deterministic= takes True, or a text"),
    ({"large": "no"}, "large= takes True or False, and not 'no'"),
    ({"timeout": None}, "timeout is a number of seconds, more than 0, not None"),
    ({"dtypes": torch.float32}, 'a dtype is given by its name, and not as torch.float32: write "float32"'),
    ({"x": tensor(M, N, dtypes=("int8",)), "dtypes": [torch.int8]}, 'write "int8"'),
]


@pytest.mark.parametrize(("given", "message"), SLIPS)
def test_what_a_keyword_cannot_be_given_is_one_line_that_says_what_it_takes(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(TargetError, match=f"{message}$" if message.endswith("=") else message) as caught:
        declare(launcher, **{"x": tensor(M, N), **given})
    assert "\n" not in str(caught.value)


def test_what_is_checked_are_keywords() -> None:
    assert set(DUE) <= set(KEYWORDS) and "launcher" not in KEYWORDS


def test_what_a_keyword_holds_may_be_read_from_an_iterator() -> None:
    made = declare(launcher, x=tensor(M), dims=(dim for dim in [N]), constants=map(float, "12"), nonfinite=iter("x"))
    assert (
        [dim.name for dim in made.sizes] == ["M", "N"] and made.constants == (1.0, 2.0) and set(made.nonfinite) == {"x"}
    )


@pytest.mark.parametrize(
    ("misplaced", "message"),
    [(launcher, "stands without brackets on 'launcher'"), (tensor(M), "takes arguments by name alone")],
)
def test_a_decorator_without_keywords_is_refused(misplaced: Any, message: str) -> None:
    with pytest.raises(TargetError, match=rf"^@target {message}: write @target\(x=tensor\(N\), ..\)"):
        fuzz.target(misplaced)


@pytest.mark.parametrize("kernel", [triton.jit(launcher), partial(launcher, eps=1.0)])
def test_what_is_no_launcher_is_refused_in_one_line(kernel: Any) -> None:
    kind = type(kernel).__name__
    with pytest.raises(TargetError, match=f"^@target decorates a function that calls the kernel, and not a {kind}: "):
        fuzz.target(x=tensor(M, N))(kernel)


def test_a_single_name_may_stand_alone() -> None:
    def launcher(scores: Any) -> dict[str, Any]:
        return {"y": scores}

    given = dict(dtypes="float16", linear="scores", in_place="scores", nonfinite="scores", imports="torch.fft")
    made, as_lists = (
        declare(launcher, scores=tensor(M, N, dtypes=arguments["dtypes"]), reference=launcher, **arguments)
        for arguments in (given, {keyword: [name] for keyword, name in given.items()})
    )
    assert made == as_lists and made.imports == ("torch.fft",) and list(made.in_place) == ["scores"]


def test_the_public_api_declares_a_target_that_can_be_called() -> None:
    made = fuzz.target(x=fuzz.tensor(M, N), eps=fuzz.option(1e-5, 0.0), batch=M)(launcher)
    assert isinstance(made, fuzz.Target) and made.name == "launcher" and made.doc == "Does nothing much."
    assert made(3) == {"y": 3}
    assert made.sizes == (M, N) and made.batch == "M"
    assert made.tensors["x"].dtypes == ("float32", "bfloat16", "float16")
    assert made.defaults == {"x": "float32", "eps": 1e-5}


def test_arguments_may_have_dtypes_of_their_own() -> None:
    made = declare(launcher, x=tensor(N, dtypes=("int32", "int64")), dtypes=("float16",))
    assert made.tensors["x"].dtypes == ("int32", "int64")


def test_dims_are_gathered_once_in_the_order_of_the_declaration() -> None:
    K = size("K", 1, 4)
    made = declare(lambda x, w, depth: {}, x=tensor(2 * M, N), w=tensor(N, M), depth=K, dims=(M,), name="t")
    assert [dim.name for dim in made.sizes] == ["N", "M", "K"] and made.passed_sizes == {"depth": "K"}


def test_constants_may_be_whole_numbers() -> None:
    made = declare(launcher, x=tensor(N), constants=(64, 0.5))
    assert [type(number) for number in made.constants] == [float, float]
    engine = RandomEngine(made, 0)
    drawn = [engine.propose().plan.last.arguments["x"].values for _ in range(60)]
    assert any("64" in str(values) for values in drawn)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"x": tensor(N), "z": tensor(N)}, "no parameter 'z'"),
    ({}, "parameter 'x' of the launcher is not declared"),
    ({"x": 3}, "argument 'x' must be tensor"),
    ({"x": tensor(2 * N)}, "uses dim 'N', which no argument declares"),
    ({"x": tensor(N, Size("N", 1, 5))}, "dim 'N' is declared twice"),
    ({"x": tensor(N), "batch": M}, "'M' is no dim of its arguments; there are N"),
    ({"x": tensor(N), "rows": {"y": M}}, "'M' is no dim"),
    ({"x": tensor(N), "in_place": ("w",)}, "'w' is no tensor argument; there are x"),
    ({"x": tensor(N), "in_place": {"x": "fast"}}, "in_place= names 'fast', which is no option"),
    ({"x": tensor(N), "nonfinite": ("w",)}, "'w' is no tensor argument"),
    ({"x": tensor(N), "accumulate": "float8"}, "accumulate is one of"),
    ({"x": tensor(N), "dot": "tf64"}, "dot is 'ieee' or 'tf32'"),
    ({"x": tensor(N), "dtypes": ("float8",)}, "unknown dtype 'float8'; known:"),
    ({"x": tensor(N - 4, N)}, "negative size at the smallest dims"),
    ({"x": tensor(N), "eps": option(Level.LOW)}, "'eps' is an option of Level.LOW: give the member's name or value"),
    ({"x": tensor(N), "eps": option(0, 1 << 64)}, "'eps' is an option of an integer of more than 64 bits"),
    ({"x": tensor(N), "eps": option(torch.float32)}, "'eps' is an option of torch.float32: bool, int, float, str or"),
    (
        {"x": tensor(sum([N] * 100, N)), "dims": (N,)},
        "'x' has a size expression of 601 characters; at most 400",
    ),
    ({"x": tensor(N), "differentiable": {"y 1": tensor(N)}}, "the name 'y 1' of an argument must be an identifier"),
]


@pytest.mark.parametrize(("declaration", "message"), WRONG)
def test_what_contradicts_itself_is_named(declaration: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=message):
        declare(launcher, **declaration)


@pytest.mark.parametrize(
    ("name", "low", "high", "multiple"),
    [("N", 3, 2, 1), ("N", -1, 4, 1), ("N", 5, 7, 8), ("N", 1, 4, 0), ("2N", 1, 2, 1), (1, 64, 1, 1)],
)
def test_a_dim_that_has_no_size_is_refused(name: Any, low: int, high: int, multiple: int) -> None:
    with pytest.raises(TargetError, match="dim"):
        size(name, low, high, multiple_of=multiple)


def test_names_that_no_entry_can_hold_are_refused() -> None:
    name = "x" * 201
    with pytest.raises(TargetError, match="the name 'x+ ?..' of an argument must be an identifier of at most 200"):
        declare(lambda **arguments: {}, name="t", **{name: tensor(N)})
    with pytest.raises(TargetError, match="dim name 'x+ ?..' must be an identifier of at most 200"):
        size(name, 1, 8)


def test_what_is_declared_can_be_written_and_read() -> None:
    """Numbers of numpy among the options, long names and long shapes."""
    dims = [size(letter * 60, 1, 8) for letter in "abcd"]
    x, many, eps = tensor(sum(dims[1:], dims[0])), "x" * 200, option(*np.linspace(0.5, 1.5, 3), *np.arange(2), np.True_)
    made = declare(lambda **arguments: {}, name="t", dims=dims, eps=eps, **{many: x})
    assert made.options["eps"].choices == (0.5, 1.0, 1.5, 0, 1, True)
    assert [type(choice) for choice in made.options["eps"].choices] == [float, float, float, int, int, bool]
    engine = RandomEngine(made, 0)
    for case in (engine.case(number) for number in range(20)):
        assert codec.loads(codec.dumps(Entry(case)).encode()).case.key == case.key


@pytest.mark.parametrize(
    ("low", "high", "multiple", "message"),
    [
        (1, 1e3, 1, "not 1000.0: write 1000"),
        (1, 64.0, 1, "not 64.0: write 64"),
        (1, 64, 1.5, "not 1.5"),
        ("1", 64, 1, "not '1'"),
    ],
)
def test_the_limits_of_a_dim_are_whole_numbers(low: Any, high: Any, multiple: Any, message: str) -> None:
    with pytest.raises(TargetError, match=rf"^size\('N', ..\) takes whole numbers, and {message}$"):
        size("N", low, high, multiple_of=multiple)
    assert size("N", np.int64(1), np.int32(8)) == Size("N", 1, 8) == size("N", high=8)


def test_an_option_needs_a_value() -> None:
    with pytest.raises(TargetError, match="at least one value"):
        option()


def test_planted_bugs_are_kept_beside_the_target() -> None:
    made = declare(launcher, x=tensor(N))

    @made.planted("negated", oracle="accuracy", outputs=("y",))
    def negated(x: Any, eps: float = 0.0) -> dict[str, Any]:
        """The sign is wrong."""
        return {"y": -x}

    plant, found = load_planted(made, "negated")
    assert (plant.oracle, plant.outputs, plant.meaning) == ("accuracy", ("y",), "The sign is wrong.")
    assert found is negated and negated(2) == {"y": -2}
    with pytest.raises(TargetError, match="has a planted bug 'negated' already"):
        made.planted("negated", oracle="accuracy", outputs=("y",))
    with pytest.raises(TargetError, match="unknown oracle 'vibes'; known: fault, bounds"):
        made.planted("other", oracle="vibes", outputs=("y",))
    with pytest.raises(TargetError, match="no planted bug 'gone'; known: negated"):
        load_planted(made, "gone")


# ---------------------------------------------------------------- every built-in target


def test_a_built_in_target_says_what_it_is_and_what_it_returns(built_in: Target) -> None:
    assert len(built_in.doc) > 20 and built_in.reference is not None
    values = probe_reference(built_in)
    assert values and all(value.dtype == torch.float64 for value in values.values())


def test_a_built_in_targets_plants_can_be_built_and_state_who_sees_them(built_in: Target) -> None:
    assert built_in.planted_bugs
    known = {*probe_reference(built_in), *built_in.tensors}
    for name in built_in.planted_bugs:
        plant, found = load_planted(built_in, name)
        assert callable(found) and found is not built_in.launcher
        assert plant.oracle in ORACLE_NAMES and plant.meaning and plant.outputs
        assert set(plant.outputs) <= known, name


def test_a_built_in_target_refuses_what_it_says(built_in: Target) -> None:
    assert built_in.rejects
    dims = {dim.name: 4 for dim in built_in.sizes}
    shapes = {name: [dims[text] for text in value.shape] for name, value in built_in.tensors.items()}
    inputs: dict[str, Any] = {name: torch.ones(shape) for name, shape in shapes.items()}
    inputs |= {name: value.choices[0] for name, value in built_in.options.items()}
    for spoil in built_in.rejects.values():
        with pytest.raises(ValueError):
            built_in.launcher(**{**inputs, **spoil(**inputs)})


def test_a_built_in_targets_cases_are_ordered_by_its_defaults(built_in: Target) -> None:
    case = RandomEngine(built_in, 0).case(0)
    assert sort_key(case, built_in.defaults)[0] == len(case.calls)
    assert set(built_in.defaults) == {*built_in.tensors, *built_in.options}


def test_a_target_is_loaded_once(built_in: Target) -> None:
    assert load(built_in.name) is built_in
