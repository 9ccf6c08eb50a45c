"""Operations by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# (evaluator, expression, values of its operands) -> value.
OPERATIONS: dict[str, Callable[..., Any]] = {}


def evaluates(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register
