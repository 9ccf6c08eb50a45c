"""Inputs that a person gives become cases: their sizes, dtypes, layouts and bits are those of the tensors."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import fuzz

from fuzz.corpus import codec
from fuzz.errors import TargetError, UsageError
from fuzz.model.entry import Entry
from fuzz.model.layout import CONTIGUOUS, Layout, find_layout
from fuzz.run import input_file
from fuzz.run.input_file import read_input
from fuzz.target.arguments import by_option, option, size, tensor
from fuzz.target.indices import indices
from fuzz.target.inputs import given_case, seed_cases
from fuzz.target.loader import load
from fuzz.target.spec import declare

pytestmark = pytest.mark.usefixtures("no_cross_checks")

M, K, V = size("M", 0, 64), size("K", 1, 64, multiple_of=2), size("V", 1, 100)


def launcher(x: Any, w: Any, ids: Any, scale: Any, vocabulary: Any) -> dict[str, Any]:
    return {"y": x}


DECLARATION: dict[str, Any] = dict(
    x=tensor(M, 2 * K + 1), w=tensor(M, dtypes=("float64", "bfloat16")) | None, ids=indices(M, below=V),
    scale=option(1.0, 2.0), vocabulary=V, dims=(K,),
)  # fmt: skip
TARGET = declare(launcher, **DECLARATION, differentiable={"y": tensor(M, 2 * K + 1)})
IDS = torch.tensor([4, 0, 9])


def given(**more: Any) -> dict[str, Any]:
    return {"x": torch.zeros(3, 9), "ids": IDS, "vocabulary": 10, **more}


def test_sizes_follow_from_shapes_and_what_is_left_out_is_the_default() -> None:
    call = given_case(TARGET, [given()]).last
    assert call.dims == {"M": 3, "K": 4, "V": 10} and call.options == {"scale": 1.0}
    assert list(call.arguments) == ["x", "ids"] and list(call.cotangents) == ["y"]


@pytest.mark.parametrize(
    ("ragged", "shapes", "dims"),
    [
        (False, {"x": (1, 5), "state": (1, 3)}, {"B": 1, "T": 5, "S": 1}),
        (True, {"x": (1, 5), "state": (4, 3), "grad_y": (1, 5)}, {"B": 1, "T": 5, "S": 4}),
        (True, {"x": (1, 1), "state": (1, 3)}, {"B": 1, "T": 1, "S": 1}),
    ],
)
def test_an_option_decides_the_shape_where_several_would_fit(
    ragged: bool, shapes: dict[str, tuple[int, ...]], dims: dict[str, int]
) -> None:
    batch, length, parts = size("B", 1, 3), size("T", 1, 9), size("S", 1, 4)
    sequences = by_option("ragged", {False: tensor(batch, length), True: tensor(1, length)})
    states = by_option("ragged", {False: tensor(batch, 3), True: tensor(parts, 3)})
    target = declare(
        lambda x, state, ragged: {"y": x}, name="ragged", x=sequences, state=states, ragged=option(False, True),
        dims=(parts,), differentiable={"y": sequences},
    )  # fmt: skip
    call = given_case(target, [{**{key: torch.zeros(shape) for key, shape in shapes.items()}, "ragged": ragged}]).last
    assert call.dims == dims
    assert call.arguments["x"].shape == (("1", "T") if ragged else ("B", "T")) == call.cotangents["y"].shape
    assert call.arguments["state"].shape == (("S", "3") if ragged else ("B", "3"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_bits_dtype_and_layout_are_the_tensors(dtype: str) -> None:
    x = torch.randn(9, 6).to(getattr(torch, dtype))[:, ::2].t()
    x[0, 0], x[1, 1] = float("inf"), -0.0
    value = given_case(TARGET, [given(x=x)]).last.arguments["x"]
    assert value.dtype == dtype and value.layout.strides((3, 9)) == x.stride()
    words = {2: torch.int16, 4: torch.int32}[x.element_size()]
    assert value.bits({"M": 3, "K": 4}).astype(f"i{x.element_size()}").tolist() == x.contiguous().view(words).tolist()


def test_arrays_numbers_and_layouts_by_name_are_taken() -> None:
    w = {"values": [1.0, 2.0, 3.0], "dtype": "bfloat16", "layout": {"step": 2}}
    call = given_case(TARGET, [given(x=np.ones((3, 9), np.float32), w=w, grad_y=torch.ones(()).expand(3, 9))]).last
    assert call.arguments["w"].layout == Layout(step=2) and call.arguments["w"].dtype == "bfloat16"
    assert call.cotangents["y"].layout.expand == (0, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x": torch.zeros(3, 9, dtype=torch.float64)}, "x is float64; it is one of float32, bfloat16, float16"),
        ({"x": torch.zeros(4, 9)}, "ids has the shape (3,), where (4,) is due"),
        ({"x": torch.zeros(3, 8)}, "x has the shape (3, 8), where (3, 5) is due"),
        ({"ids": torch.tensor([1, 2, 10])}, "holds values that the declaration rules out"),
        ({"z": 1}, "names 'z'; there are K, M, V"),
        ({"w": {"numbers": 3}}, "a tensor is a dict of dtype, layout, values"),
        ({"w": {"values": [1, 2, 3], "layout": {"expand": [4]}}}, "the layout of w does not fit 1 dims"),
        ({"w": {"values": [1, 2, 3], "layout": {"reach": 60}}}, f"or spans more than {1 << 48} elements"),
        ({"w": {"values": [1, 2, 3], "layout": {"step": 0}}}, "the layout of w has a step below 1"),
        ({"w": {"values": [1, 2, 3], "layout": {"stride": 4}}}, "unexpected keyword argument 'stride'"),
        ({"x": None}, "x is missing"),
        ({"x": torch.zeros(3, 7), "K": 3}, "K is 3; it is at least 1, a multiple of 2"),
        ({"vocabulary": 0}, "V is 0; it is at least 1"),
        ({"scale": 3.0}, "scale is 3.0; it is one of 1.0, 2.0"),
        ({"x": torch.zeros(1).expand(1 << 28, 1 << 28)}, "can't allocate memory"),
    ],
)
def test_what_does_not_fit_is_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError, match=re.escape(message)):
        given_case(TARGET, [given(**wrong)])


def test_a_given_size_may_be_above_the_declared_ones_and_that_of_a_seed_may_not() -> None:
    assert given_case(TARGET, [given(vocabulary=101)]).last.dims["V"] == 101
    for wrong, message in (
        ({"V": 101}, "V is 101; it is 1 to 100"),
        ({"K": 3}, "K is 3; it is 1 to 64, a multiple of 2"),
        ({"M": -1}, "M is -1; it is 0 to 64"),
        ({"scale": "1"}, "scale is '1'; it is one of 1.0, 2.0"),
    ):
        target = declare(launcher, **DECLARATION, seeds={"beyond": wrong})
        with pytest.raises(TargetError, match=f"^target 'launcher': seed 'beyond': {re.escape(message)}$"):
            seed_cases(target)


@pytest.mark.parametrize(
    "view",
    [
        torch.zeros(3, 4), torch.zeros(4, 3).t(), torch.zeros(3, 9)[:, 2:6], torch.zeros(3, 9)[:, ::3],
        torch.zeros(2, 3, 4).permute(2, 0, 1), torch.zeros(4).expand(3, 4), torch.zeros(3, 1).expand(3, 4),
        torch.zeros(()), torch.zeros(1, 5), torch.zeros(0, 3), torch.zeros(5)[2:],
    ],
)  # fmt: skip
def test_a_layout_is_found_from_strides(view: torch.Tensor) -> None:
    shape, strides = tuple(view.shape), view.stride()
    layout = find_layout(shape, strides, int(view.storage_offset()))
    assert layout is not None and layout.offset == view.storage_offset()
    assert all(a == b for n, a, b in zip(shape, layout.strides(shape), strides, strict=True) if n > 1)
    assert (layout == CONTIGUOUS) == (view.is_contiguous() and not view.storage_offset())


def test_strides_that_overlap_have_no_layout() -> None:
    assert find_layout((3, 4), (2, 1)) is None


def test_seeds_take_tensors_and_several_calls() -> None:
    first = {"M": 1, "w": torch.tensor([1.5], dtype=torch.bfloat16)}
    target = declare(launcher, **DECLARATION, seeds={"twice": [first, {"M": 2, "x": [0] * 10}]})
    (case,) = seed_cases(target)
    assert [call.dims["M"] for call in case.calls] == [1, 2]
    assert case.calls[0].arguments["w"].dtype == "bfloat16" and "w" not in case.calls[1].arguments


def test_files_of_each_kind_hold_inputs(tmp_path: Path) -> None:
    expected = given_case(TARGET, [given()])
    torch.save(given(), tmp_path / "a.pt")
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 9), np.float32), ids=IDS.numpy(), vocabulary=10)
    numbers = {"x": [[0.0] * 9] * 3, "ids": [4, 0, 9], "vocabulary": 10}
    (tmp_path / "a.json").write_text(json.dumps([numbers]))
    (tmp_path / "a.yaml").write_text(codec.dumps(Entry(expected)))
    for name in ("a.pt", "a.npz", "a.json", "a.yaml"):
        assert read_input(tmp_path / name, TARGET).key == expected.key, name


def test_an_entry_of_another_target_is_no_input(tmp_path: Path) -> None:
    """What it shows would be filed under the other target, with which it cannot be repeated."""
    case = replace(given_case(TARGET, [given()]), target="another")
    (tmp_path / "a.yaml").write_text(codec.dumps(Entry(case)))
    with pytest.raises(UsageError, match=f"a.yaml: is an entry of target 'another', not of '{TARGET.name}'$"):
        read_input(tmp_path / "a.yaml", TARGET)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.pt", None, "there is no such file"),
        ("a.txt", b"", "its name must end in .pt, .pth, .npz, .json or .yaml"),
        ("a.pt", b"junk", "cannot be read"),
        ("a.json", b"[1]", "holds no inputs by name"),
    ],
)
def test_a_file_that_holds_no_inputs_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_input(tmp_path / name, TARGET)


def test_a_compressed_file_is_not_unpacked_beyond_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "LARGEST_INPUT", 100_000)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((300, 300), np.float32), ids=IDS.numpy(), vocabulary=10)
    assert (tmp_path / "a.npz").stat().st_size < 10_000
    with pytest.raises(UsageError, match="holds more than 100000 bytes"):
        read_input(tmp_path / "a.npz", TARGET)


ROWS = """
from fuzz import size, target, tensor

