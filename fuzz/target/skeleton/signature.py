"""Reads from a file's source what a launcher takes: a function, an autograd function, a module or a custom operator."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzz.errors import TargetError

COUNTS = re.compile(r"(num|n)_.*|.*_(size|count)")
"""Names of whole numbers."""
OPERATORS = ("triton_op", "custom_op")
"""Decorators that make a function an operator of PyTorch, whose schema names the arguments that it writes."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: its annotation without ``| None``, and its default, as source text; empty without one.

    `choices` are those of a Literal or a bool, or the names of an Enum's members. `enum` is the Enum's name.
    """

    name: str
    annotation: str = ""
    default: str = ""
    optional: bool = False
    choices: tuple[str, ...] = ()
    enum: str = ""
    named: bool = False

    @property
    def is_tensor(self) -> bool:
        """Whether it is annotated as a tensor, or as nothing and has no default but None."""
        if self.annotation or COUNTS.fullmatch(self.name):
            return self.annotation.split(".")[-1] == "Tensor"
        return not self.choices and self.default in ("", "None")


@dataclass(frozen=True)
class Signature:
    """A launcher: `kind` is function, autograd function or module; `built` are those that a module is made with.

    `written` are the arguments that an operator's schema says it writes; `returns` is whether it returns anything.
    """

    name: str
    kind: str
    parameters: tuple[Parameter, ...]
    built: tuple[Parameter, ...] = ()
    written: tuple[str, ...] = ()
    returns: bool = True


def read_signature(path: Path, name: str) -> Signature:
    """What a launcher of a file takes. TargetError where the file cannot be read, or has no such launcher."""
    tree = _parse(path)
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    enums = {node.name: node for node in found.values() if isinstance(node, ast.ClassDef) and _is_enum(node)}
    if name not in found or name in enums:
        known = ", ".join(key for key in found if key not in enums) or "none"
        raise TargetError(f"{path}: no function {name!r}; there are {known}")
    node = found[name]
    if isinstance(node, ast.FunctionDef):
        returns = not (isinstance(node.returns, ast.Constant) and node.returns.value is None)
        return Signature(name, "function", tuple(_parameters(node, enums, 0)), (), tuple(_written(node)), returns)
    methods = {method.name: method for method in node.body if isinstance(method, ast.FunctionDef)}
    if "forward" not in methods:
        raise TargetError(f"{path}: class {name!r} has no forward, so that it is no autograd function and no module")
    forward = tuple(_parameters(methods["forward"], enums, 1))
    if "backward" in methods:
        return Signature(name, "autograd function", forward)
    built = tuple(_parameters(methods["__init__"], enums, 1)) if "__init__" in methods else ()
    return Signature(name, "module", forward, built)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8-sig"))
    except SyntaxError as error:
        raise TargetError(f"{path}:{error.lineno}: syntax error: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise TargetError(f"cannot read {path}: {' '.join(str(error).split())}") from None


def _parameters(function: ast.FunctionDef, enums: dict[str, ast.ClassDef], skipped: int) -> Iterator[Parameter]:
    """The parameters by name, without the first ones that are skipped (self or the context), and without ``*args``."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    padding = [None] * (len(positional) - len(arguments.defaults))
    pairs = list(zip(positional, [*padding, *arguments.defaults], strict=True))[skipped:]
    for argument, default in pairs:
        yield _parameter(argument, default, enums, named=False)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(argument, default, enums, named=True)


def _parameter(
    argument: ast.arg, default: ast.expr | None, enums: dict[str, ast.ClassDef], *, named: bool
) -> Parameter:
    annotation, optional = _without_none(_unquoted(argument.annotation))
    text = ast.unparse(default) if default is not None else ""
    choices, enum = tuple(_choices(annotation, default)), ""
    if isinstance(annotation, ast.Name) and annotation.id in enums:
        enum, choices = annotation.id, tuple(repr(member) for member in _members(enums[annotation.id]))
        text = repr(default.attr) if isinstance(default, ast.Attribute) else text
    spelled = ast.unparse(annotation) if annotation is not None else ""
    return Parameter(argument.arg, spelled, text, optional or text == "None", choices, enum, named)


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return None
    return annotation


def _without_none(annotation: ast.expr | None) -> tuple[ast.expr | None, bool]:
    """An annotation without ``| None`` or ``Optional[..]``, and whether it had that."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        sides = [annotation.left, annotation.right]
        kept = [side for side in sides if not (isinstance(side, ast.Constant) and side.value is None)]
        return kept[0], len(kept) < 2
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).split(".")[-1] == "Optional":
        return annotation.slice, True
    return annotation, False


def _choices(annotation: ast.expr | None, default: ast.expr | None) -> Iterator[str]:
    """The values of a Literal, or both of a bool."""
    is_bool = isinstance(annotation, ast.Name) and annotation.id == "bool"
    if is_bool or isinstance(default, ast.Constant) and isinstance(default.value, bool):
        yield from ("False", "True")
    elif isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value).split(".")[-1] == "Literal":
        inner = annotation.slice
        yield from (ast.unparse(one) for one in (inner.elts if isinstance(inner, ast.Tuple) else [inner]))


def _is_enum(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).split(".")[-1] in ("Enum", "IntEnum", "StrEnum") for base in node.bases)


def _members(node: ast.ClassDef) -> list[str]:
    places = [statement.targets[0] for statement in node.body if isinstance(statement, ast.Assign)]
    return [place.id for place in places if isinstance(place, ast.Name)]


def _written(function: ast.FunctionDef) -> Iterator[str]:
    """The arguments that an operator's schema says it writes."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] in OPERATORS:
            for keyword in decorator.keywords:
                if keyword.arg == "mutates_args" and isinstance(keyword.value, ast.Tuple | ast.List | ast.Set):
                    yield from (str(one.value) for one in keyword.value.elts if isinstance(one, ast.Constant))
