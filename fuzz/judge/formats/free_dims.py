"""Finds the whole numbers among a program's module-level constants, and rewrites them, through its syntax tree.

A tuple's elements are constants of their own: those of ``shape = (4, 8)`` are named ``shape_0`` and ``shape_1``. What
is computed from constants follows them, because the rewritten program computes it again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

Dims = Mapping[str, int]


def find_constants(source: str) -> dict[str, int]:
    """Name -> value of every whole number that is assigned at a program's top level. SyntaxError where it is none."""
    return {name: node.value for name, node in _literals(ast.parse(source)) if isinstance(node.value, int)}


def rewrite_constants(source: str, dims: Dims) -> ast.Module:
    """The program with other values of some constants; what it does not have is left out."""
    tree = ast.parse(source)
    for name, node in _literals(tree):
        if name in dims:
            node.value = dims[name]
    return tree


class _Folding(ast.NodeTransformer):
    """Replaces arithmetic over whole numbers, such as ``2048 * 2``, by its result."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not (_is_whole_number(node.left) and _is_whole_number(node.right)) or isinstance(node.op, ast.Pow):
            return node
        try:
            value = eval(compile(ast.Expression(node), "constant", "eval"), {})
        except (ArithmeticError, TypeError, ValueError):
            return node
        folded = ast.copy_location(ast.Constant(value), node)
        return folded if _is_whole_number(folded) else node


def _literals(tree: ast.Module) -> Iterator[tuple[str, ast.Constant]]:
    """The whole numbers that are assigned to a name once, alone or in a tuple."""
    assignments = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]
    for node in assignments:
        _Folding().visit(node)
    pairs = [pair for node in assignments for pair in _pairs(node)]
    names = [name for bound, _ in pairs for name in bound]
    for bound, value in pairs:
        if names.count(bound[0]) > 1:
            continue
        if isinstance(value, ast.Tuple | ast.List):
            for index, element in enumerate(value.elts):
                if _is_whole_number(element):
                    yield f"{bound[0]}_{index}", element  # type: ignore[misc]
        elif _is_whole_number(value):
            yield bound[0], value  # type: ignore[misc]


def _pairs(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[list[str], ast.expr]]:
    """(names, what they are bound to) of an assignment: ``a = b = 1`` is one, ``a, b = 1, 2`` two of them."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    assert node.value is not None
    if names := [target.id for target in targets if isinstance(target, ast.Name)]:
        yield names, node.value
    for target in targets:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(node.value, ast.Tuple | ast.List):
            for name, value in zip(target.elts, node.value.elts, strict=False):
                if isinstance(name, ast.Name):
                    yield [name.id], value


def _is_whole_number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 0
