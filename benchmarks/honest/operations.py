"""Makes targets of a declared operation: PyTorch's own, in every dtype, or a library's kernels behind torch's function.

What an operation of several steps rounds between them is rounded to its inputs' dtype: that is the promise.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.honest.bounds import SIZES
from benchmarks.honest.calls import Declaration, apply, find_function, free_sizes
from fuzz import size, target
from fuzz.backends import cpu
from fuzz.errors import one_line
from fuzz.model.dims import resolve
from fuzz.reference.envelope import COTANGENT, evaluate, make_precision, with_gradients
from fuzz.target.arguments import TensorArgument

LACKS = re.compile(r"(Half|BFloat16|Float|float16|bfloat16)\w*'? is not supported|not implemented for")
"""How PyTorch says that an operation has no kernel for a dtype."""


class Replaced(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls functions of a library in place of torch's operations; NotImplementedError where it never did."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.functions = functions
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        function = self.functions.get(operation_name(func))
        self.count += function is not None
        return (function or func)(*args, **(kwargs or {}))

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if not self.count and error[0] is None:
            raise NotImplementedError("the library has none of the operations that were called")


def operation_name(func: Any) -> str:
    """The name by which libraries register an operation: without the overload where that is the default one."""
    return str(
        func._schema.name.split("::")[1] + (f".{func._schema.overload_name}" if func._schema.overload_name else "")
    )


class Recorded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the names of the operations that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(operation_name(func))
        return func(*args, **(kwargs or {}))


def operations_of(declaration: Declaration) -> set[str]:
    """The names of the operations that a call of small sizes runs."""
    function = find_function(declaration.function)
    assert function is not None
    sizes = free_sizes(declaration.dims, SIZES[0])
    tensors = {name: torch.rand(resolve(tuple(texts), sizes)) for name, texts in declaration.shapes.items()}
    with Recorded() as recorded, torch.no_grad():
        apply(declaration, function, tensors)
    return recorded.names


@cache
def flag_gems_functions() -> Mapping[str, Callable[..., Any]]:
    """FlagGems' functions by operation. It asks for its vendor's GPU when it is imported, and keeps what it tunes."""
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    os.environ.setdefault("FLAGGEMS_DB_URL", "sqlite:///:memory:")
    with nullcontext() if torch.cuda.is_available() else cpu.active(), warnings.catch_warnings():
        # Its kernels are decorated as older versions of Triton ask for.
        warnings.simplefilter("ignore", DeprecationWarning)
        import flag_gems

    return {entry[0]: entry[1] for entry in flag_gems._FULL_CONFIG}


def library_mode(library: str) -> AbstractContextManager[Any]:
    """The context in which torch's functions run a library's kernels."""
    return Replaced(flag_gems_functions()) if library == "flag_gems" else nullcontext()


def results_of(
    declaration: Declaration, tensors: Mapping[str, torch.Tensor], mode: AbstractContextManager[Any]
) -> dict[str, torch.Tensor]:
    """The outputs of a call by name, computed in a context."""
    function = find_function(declaration.function)
    assert function is not None
    # A result in an argument's own memory would be taken for one that nobody computed.
    own = {name: value * 1 for name, value in tensors.items()}
    with mode:
        results = apply(declaration, function, own)
    return {f"y{place}": results[int(place)] * 1 for place in declaration.outputs}


@contextmanager
def refusals() -> Iterator[None]:
    """NotImplementedError for an operation that says by another error that a backend lacks it for a dtype."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, NotImplementedError) or not LACKS.search(str(error)):
            raise
        raise NotImplementedError(str(error)) from error


def why_not_graded(declaration: Declaration) -> str:
    """Why the reference of a call cannot be evaluated, such as an operation without a rule; empty where it can."""
    sizes = free_sizes(declaration.dims, SIZES[0])
    inputs = {name: torch.rand(resolve(tuple(texts), sizes)) for name, texts in declaration.shapes.items()}
    seeds = {f"y{place}": torch.rand(resolve(tuple(texts), sizes)) for place, texts in declaration.outputs.items()}

    def reference(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = results_of(declaration, tensors, nullcontext())
        if narrow := [str(one.dtype) for one in outputs.values() if one.dtype != torch.float64]:
            raise TypeError(f"its results are of {narrow[0]}, whatever its arguments are")
        return outputs

    joint = with_gradients(reference, tuple(seeds), tuple(inputs)) if declaration.gradients else reference
    given = {COTANGENT + name: seed for name, seed in seeds.items()} if declaration.gradients else {}
    try:
        evaluate(joint, {**inputs, **given}, make_precision("libm"), members=2, uncertainty=False)
    except Exception as error:  # noqa: BLE001  An operation may raise anything for numbers that it does not know.
        return one_line(error)
    return ""


def declare(module: str, library: str, **fields: Any) -> dict[str, Any]:
    """The targets of one declaration, one a dtype, for the module whose names they become."""
    declaration = Declaration(**fields)
    return {
        f"{declaration.name}_{dtype}": declare_one(module, library, declaration, dtype) for dtype in declaration.dtypes
    }


def declare_one(module: str, library: str, declaration: Declaration, dtype: str) -> Any:
    """The target of one operation in one dtype. A library's kernels are compared without their gradients."""
    shapes = {name: TensorArgument(tuple(texts)) for name, texts in declaration.shapes.items()}
    outputs = {f"y{place}": TensorArgument(tuple(texts)) for place, texts in declaration.outputs.items()}

    def reference(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        return results_of(declaration, tensors, nullcontext())

    def launch(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        with refusals():
            return results_of(declaration, tensors, library_mode(library))

    launch.__module__ = module
    return target(
        name=f"{declaration.name}_{dtype}",
        dtypes=(dtype,),
        accumulate="inputs",
        # cuDNN may take TF32 by default: torch.backends.cudnn.allow_tf32.
        dot="tf32" if "convolution" in operations_of(declaration) else "ieee",
        layout="envelope",
        deterministic=library != "torch" or "PyTorch promises it where use_deterministic_algorithms asks for it",
        reference=reference,
        differentiable=outputs if declaration.gradients and library == "torch" else None,
        dims=tuple(size(name, *limits) for name, limits in declaration.dims.items()),
        **shapes,
    )(launch)
