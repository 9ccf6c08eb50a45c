"""Mutants of kernels: every operator has some, each is a program, and a mutated package is what its file says."""

import ast
import importlib
import sys
from itertools import islice

import pytest

from benchmarks.mutations.mutants import draw_mutants, line_starts, list_mutants, overlay
from benchmarks.mutations.operators import OPERATORS

SOURCE = '''
import triton
import triton.language as tl


@triton.jit
def half(x):
    return x * 0.5


@triton.jit
def kernel(y, x, x_stride, y_stride, n, eps, BLOCK: tl.constexpr):
    """Höhe: not mutated, x < 1 & y."""
    columns = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    value = tl.load(x + columns * x_stride, mask=(columns < n) & (columns >= 0), other=0.0)
    total += half(value.to(tl.float32) * 2.0)
    total = tl.maximum(total, -total) / tl.sqrt(total - n + eps)
    tl.store(y + columns * y_stride, (total + 1).to(y.dtype.element_ty), mask=columns < n)


@triton.jit
def other(x):
    return x + 1


def launch(x):
    return x + 1
'''


@pytest.fixture(scope="module")
def mutants():
    return list_mutants(SOURCE, {"kernel"})


def test_every_operator_has_mutants_of_a_kernel(mutants):
    assert {mutant.operator for mutant in mutants} == set(OPERATORS)


def test_every_mutant_is_a_program_with_one_place_changed(mutants):
    for mutant in mutants:
        changed = mutant.apply(SOURCE)
        ast.parse(changed)
        assert changed != SOURCE
        assert changed.count("\n") == SOURCE.count("\n")
        assert len([1 for a, b in zip(changed.split("\n"), SOURCE.split("\n"), strict=True) if a != b]) == 1


def test_only_kernels_that_are_launched_and_what_they_call_are_mutated(mutants):
    assert {mutant.kernel for mutant in mutants} == {"kernel", "half"}


def test_docstrings_and_tuning_are_not_mutated(mutants):
    assert not any("Höhe" in mutant.old for mutant in mutants)


@pytest.mark.parametrize(
    ("operator", "old", "new"),
    [
        ("mask dropped", "tl.load(x", "tl.load(x + columns * x_stride)"),
        ("mask weakened", "(columns < n) & (columns >= 0)", "(columns >= 0)"),
        ("bound moved", "columns < n", "(columns <= n)"),
        ("constant changed", "2.0", "4.0"),
        ("cast dropped", "value.to(tl.float32)", "value"),
        ("cast moved", "(total + 1).to(y.dtype.element_ty)", "(total.to(y.dtype.element_ty) + 1)"),
        ("dtype narrowed", "tl.float32", "tl.bfloat16"),
        ("stride swapped", "x_stride", "y_stride"),
        ("eps moved", "tl.sqrt(total - n + eps)", "(tl.sqrt(total - n) + eps)"),
        ("sign flipped", "-total", "total"),
        ("function swapped", "tl.maximum(total, -total)", "tl.minimum(total, -total)"),
        ("update replaced", "total += half", "total = half(value.to(tl.float32) * 2.0)"),
    ],
)  # fmt: skip
def test_operator(mutants, operator, old, new):
    assert any(mutant.operator == operator and mutant.old.startswith(old) and mutant.new == new for mutant in mutants)


def test_draw_depends_on_the_seed_alone_and_operators_take_turns(mutants):
    drawn = list(draw_mutants(mutants, "1"))
    assert drawn == list(draw_mutants(mutants, "1"))
    assert drawn != list(draw_mutants(mutants, "2"))
    assert sorted(drawn, key=repr) == sorted(mutants, key=repr)
    assert {mutant.operator for mutant in islice(drawn, len(OPERATORS))} == set(OPERATORS)


def test_lines_begin_at_bytes():
    assert line_starts("ä\nb\n") == [0, 3, 5]


def test_overlay_is_the_package_with_one_file_changed(tmp_path, monkeypatch):
    package = tmp_path / "before" / "mutated_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "__init__.py").write_text("from mutated_package.inner.b import value\n")
    (package / "inner" / "a.py").write_text("value = 1\n")
    (package / "inner" / "b.py").write_text("from .a import value\n")
    made = overlay(tmp_path / "after", package, package / "inner" / "a.py", "value = 2\n")
    assert made == tmp_path / "after" / "mutated_package" / "inner" / "a.py"
    assert (package / "inner" / "a.py").read_text() == "value = 1\n"
    monkeypatch.syspath_prepend(str(tmp_path / "after"))
    try:
        assert importlib.import_module("mutated_package.inner").value == 2
    finally:
        for name in [name for name in sys.modules if name.startswith("mutated_package")]:
            del sys.modules[name]
