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
    names = [name for node in assignments for name in _target_names(node)]
    for node in assignments:
        _Folding().visit(node)
        own = _target_names(node)
        if not own or names.count(own[0]) > 1:
            continue
        if isinstance(node.value, ast.Tuple | ast.List):
            for index, element in enumerate(node.value.elts):
                if _is_whole_number(element):
                    yield f"{own[0]}_{index}", element  # type: ignore[misc]
        elif _is_whole_number(node.value):
            yield own[0], node.value  # type: ignore[misc]


def _target_names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """The names that an assignment binds; none where it binds something else as well."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _is_whole_number(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 0
