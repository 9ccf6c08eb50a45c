"""Checks what the keywords of `@target` are given, and that its arguments are the launcher's parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import SupportsFloat

from fuzz.errors import TargetError
from fuzz.escaping import clean_text
from fuzz.model.dims import Size
from fuzz.target.arguments import OptionArgument, TensorArgument
from fuzz.target.contract import Contract
from fuzz.target.shapes import Sizes

LONGEST_VALUE = 80
"""Characters that a message shows of what a keyword was given."""
ARGUMENTS = (TensorArgument, OptionArgument, Size)
"""What declares an argument."""


def check_keywords(
    launcher: Callable[..., object], keywords: Mapping[str, object], arguments: Mapping[str, object]
) -> None:
    """TargetError for a keyword that is given what it cannot be, and for arguments that are not the launcher's."""
    if not (inspect.isfunction(launcher) or inspect.ismethod(launcher) or inspect.isclass(launcher)):
        kind = type(launcher).__name__
        raise TargetError(f"@target decorates a function that calls the kernel, and not a {kind}: write a launcher")
    name = keywords["name"]
    where = f"target {name if isinstance(name, str) and name else launcher.__name__!r}"
    parameters = inspect.signature(launcher).parameters
    for keyword, value in keywords.items():
        # One size for dims= may be meant for the keyword.
        is_meant = isinstance(value, Size) and (keyword == "batch" or keyword == "dims" and keyword not in parameters)
        if isinstance(value, (*ARGUMENTS, Sizes)) and not is_meant:
            what = f"{keyword}= is a keyword of @target, and names no argument: give the argument another name"
            raise TargetError(f"{where}: {what}")
        fits, due = DUE.get(keyword, (_is_anything, ""))
        if not fits(value):
            raise TargetError(f"{where}: {keyword}= takes {due}, and not {_show(value)}")
    for key, value in arguments.items():
        if not isinstance(value, ARGUMENTS):
            close = [] if key in parameters else get_close_matches(key, keywords, 1)
            wrong = f"argument {key!r} must be tensor(...), option(...) or size(...)"
            raise TargetError(f"{where}: " + (f"@target has no keyword {key!r}; write {close[0]}=" if close else wrong))
    _check_parameters(parameters, keywords, arguments, where)


def _check_parameters(
    parameters: Mapping[str, inspect.Parameter],
    keywords: Mapping[str, object],
    arguments: Mapping[str, object],
    where: str,
) -> None:
    """TargetError unless the launcher's parameters are those of the declaration."""
    flexible = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for key in arguments:
        if key not in parameters and not flexible:
            hint = "".join(f"; the keyword is {close}=" for close in get_close_matches(key, keywords, 1))
            takes = ", ".join(parameters) or "none"
            raise TargetError(f"{where}: the launcher has no parameter {key!r}; it takes {takes}{hint}")
        if key in parameters and parameters[key].kind is inspect.Parameter.POSITIONAL_ONLY:
            raise TargetError(f"{where}: the launcher takes {key!r} by position only; arguments are passed by name")
    for key, parameter in parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.default is parameter.empty and key not in arguments and not variadic:
            hint = f": {key}= is a keyword of @target, so give it another name" if key in keywords else ""
            raise TargetError(f"{where}: parameter {key!r} of the launcher is not declared{hint}")


def _show(value: object) -> str:
    if callable(value):
        return f"the {type(value).__name__} {getattr(value, '__name__', value)!r}"
    return repr(value.text) if isinstance(value, Size) else clean_text(repr(value), LONGEST_VALUE)


def _is_anything(value: object) -> bool:
    return True


def _is_optional_function(value: object) -> bool:
    return value is None or callable(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are(kind: type | tuple[type, ...], value: object) -> bool:
    """Whether it holds values of a kind alone; an iterator, which can be read once, is taken to."""
    if isinstance(value, Iterator):
        return True
    return isinstance(value, Iterable) and not isinstance(value, str) and all(isinstance(one, kind) for one in value)


def _are_names(value: object) -> bool:
    return isinstance(value, str) or _are(str, value)


def _is_mapping(value: object, fits: Callable[[object], bool] = _is_anything) -> bool:
    return isinstance(value, Mapping) and _are_names(value.keys()) and all(map(fits, value.values()))


DUE: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name": (_is_text, "a text"),
    "reference": (_is_optional_function, "a function"),
    "baseline": (_is_optional_function, "a launcher"),
    "exact": (_is_optional_function, "a function"),
    "contract": (lambda value: isinstance(value, str | Contract), "'envelope', ulps(n) or 'bitwise'"),
    "batch": (lambda value: value is None or isinstance(value, Size), 'a dim, as in M = size("M", 1, 64)'),
    "rows": (
        lambda value: value is None or _is_mapping(value, lambda dim: isinstance(dim, Size)),
        "the dim of each output that has rows, such as dict(y=M)",
    ),
    "linear": (_are_names, "names of arguments"),
    "shifts": (_are_names, "names of arguments"),
    "dims": (lambda value: _are(Size, value), "sizes, such as (M,)"),
    "deterministic": (
        lambda value: value is True or isinstance(value, str) and bool(value.strip()),
        "True, or a text that says why the bits may differ from run to run",
    ),
    "in_place": (
        lambda value: _are_names(value) or _is_mapping(value, _is_text),
        "names of arguments, or of each the option that asks for it, such as dict(x='inplace')",
    ),
    "nonfinite": (
        lambda value: _are_names(value) or _is_mapping(value, _are_names),
        "names of arguments, or the kinds of each, such as dict(mask='-inf')",
    ),
    "large": (lambda value: isinstance(value, bool), "True or False"),
    "rejects": (
        lambda value: value is None or _is_mapping(value, callable),
        "a function for each input, such as dict(short_x=lambda x, **_: dict(x=x[:-1]))",
    ),
    "constants": (lambda value: _are(SupportsFloat, value), "numbers, such as (0.5, 64)"),
    "differentiable": (
        lambda value: value is None or _is_mapping(value, lambda shape: isinstance(shape, TensorArgument)),
        "the outputs' shapes, such as dict(y=tensor(M, N))",
    ),
    "seeds": (
        lambda value: value is None or _is_mapping(value),
        "inputs by name, such as dict(reported=dict(N=2, x=[1.0, -1.0]))",
    ),
    "unreached": (
        lambda value: value is None or _is_mapping(value, _is_text),
        "a reason for each pattern, such as {'branch *': 'why'}",
    ),
    "imports": (_are_names, "names of modules"),
}
"""By keyword: whether a value is one that it takes, and what it takes in words. Others are one of some texts."""
