"""Launched: kernels that Triton launched on a GPU, and how to launch them again on other memory, past its front end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from triton.compiler.compiler import CompiledKernel

from fuzz.backends.base import Pointer
from fuzz.backends.cuda.launch_loop import Loop, loop
from fuzz.backends.memory import extent

HEAD = 9
"""A launcher gets the grid, the stream, the function, two kinds of metadata and two hooks before the arguments."""


@dataclass(frozen=True)
class Launched:
    """One launch: of which compiled kernel, what Triton called for it, and with what."""

    kernel: CompiledKernel
    run: Callable[..., None]
    head: tuple[Any, ...]
    arguments: tuple[Any, ...]

    @property
    def pointers(self) -> Sequence[Pointer] | None:
        found = []
        for slot, argument in enumerate(self.arguments):
            if isinstance(argument, torch.Tensor):
                if argument.numel():
                    found.append(Pointer(slot, *extent(argument)))
            elif isinstance(argument, tuple) or hasattr(argument, "base"):
                return None  # Tuples and descriptors hold tensors of their own.
        return found

    @cached_property
    def loop(self) -> Loop | None:
        """The launch as it is repeated without Triton's launcher, where that is possible."""
        return loop(self.kernel, self.head, self.arguments)

    def repeat(self, count: int, moved: Mapping[int, np.ndarray], order: int | None) -> None:
        """So many launches. A GPU runs programs in an order of its own."""
        columns = {slot: self.arguments[slot].data_ptr() + away for slot, away in moved.items()}
        if self.loop is not None:
            self.loop.repeat(count, columns)
            return
        arguments = list(self.arguments)
        lists = [(slot, addresses.tolist()) for slot, addresses in columns.items()]
        for number in range(count):
            for slot, addresses in lists:
                arguments[slot] = addresses[number]
            self.run(*self.head, *arguments)


@contextmanager
def recording() -> Iterator[list[Launched]]:
    """The launches of this process, as long as it is open."""
    found: list[Launched] = []
    original = CompiledKernel.run

    def run(kernel: Any) -> Callable[..., None]:
        launcher = original.fget(kernel)

        def launch(*given: Any) -> None:
            found.append(Launched(kernel, launcher, given[:HEAD], given[HEAD:]))
            launcher(*given)

        return launch

    CompiledKernel.run = property(run)
    try:
        yield found
    finally:
        CompiledKernel.run = original
