"""The whole numbers among a program's constants, and the program with others."""

from __future__ import annotations

import ast

from fuzz.judge.formats.free_dims import find_constants, rewrite_constants

SOURCE = """
import math
batch = 4
height = width = 8
shape = (batch, 3, 5)
eps = 1e-5
flag = True
twice = 2048 * 2 // 4
later = 1
later = 2
area = height * 2
depth, (rows, columns), scale = 6, (7, 9), 0.5
def get_inputs():
    inner = 7
    return inner
"""


def run(tree: ast.Module) -> dict[str, object]:
    names: dict[str, object] = {}
    exec(compile(tree, "problem", "exec"), names)
    return names


def test_whole_numbers_at_the_top_level_are_found() -> None:
    assert find_constants(SOURCE) == {"batch": 4, "height": 8, "shape_1": 3, "shape_2": 5, "twice": 1024, "depth": 6}


def test_what_is_computed_from_a_constant_follows_it() -> None:
    names = run(rewrite_constants(SOURCE, {"height": 6, "batch": 9, "shape_2": 11, "depth": 2, "unknown": 1}))
    assert (names["height"], names["width"], names["area"], names["shape"]) == (6, 6, 12, (9, 3, 11))
    assert (names["depth"], names["rows"], names["scale"], names["eps"]) == (2, 7, 0.5, 1e-5)


def test_a_program_without_changes_is_the_same() -> None:
    names, plain = run(rewrite_constants(SOURCE, {})), run(ast.parse(SOURCE))
    assert {name: names[name] for name in find_constants(SOURCE) if name in names} == {
        name: plain[name] for name in find_constants(SOURCE) if name in plain
    }
