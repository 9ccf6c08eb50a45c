"""Loads a target's file, and the libraries that it imports, in a fraction of the time that this takes by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fuzz.backends.imports.deferred_dynamo import deferring_dynamo
from fuzz.backends.imports.deferred_sympy import defer_sympy
from fuzz.backends.source_blocks import finding_blocks_by_bytecode


@contextmanager
def quick_imports() -> Iterator[None]:
    """What is imported inside does not import `torch._dynamo`, and its kernels' lines are found by their bytecode.

    Nor does `torch.distributed.tensor` import sympy, inside or later.
    """
    defer_sympy()
    with deferring_dynamo(), finding_blocks_by_bytecode():
        yield
