"""Loads libraries without `torch._dynamo`, whose import takes longer than that of torch and of most libraries.

Libraries import it by decorating functions with `torch.compiler.disable` or `torch.compile`. Until something else has
imported it nothing is compiled, and then a function that is not to be compiled is called as it is.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from types import FunctionType
from typing import Any

from fuzz.backends.triton_host.dynamo import NAME as DYNAMO
from fuzz.backends.triton_host.patching import Patch, patched

Decorator = Callable[..., Any]


def disable(real: Decorator, fn: Any = None, *args: Any, **keywords: Any) -> Any:
    """`torch.compiler.disable`, which is given first."""
    if fn is None:
        return lambda function: disable(real, function, *args, **keywords)
    if DYNAMO in sys.modules or not isinstance(fn, FunctionType):
        return real(fn, *args, **keywords)
    return deferred(fn, lambda: real(fn, *args, **keywords))


def compile(real: Decorator, model: Any = None, **keywords: Any) -> Any:
    """`torch.compile`, which is given first. Where the variable TORCH_COMPILE_DISABLE is 1 it compiles nothing."""
    if model is None:
        return lambda function: compile(real, function, **keywords)
    is_disabled = os.environ.get("TORCH_COMPILE_DISABLE") == "1"
    if is_disabled and DYNAMO not in sys.modules and isinstance(model, (FunctionType, type)):
        return model
    return real(model, **keywords)


def deferred(function: Callable[..., Any], decorate: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """A function that is decorated in its first call after `torch._dynamo` has been imported, and plain until then."""
    decorated: Callable[..., Any] | None = None

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        nonlocal decorated
        if decorated is None and DYNAMO in sys.modules:
            decorated = decorate()
        return (decorated or function)(*args, **keywords)

    # By these torch decorates the function itself where `call` is decorated again, and compiles nothing that calls it.
    call.__dict__.update(
        _torchdynamo_orig_callable=function, _torchdynamo_wrapper_id=id(call), _torchdynamo_disable=True
    )
    return call


@contextmanager
def deferring_dynamo() -> Iterator[None]:
    """What is decorated inside does not import `torch._dynamo`."""
    import torch.compiler

    patches = [
        Patch(torch.compiler, "disable", partial(disable, torch.compiler.disable)),
        Patch(torch, "compile", partial(compile, torch.compile)),
    ]
    with patched(patches):
        yield