def double(x):
    if 4 <= len(x) < 7:
        raise ValueError("expected more than 6 rows, or fewer than 4")
    return {"y": 2 * x}

@target(x=tensor(size("N", 1, 64)), dtypes=("float32",), reference=double)
def rows(x):
    return {"y": 2 * x + (len(x) >= 4)}
"""
ABOVE = """
from fuzz import size, target, tensor

@target(x=tensor(size("N", 1, 64)), dtypes=("float32",), reference=lambda x: {"y": x > 0})
def above(x):
    return {"y": x >= 0}
"""
DOUBLE = """
import torch
from fuzz import size, target, tensor

N = size("N", 1, 64)

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=2 * x))
def double(x):
    return dict(y=torch.where(x == 3.25, 7.0, 2 * x))
"""


def test_a_given_input_is_examined(tmp_path: Path) -> None:
    (tmp_path / "fuzz_double.py").write_text(DOUBLE)
    for name, number in (("good", 2.0), ("bad", 3.25)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"x": [1.0, number]}))
    command = ("run", tmp_path / "fuzz_double.py", "--backend", "cpu", "--json", "--input")
    good, bad = fuzz(*command, tmp_path / "good.json"), fuzz(*command, tmp_path / "bad.json")
    assert (good.code, good.json["cases"]) == (0, 1), good.err
    assert (bad.code, bad.json["cases"], bad.json["findings"][0]["output"]) == (1, 1, "y"), bad.err


def test_an_input_too_large_for_an_entry_is_refused_before_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fuzz_double.py").write_text(DOUBLE)
    loaded: Any = load(str(tmp_path / "fuzz_double.py"))
    monkeypatch.setattr(codec, "LARGEST_CASE", 21)
    with pytest.raises(UsageError, match="an input of double takes 22 bytes as text, more than the 21 that"):
        loaded.check(x=torch.tensor([1.0, 3.25]))


def test_a_wrong_truth_value_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "fuzz_above.py").write_text(ABOVE)
    loaded: Any = load(str(tmp_path / "fuzz_above.py"))
    loaded.check(x=torch.tensor([-1.0, 2.0]))
    with pytest.raises(AssertionError, match=r"y\[0\] is 1, should be 0"):
        loaded.check(x=torch.tensor([0.0, 2.0]))


def test_a_case_does_not_shrink_to_where_its_reference_fails(tmp_path: Path) -> None:
    (tmp_path / "fuzz_rows.py").write_text(ROWS)
    loaded: Any = load(str(tmp_path / "fuzz_rows.py"))
    with pytest.raises(AssertionError, match=r"rows   accuracy/value: y: 7 of 7 elements wrong(.|\n)*N=7"):
        loaded.check(x=torch.arange(9.0))


def test_check_examines_a_given_input(tmp_path: Path) -> None:
    (tmp_path / "fuzz_double.py").write_text(DOUBLE)
    loaded: Any = load(str(tmp_path / "fuzz_double.py"))
    loaded.check(x=torch.tensor([1.0, 2.0]))
    with pytest.raises(AssertionError, match=r"y\[0\] is 7.0, should be 6.5"):
        loaded.check(x=torch.tensor([1.0, 3.25]))


def test_options_of_numpy_are_numbers_of_python_in_a_case() -> None:
    target = declare(launcher, **DECLARATION)
    given = dict(x=np.ones((1, 5), np.float32), ids=np.zeros(1, np.int64), scale=np.float64(2.0))
    case = given_case(target, [given])
    assert type(case.last.options["scale"]) is float
    assert codec.loads(codec.dumps(Entry(case)).encode()).case.key == case.key
    # As a file of tensors has it.
    assert given_case(target, [{**given, "scale": torch.tensor(2.0)}]).last.options == case.last.options
    with pytest.raises(TargetError, match="'scale' is an option of an integer of more than 64 bits"):
        given_case(target, [{**given, "scale": 1 << 70}])
