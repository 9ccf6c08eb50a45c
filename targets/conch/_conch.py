"""conch-triton-kernels, whose operations are those of an inference engine and have no backward."""

import importlib
from collections.abc import Callable
from typing import Any

import conch  # noqa: F401  Where the extra is missing, no target of this folder can be loaded.

from fuzz import target


def kernel(**declaration: Any) -> Callable[..., Any]:
    """Declares a target of the library: it promises no bits for other layouts, which it copies or walks otherwise."""
    return target(**{"layout": "envelope", **declaration})


def found(place: str) -> Any:
    """The object that ``module:name`` is in conch.ops."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"conch.ops.{module}"), name)
