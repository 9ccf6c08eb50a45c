"""Finds parameters, dtypes, ranks, layouts and configurations that no case varied."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Set

from fuzz.coverage_report.blockers import Blocker
from fuzz.coverage_report.definitions import Definition
from fuzz.coverage_report.protocol import SourceFunction, TensorKind, Value
from fuzz.model.case import Case
from fuzz.target.spec import FLOATS, Target

NO_DEFAULT = object()
PLAIN = ("staticmethod", "classmethod")
"""Decorators that give a function what it is called with."""


def find_parameter_blockers(
    function: SourceFunction, node: Definition, values: Mapping[tuple[SourceFunction, str], Set[Value]]
) -> Iterator[Blocker]:
    """Parameters of a function that had one value in every call, and kinds of tensors that they never were.

    What a decorator may have made contiguous says nothing of the layouts that were given.
    """
    defaults, is_decorated = _defaults(node), any(ast.unparse(each) not in PLAIN for each in node.decorator_list)
    for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        seen = values.get((function, parameter.arg), set())
        if seen and parameter.arg not in ("self", "cls", "ctx"):
            for kind, what, needs in _never_given(parameter, defaults.get(parameter.arg, NO_DEFAULT), seen):
                if kind == "layout" and is_decorated:
                    continue
                yield Blocker(kind, function.file, node.lineno, f"{function.name}: {what}", needs)


def _defaults(node: Definition) -> dict[str, object]:
    """The defaults of a function's parameters that are plain values, by name."""
    positional = [*node.args.posonlyargs, *node.args.args]
    last = positional[len(positional) - len(node.args.defaults) :]
    pairs = [
        *zip(last, node.args.defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    return {each.arg: ast.literal_eval(value) for each, value in pairs if value is not None and _is_plain(value)}


def _is_plain(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except (ValueError, TypeError):
        return False
    return True


def _never_given(parameter: ast.arg, default: object, seen: Set[Value]) -> Iterator[tuple[str, str, str]]:
    """(kind, what was never given, what would give it) of one parameter."""
    name, only = parameter.arg, next(iter(seen)) if len(seen) == 1 else ...
    annotation = ast.unparse(parameter.annotation) if parameter.annotation else ""
    if only is None:
        yield "parameter", f"{name} is always None", f"an argument {name}"
    elif isinstance(only, bool):
        yield "parameter", f"{name} is always {only}", f"{name}=option({only}, {not only})"
    elif default is not NO_DEFAULT and only == default:
        yield "parameter", f"{name} is always its default, {only!r}", f"{name}=option({only!r}, ..)"
    elif None not in seen and (default is None or "None" in annotation or "Optional" in annotation):
        yield "parameter", f"{name} is never None", f"a case without {name}"
    if tensors := [value for value in seen if isinstance(value, TensorKind)]:
        yield from _tensors_never_given(name, tensors)


def _tensors_never_given(name: str, seen: list[TensorKind]) -> Iterator[tuple[str, str, str]]:
    dtypes, ranks = {tensor.dtype for tensor in seen}, {tensor.rank for tensor in seen}
    if dtypes & {*FLOATS}:
        for missing in (dtype for dtype in FLOATS if dtype not in dtypes):
            yield "dtype", f"{name} is never {missing}", f'dtypes=(.., "{missing}")'
    if all(tensor.contiguous for tensor in seen):
        yield "layout", f"{name} is always contiguous", "a layout with other strides"
    if len(ranks) == 1:
        yield "rank", f"{name} always has rank {ranks.pop()}", "a declaration with another rank"


def find_configuration_blockers(target: Target, configurations: int, cases: Iterable[Case]) -> Iterator[Blocker]:
    """Configurations of autotuners that no case chose, of so many that there are; configuration 0 is the default."""
    chosen = {call.launch.config or 0 for case in cases for call in case.calls if call.launch} | {0}
    for number in range(1, configurations):
        if number not in chosen:
            what = f"configuration {number} of the autotuner is never chosen"
            yield Blocker("configuration", str(target.path), 1, what, "more cases")
