"""Records the kernels that Triton launches on a GPU, and launches them again on other memory, past its front end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import Any

import numpy as np
import torch
from triton.compiler.compiler import CompiledKernel

from fuzz.backends.base import Pointer, RunOrder
from fuzz.backends.cuda.launch_loop import LaunchLoop, make_loop
from fuzz.backends.guarded_memory import address_range

GRID, HEAD = 3, 9
"""A launcher gets the grid, the stream, the function, two kinds of metadata and two hooks before the arguments."""


@dataclass(frozen=True)
class CudaLaunch:
    """One launch: the compiled kernel, the launcher that Triton called for it, and that launcher's arguments.

    `on_side_stream` tells that it was on another stream than what fills and reads its memory.
    """

    kernel: CompiledKernel
    run: Callable[..., None]
    head: tuple[Any, ...]
    arguments: tuple[Any, ...]
    on_side_stream: bool = False

    @property
    def pointers(self) -> Sequence[Pointer] | None:
        """The arguments that are addresses, as `RecordedLaunch` has them."""
        if self.on_side_stream:
            return None  # Where the launcher has streams wait for each other is not known.
        pointers = []
        for slot, argument in enumerate(self.arguments):
            if isinstance(argument, torch.Tensor):
                if argument.numel():
                    pointers.append(Pointer(slot, *address_range(argument)))
            elif isinstance(argument, tuple) or hasattr(argument, "base"):
                return None  # Tuples and descriptors hold tensors of their own.
        return pointers

    @property
    def numbers(self) -> Sequence[int]:
        """The integers among the arguments: whether the kernel makes addresses of them is not known."""
        return [argument for argument in self.arguments if isinstance(argument, int)]

    @cached_property
    def loop(self) -> LaunchLoop | None:
        """The launch as it is repeated without Triton's launcher, where that is possible."""
        return make_loop(self.kernel, self.head, self.arguments)

    def repeat(self, count: int, offsets: Mapping[int, np.ndarray], orders: Sequence[RunOrder] = ()) -> None:
        """Launches `count` times, as `RecordedLaunch` does. A GPU runs programs in an order of its own."""
        columns = {slot: self.arguments[slot].data_ptr() + offset for slot, offset in offsets.items()}
        if self.loop is not None:
            self.loop.repeat(count, columns)
            return
        arguments = list(self.arguments)
        addresses = [(slot, column.tolist()) for slot, column in columns.items()]
        for number in range(count):
            for slot, column in addresses:
                arguments[slot] = column[number]
            self.run(*self.head, *arguments)


@contextmanager
def record_launches(stream: int = 0) -> Iterator[list[CudaLaunch]]:
    """A list of the launches that this process makes inside, where CUDA's `stream` is the current one."""
    launches: list[CudaLaunch] = []
    original = CompiledKernel.run

    def run(kernel: Any) -> Callable[..., None]:
        launcher = original.fget(kernel)

        def launch(*arguments: Any) -> None:
            # Triton's launcher would read a grid of tensors too; a launch that is repeated needs its numbers.
            head = (*map(index, arguments[:GRID]), *arguments[GRID:HEAD])
            launches.append(CudaLaunch(kernel, launcher, head, arguments[HEAD:], head[GRID] != stream))
            launcher(*head, *arguments[HEAD:])

        return launch

    CompiledKernel.run = property(run)
    try:
        yield launches
    finally:
        CompiledKernel.run = original
