"""CUDA graphs on the CPU: what is computed during a capture, by torch and by kernels, is recorded and replayed.

As on a GPU, a capture leaves memory and generators as they were, and a replay computes with the values that stand in
the captured memory then. Unlike there, a capture computes, so that what asks for a value in it gets one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter, tree_map_only
from triton.compiler.compiler import CompiledKernel

from fuzz.backends.dispatch_mode import DispatchMode
from fuzz.backends.launcher_allocations import find_traits
from fuzz.backends.triton_host.generators import GENERATOR
from fuzz.backends.triton_host.patching import Patch, patched

Step = Callable[[], None]
real_run: Any = CompiledKernel.run


def fixed(arguments: Any) -> Any:
    """Arguments with the memory that their tensors have now, whatever becomes of the tensors."""
    return tree_map_only(torch.Tensor, torch.Tensor.detach, arguments)


def storages(values: Any) -> dict[int, torch.UntypedStorage]:
    """The storages of all tensors, and of what launchers pass in the place of one, in nested values by identity."""
    bases = (getattr(value, "base", value) for value in tree_iter(values))
    found = [base.untyped_storage() for base in bases if hasattr(base, "untyped_storage")]
    return {storage._cdata: storage for storage in found}


class Recording(DispatchMode):  # type: ignore[no-untyped-call]
    """While active, executes and records the operations of torch and the launches of kernels."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self.allocated: dict[int, torch.UntypedStorage] = {}
        self.before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = (args, kwargs or {})
        traits = find_traits(func)
        if not traits.is_view:
            self.keep(given)
        recorded = fixed(given)
        result = func(*args, **given[1])
        inputs = storages(given)
        fresh = {key: storage for key, storage in storages(result).items() if key not in inputs}
        self.allocated |= fresh
        if traits.is_mutable or (fresh and not traits.is_uninitialised):
            self.steps.append(lambda: repeat(func, recorded, [*fresh.values()]))
        return result

    def keep(self, given: Any) -> None:
        """Keeps the bytes of storages that were there before the capture: an operation may write to them."""
        for key, storage in storages(given).items():
            if key not in self.allocated and key not in self.before:
                with _disable_current_modes():
                    self.before[key] = (storage, storage.clone())  # type: ignore[no-untyped-call]

    def restore(self) -> None:
        """Gives memory the bytes that it had before the capture."""
        for storage, copy in self.before.values():
            storage.copy_(copy)

    def launcher(self, kernel: CompiledKernel) -> Callable[..., None]:
        """`CompiledKernel.run` during the capture."""
        launch = real_run.fget(kernel)

        def record(*arguments: Any) -> None:
            self.keep(arguments)
            recorded = fixed(arguments)
            self.steps.append(lambda: launch(*recorded))
            launch(*arguments)

        return record


def repeat(func: Any, given: tuple[Any, Any], fresh: Sequence[torch.UntypedStorage]) -> None:
    """Executes an operation again. What it allocates goes to the memory that it allocated during the capture."""
    args, kwargs = given
    inputs = storages(given)
    again = [storage for key, storage in storages(func(*args, **kwargs)).items() if key not in inputs]
    for storage, computed in zip(fresh, again, strict=True):
        if storage.nbytes() != computed.nbytes():
            raise RuntimeError(f"a shape depends on values: {func} cannot be in a CUDA graph")
        storage.copy_(computed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Afterwards the generators of the processor and of the GPU are in the states that they had before."""
    states = [(generator, generator.get_state()) for generator in (torch.default_generator, GENERATOR)]
    yield
    for generator, state in states:
        generator.set_state(state)


class RecordedGraph:
    """`torch.cuda.CUDAGraph`."""

    capturing: ClassVar[RecordedGraph | None] = None
    """The graph that is captured."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._steps: list[Step] | None = None
        self._capture = ExitStack()

    def capture_begin(self, pool: Any = None, **_: Any) -> None:
        """Everything in this thread is recorded until `capture_end`. RuntimeError inside another capture."""
        if RecordedGraph.capturing is not None:
            raise RuntimeError("another CUDA graph is being captured")
        RecordedGraph.capturing = self
        recording = Recording()
        with ExitStack() as stack:
            stack.callback(setattr, RecordedGraph, "capturing", None)
            stack.callback(recording.restore)
            stack.enter_context(generators_kept())
            # Code that torch.compile generates writes to memory without an operation of torch.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(patched([Patch(CompiledKernel, "run", property(recording.launcher))]))
            stack.enter_context(recording)
            self._capture = stack.pop_all()
        self._steps = recording.steps

    def capture_end(self) -> None:
        """Ends the capture. RuntimeError where none of this graph is going on."""
        if RecordedGraph.capturing is not self:
            raise RuntimeError("this CUDA graph is not being captured")
        self._capture.close()

    def replay(self) -> None:
        """Repeats what was captured. RuntimeError where nothing was, or where a shape depends on values."""
        if self._steps is None or RecordedGraph.capturing is self:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        # As on a GPU, autograd does not see what a replay writes.
        with torch.inference_mode():
            for step in self._steps:
                step()

    def reset(self) -> None:
        """Forgets what was captured."""
        self._steps = None

    def pool(self) -> tuple[int, int]:
        """Some pool of memory: all graphs share that of the process."""
        return pool_handle()

    def instantiate(self) -> None:
        """A recording is always ready."""

    def register_generator_state(self, generator: Any) -> None:
        """A replay draws from the generator itself."""

    def enable_debug_mode(self) -> None:
        """There is no more to see."""

    def debug_dump(self, debug_path: str) -> None:
        raise NotImplementedError("the nodes of a CUDA graph are those of a GPU's driver: the cpu backend has none")

    def raw_cuda_graph(self) -> int:
        raise NotImplementedError("the handle of a CUDA graph is of a GPU's driver: the cpu backend has none")

    raw_cuda_graph_exec = raw_cuda_graph


def pool_handle() -> tuple[int, int]:
    return (0, 0)


def is_capturing() -> bool:
    """Whether a capture is going on."""
    return RecordedGraph.capturing is not None


PATCHES = [
    Patch(torch.cuda, "CUDAGraph", RecordedGraph),
    Patch(torch.cuda.graphs, "CUDAGraph", RecordedGraph),
    Patch(torch.cuda.graphs, "_graph_pool_handle", pool_handle),
    Patch(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", is_capturing),
]
