"""Skeleton: the text of a target's file, from a launcher's signature, for its author to fill in."""

from __future__ import annotations

import ast
from pathlib import Path

from fuzz.errors import TargetError

HEAD = '''"""{name}: say in one sentence what it computes. Interesting: say which inputs are likely to break it."""

import torch
from {module} import {name} as launcher

from fuzz import option, size, target, tensor

M, N = size("M", 1, 1024), size("N", 1, 4096)


def reference({parameters}):
    """The definition, in float64, by stable formulas; returns the same outputs by name."""
    raise NotImplementedError("write the reference of {name}")


@target(
{arguments}
    dtypes=("float32", "bfloat16", "float16"),
    batch=M,
    reference=reference,
)
def {name}({parameters}):
    return dict(out=launcher({parameters}))
'''


def skeleton(text: str) -> str:
    """The file's text for ``path.py:LAUNCHER``. TargetError where there is no such function."""
    place, _, name = text.rpartition(":")
    path = Path(place)
    if not place.endswith(".py") or not name:
        raise TargetError(f"{text!r} does not name a launcher; write path.py:LAUNCHER")
    if not path.is_file():
        raise TargetError(f"{place} does not exist")
    function = _function(path, name)
    parameters = [argument.arg for argument in function.args.args + function.args.kwonlyargs]
    defaults = _defaults(function)
    lines = [f"    {parameter}={_declared(parameter, defaults)}," for parameter in parameters]
    return HEAD.format(
        name=name, module=path.stem, parameters=", ".join(parameters), arguments="\n".join(lines)
    )


def _function(path: Path, name: str) -> ast.FunctionDef:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise TargetError(f"{path}:{error.lineno}: syntax error: {error.msg}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        raise TargetError(f"{path}: no function {name!r}; there are {', '.join(functions) or 'none'}")
    return functions[name]


def _defaults(function: ast.FunctionDef) -> dict[str, str]:
    """The default of each parameter that has one, as source text."""
    positional = function.args.args
    given = dict(zip([a.arg for a in positional[len(positional) - len(function.args.defaults) :]], function.args.defaults, strict=True))
    named = {a.arg: value for a, value in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if value}
    return {name: ast.unparse(value) for name, value in {**given, **named}.items()}


def _declared(parameter: str, defaults: dict[str, str]) -> str:
    if parameter in defaults:
        return f"option({defaults[parameter]})"
    return "tensor(N)" if parameter in ("weight", "bias", "w", "b") else "tensor(M, N)"
