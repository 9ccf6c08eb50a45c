"""Answers for the CPU what launchers ask `torch.cuda` and tensors about a GPU, as the knobs say.

`PATCHES` replaces functions while the backend is active. They answer the code around kernels, which is written for a
GPU; a tensor's `device` stays `cpu`, and memory for `device="cuda"` cannot be allocated.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fuzz.backends.triton_host import autocast, cuda_graphs, generators
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch

WARP = 32
real_is_available, real_synchronize = torch.cuda.is_available, torch.cuda.synchronize


@dataclass(frozen=True)
class DeviceProperties:
    """`torch.cuda.get_device_properties`. Sizes in bytes."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    total_memory: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    shared_memory_per_block: int = 48 << 10
    regs_per_multiprocessor: int = 65536
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    warp_size: int = WARP
    L2_cache_size: int = 50 << 20
    gcnArchName: str = ""
    is_integrated: int = 0
    is_multi_gpu_board: int = 0


def get_device_properties(device: Any = None) -> DeviceProperties:
    """The properties of the GPU that the knobs describe."""
    major, minor = knobs.capability
    return DeviceProperties(
        name=knobs.device_name,
        major=major,
        minor=minor,
        multi_processor_count=knobs.multiprocessor_count,
        total_memory=knobs.total_memory,
        shared_memory_per_block_optin=knobs.max_shared_mem,
        shared_memory_per_multiprocessor=knobs.max_shared_mem,
    )


class FakeStream:
    """The only stream: launches have ended when they return."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    priority = 0
    device = torch.device("cpu")

    def __init__(self, *_: Any, **__: Any) -> None:
        """Takes what a stream takes."""

    def __enter__(self) -> FakeStream:
        return self

    def __exit__(self, *_: Any) -> None:
        """Nothing to leave."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FakeStream)

    def __hash__(self) -> int:
        return 0

    def query(self) -> bool:
        return True

    def record_event(self, event: FakeEvent | None = None) -> FakeEvent:
        event = event or FakeEvent()
        event.record()
        return event

    def synchronize(self, *_: Any) -> None:
        """Everything before has ended."""

    wait_event = wait_stream = synchronize


class FakeEvent:
    """A point in time."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: FakeEvent) -> float:
        """Milliseconds."""
        return 1e3 * (end.time - self.time)

    def query(self) -> bool:
        return True

    def synchronize(self, *_: Any) -> None:
        """Everything before has ended."""

    wait = synchronize


def synchronize(device: Any = None) -> None:
    """Waits for a GPU only where one is in use beside the CPU."""
    if getattr(torch.cuda, "_initialized", False):
        real_synchronize()


class DeviceContext:
    """`torch.cuda.device`: the only device stays the current one."""

    def __init__(self, device: Any = None) -> None:
        self.idx, self.prev_idx = 0, -1

    def __enter__(self) -> None:
        self.prev_idx = 0

    def __exit__(self, *_: Any) -> None:
        """The device was current before."""


def stand_in(result: Callable[[], Any] = lambda: None) -> Callable[..., Any]:
    """A function of its own for each name, whatever its arguments: `torch._dynamo` has one rule for each function."""
    return lambda *_, **__: result()


def is_cuda(tensor: torch.Tensor) -> bool:
    """Whether kernels take this tensor: launchers refuse others by it."""
    return knobs.available and tensor.device.type in ("cpu", "cuda")


def return_self(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    """`Tensor.cuda`: kernels take the tensor where it is."""
    return tensor


REPLACEMENTS: dict[str, Any] = {
    "is_available": lambda: knobs.available,
    "is_bf16_supported": lambda *_, **__: True,
    "device_count": lambda: int(knobs.available),
    "current_device": lambda: 0,
    "set_device": stand_in(),
    "get_device_name": lambda device=None: knobs.device_name,
    "get_device_capability": lambda device=None: knobs.capability,
    "get_device_properties": get_device_properties,
    "mem_get_info": lambda device=None: (knobs.total_memory, knobs.total_memory),
    "empty_cache": stand_in(),
    "reset_peak_memory_stats": stand_in(),
    "reset_max_memory_allocated": stand_in(),
    "reset_accumulated_memory_stats": stand_in(),
    "synchronize": synchronize,
    "device": DeviceContext,
    "device_of": DeviceContext,
    "_exchange_device": lambda device: 0,
    "_maybe_exchange_device": lambda device: 0,
    "stream": stand_in(contextlib.nullcontext),
    "set_stream": stand_in(),
    "Stream": FakeStream,
    "Event": FakeEvent,
    "current_stream": stand_in(FakeStream),
    "default_stream": stand_in(FakeStream),
    **generators.REPLACEMENTS,
}
PATCHES = [
    *(Patch(torch.cuda, name, value) for name, value in REPLACEMENTS.items()),
    Patch(torch.Tensor, "is_cuda", property(is_cuda)),
    Patch(torch.Tensor, "cuda", return_self),
    Patch(torch.Tensor, "pin_memory", return_self),
    Patch(torch._C, "_cuda_getCurrentRawStream", lambda device: 0),
    Patch(torch._C, "_host_emptyCache", stand_in()),
    Patch(torch.cuda.graph, "default_capture_stream", FakeStream()),
    *(Patch(torch.cuda.nvtx, name, stand_in()) for name in ("range_push", "range_pop", "mark")),
    *autocast.PATCHES,
    *cuda_graphs.PATCHES,
]
