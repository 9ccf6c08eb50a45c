"""Writes the skeleton of a target's file from a launcher's signature, for its author to fill in."""

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
{declarations}
    reference=reference,
)
def {name}({parameters}):
    return dict(out=launcher({passed}))
'''
VECTORS = ("weight", "bias", "w", "b")
"""Parameters that are taken for one row."""


def skeleton(text: str) -> str:
    """The file's text for ``path.py:LAUNCHER``. TargetError where there is no such function."""
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not file.endswith(".py") or not name:
        raise TargetError(f"{text!r} does not name a launcher; write path.py:LAUNCHER")
    if not path.is_file():
        raise TargetError(f"{file} does not exist")
    arguments = _function(path, name).args
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    named = [argument.arg for argument in arguments.kwonlyargs]
    declared = {parameter: _declaration(parameter, _defaults(arguments)) for parameter in positional + named}
    lines = [f"    {parameter}={text}," for parameter, text in declared.items()]
    lines.append('    dtypes=("float32", "bfloat16", "float16"),')
    lines += ["    batch=M,"] if "tensor(M, N)" in declared.values() else []
    return HEAD.format(
        name=name,
        module=path.stem,
        parameters=", ".join(declared),
        declarations="\n".join(lines),
        passed=", ".join([*positional, *(f"{parameter}={parameter}" for parameter in named)]),
    )


def _function(path: Path, name: str) -> ast.FunctionDef:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise TargetError(f"{path}:{error.lineno}: syntax error: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise TargetError(f"cannot read {path}: {' '.join(str(error).split())}") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        raise TargetError(f"{path}: no function {name!r}; there are {', '.join(functions) or 'none'}")
    return functions[name]


def _defaults(arguments: ast.arguments) -> dict[str, str]:
    """The default of each parameter that has one, as source text."""
    positional = [*arguments.posonlyargs, *arguments.args]
    last = positional[len(positional) - len(arguments.defaults) :]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    pairs = [*zip(last, arguments.defaults, strict=True), *named]
    return {argument.arg: ast.unparse(value) for argument, value in pairs if value is not None}


def _declaration(parameter: str, defaults: dict[str, str]) -> str:
    if parameter in defaults:
        return f"option({defaults[parameter]})"
    return "tensor(N)" if parameter in VECTORS else "tensor(M, N)"
