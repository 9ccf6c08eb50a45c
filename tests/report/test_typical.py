"""A typical case is told by its values, which need no package to read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import fuzz

from fuzz import corpus
from fuzz.model.case import Argument, Call
from fuzz.model.entry import Entry
from fuzz.model.grade import Grade, TypicalCase
from fuzz.model.rate import Rate
from fuzz.model.recipes import Exact, recipe
from fuzz.report.entry_text import typical_values_text


def text_of(name: str, *sizes: int, **params: int) -> str:
    dims = {f"N{index}": size for index, size in enumerate(sizes)}
    value = Argument(tuple(dims), "float32", recipe(name, 7, **params))
    return typical_values_text(value, Call(dims, {"x": value}, {}))


def test_all_values_of_a_small_tensor_are_listed() -> None:
    value = Argument(("N",), "float32", recipe("normal", 7))
    numbers = [float(number) for number in text_of("normal", 64).strip("[]").split(", ")]
    assert np.array(numbers, np.float32).view(np.uint32).tolist() == value.bits({"N": 64}).tolist()


@pytest.mark.parametrize(
    ("name", "params", "wanted"),
    [
        ("normal", {}, "like torch.randn(4, 512)"),
        ("normal", {"exponent": 3}, "like torch.randn(4, 512) * 2.0**3"),
        ("ones", {}, "like torch.ones(4, 512)"),
        ("rows_constant", {"exponent": 2}, "one normal value a row (exponent=2)"),
    ],
)
def test_of_a_large_tensor_it_is_said_how_torch_makes_its_like(name: str, params: dict[str, int], wanted: str) -> None:
    text = text_of(name, 4, 512, **params)
    assert text.endswith(f", {wanted}") and (name == "ones" or text.count(", ") > 12)


def test_values_of_a_huge_tensor_are_not_made() -> None:
    assert text_of("normal", 1 << 20, 1 << 20) == "like torch.randn(1048576, 1048576)"


def test_of_exact_bits_the_first_are_listed() -> None:
    value = Argument(("N",), "float32", Exact(tuple(range(100)), "float32"))
    assert typical_values_text(value, Call({"N": 100}, {"x": value}, {})).endswith(", ..]")


def test_the_command_line_prints_values_and_the_command_for_the_program(entry: Entry, tmp_path: Path) -> None:
    assert entry.finding
    graded = replace(entry, grade=Grade("low", "ordinary", TypicalCase(entry.case, entry.finding, Rate(37, 60))))
    path = corpus.save_entry(tmp_path, graded)
    shown = fuzz("show", "--typical", path)
    assert shown.code == 0 and "seed=" not in shown.out and "x   float32 N = [1.0, -4.0]" in shown.out
    assert shown.out.rstrip().endswith(f"  program  fuzz show --script --typical {path}")
