"""Reads from a file's source what a launcher takes: a function, an autograd function, a module or a custom operator."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz.errors import TargetError
from fuzz.target.skeleton.defaults import constants_of, plain_text

COUNTS = re.compile(r"(num|n)_.*|.*_(size|count)")
"""Names of whole numbers."""
OPERATORS = ("triton_op", "custom_op")
"""Decorators that make a function an operator of PyTorch, whose schema names the arguments that it writes."""


@dataclass(frozen=True)
class Parameter:
    """One parameter: its annotation without ``| None``, and its default, as source text; empty without one.

    `value` is the default as the text of a plain value; empty where that cannot be read from the source, or is none.
    `choices` are those of a Literal or a bool, or the names of an Enum's members. `enum` is the Enum's name.
    One that is `named` is passed by name alone, one that is `positional` by position alone. `renamed` is what the
    target calls it where its own name would be in the way there.
    """

    name: str
    annotation: str = ""
    default: str = ""
    value: str = ""
    optional: bool = False
    choices: tuple[str, ...] = ()
    enum: str = ""
    named: bool = False
    positional: bool = False
    renamed: str = ""

    @property
    def argument(self) -> str:
        """The target's name for it."""
        return self.renamed or self.name

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
    reader = SourceReader(enums, constants_of(tree))
    if name not in found or name in enums:
        known = ", ".join(key for key in found if key not in enums) or "none"
        raise TargetError(f"{path}: no function {name!r}; there are {known}")
    node = found[name]
    if isinstance(node, ast.FunctionDef):
        returns = not (isinstance(node.returns, ast.Constant) and node.returns.value is None)
        return Signature(name, "function", tuple(reader.parameters(node, 0)), (), tuple(_written(node)), returns)
    methods = {method.name: method for method in node.body if isinstance(method, ast.FunctionDef)}
    if "forward" not in methods:
        raise TargetError(f"{path}: class {name!r} has no forward, so that it is no autograd function and no module")
    # With setup_context, forward gets no context.
    forward = tuple(reader.parameters(methods["forward"], 0 if "setup_context" in methods else 1))
    if "backward" in methods:
        return Signature(name, "autograd function", tuple(replace(one, positional=True) for one in forward))
    built = tuple(reader.parameters(methods["__init__"], 1)) if "__init__" in methods else ()
    return Signature(name, "module", forward, built)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8-sig"))
    except SyntaxError as error:
        raise TargetError(f"{path}:{error.lineno}: syntax error: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise TargetError(f"cannot read {path}: {' '.join(str(error).split())}") from None


@dataclass(frozen=True)
class SourceReader:
    """Reads parameters in a file with these Enums, and with these constants at its top."""

    enums: Mapping[str, ast.ClassDef]
    constants: Mapping[str, ast.expr]

    def parameters(self, function: ast.FunctionDef, skipped: int) -> Iterator[Parameter]:
        """The parameters by name, without the first ones that are skipped (self or the context) and ``*args``."""
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        padding = [None] * (len(positional) - len(arguments.defaults))
        pairs = list(zip(positional, [*padding, *arguments.defaults], strict=True))[skipped:]
        for argument, default in pairs:
            yield replace(self._parameter(argument, default), positional=argument in arguments.posonlyargs)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            yield replace(self._parameter(argument, default), named=True)

    def _parameter(self, argument: ast.arg, default: ast.expr | None) -> Parameter:
        annotation, optional = _without_none(argument.annotation)
        text = ast.unparse(default) if default is not None else ""
        value = plain_text(default, self.constants) if default is not None else ""
        choices, enum = tuple(self._choices(annotation, value)), ""
        of_enum = default.value if annotation is None and isinstance(default, ast.Attribute) else annotation
        if isinstance(of_enum, ast.Name) and of_enum.id in self.enums:
            enum, choices = of_enum.id, tuple(map(repr, _members(self.enums[of_enum.id])))
            member = repr(default.attr) if isinstance(default, ast.Attribute) else ""
            value = member if member in choices else "None" if value == "None" else ""
        spelled = ast.unparse(annotation) if annotation is not None else ""
        return Parameter(argument.arg, spelled, text, value, optional or text == "None", choices, enum)

    def _choices(self, annotation: ast.expr | None, value: str) -> Iterator[str]:
        """The values of a Literal, or both of a bool."""
        if isinstance(annotation, ast.Name) and annotation.id == "bool" or value in ("False", "True"):
            yield from ("False", "True")
        elif isinstance(annotation, ast.Subscript) and _last_name(annotation.value) == "Literal":
            inner = annotation.slice
            texts = (plain_text(one, {}) for one in (inner.elts if isinstance(inner, ast.Tuple) else [inner]))
            yield from filter(None, texts)


def _unquoted(annotation: ast.expr | None) -> ast.expr | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except SyntaxError:
            return None
    return annotation


def _without_none(annotation: ast.expr | None) -> tuple[ast.expr | None, bool]:
    """The tensor, or else the first, of the types that an annotation allows beside None, and whether it allows None."""
    types = list(_types(annotation))
    kept = [one for one in types if not (isinstance(one, ast.Constant) and one.value is None)]
    tensors = [one for one in kept if _last_name(one) == "Tensor"]
    return next(iter([*tensors, *kept]), None), len(kept) < len(types)


def _types(annotation: ast.expr | None) -> Iterator[ast.expr]:
    """The types of a union, however it is written, in order."""
    plain = _unquoted(annotation)
    name = _last_name(plain.value) if isinstance(plain, ast.Subscript) else ""
    if isinstance(plain, ast.BinOp) and isinstance(plain.op, ast.BitOr):
        yield from (*_types(plain.left), *_types(plain.right))
    elif isinstance(plain, ast.Subscript) and name in ("Optional", "Union"):
        parts = plain.slice.elts if isinstance(plain.slice, ast.Tuple) else [plain.slice]
        yield from (one for part in parts for one in _types(part))
        yield from [ast.Constant(None)] if name == "Optional" else []
    elif plain is not None:
        yield plain


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).split(".")[-1]


def _is_enum(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).split(".")[-1] in ("Enum", "IntEnum", "StrEnum") for base in node.bases)


def _members(node: ast.ClassDef) -> list[str]:
    places = []
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            places.append(statement.targets[0])
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            places.append(statement.target)
    return [place.id for place in places if isinstance(place, ast.Name)]


def _written(function: ast.FunctionDef) -> Iterator[str]:
    """The arguments that an operator's schema says it writes."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] in OPERATORS:
            for keyword in decorator.keywords:
                if keyword.arg == "mutates_args" and isinstance(keyword.value, ast.Tuple | ast.List | ast.Set):
                    yield from (str(one.value) for one in keyword.value.elts if isinstance(one, ast.Constant))
