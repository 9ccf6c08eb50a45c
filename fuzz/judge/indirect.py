"""Says of a line of a kernel whether its address follows from loaded values, such as indices, by its syntax tree."""

from __future__ import annotations

import ast

LOADS = ("load", "gather")


def is_indirect(source: str, line: int) -> bool:
    """Whether the address of what the call at a line reads or writes follows from what its function has loaded."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    around = [node for node in functions if node.lineno <= line <= (node.end_lineno or node.lineno)]
    if not around:
        return False
    function = max(around, key=lambda node: node.lineno)
    loaded = find_loaded_names(function)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and node.args]
    at_line = [node for node in calls if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return any(uses_loaded(node.args[0], loaded) for node in at_line)


def find_loaded_names(function: ast.FunctionDef) -> set[str]:
    """The names whose values follow from loads."""
    loaded: set[str] = set()
    before = -1
    while len(loaded) > before:
        before = len(loaded)
        for node in ast.walk(function):
            if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if uses_loaded(node.value, loaded):
                    names = (name for target in targets for name in ast.walk(target))
                    loaded |= {name.id for name in names if isinstance(name, ast.Name)}
    return loaded


def uses_loaded(expression: ast.AST, loaded: set[str]) -> bool:
    """Whether an expression loads, or uses a name that holds what was loaded."""
    return any(
        isinstance(node, ast.Name) and node.id in loaded
        or isinstance(node, ast.Call) and getattr(node.func, "attr", "") in LOADS
        for node in ast.walk(expression)
    )  # fmt: skip
