"""Answers for the devices of CPU tensors as if they were on a GPU, and takes a GPU in calls of torch for the CPU.

It holds in the thread that began it, and in those that this one starts. Torch takes a mode away while it handles a
function, and with it from what that function calls back: gradients and hooks in a backward pass, and kernels of
operators that are written in Python. Those run `resumed`.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from fuzz.backends import started_threads
from fuzz.backends.triton_host.fake_cuda import FakeStream
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch
from fuzz.backends.triton_host.pretence import dtypes

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
NAME = re.compile(r"cuda(:\d+)?")
PACKAGE = __name__.partition(".")[0] + "."
DEVICE_OF: Any = torch.Tensor.device.__get__
NUMBER_OF: Any = torch.Tensor.get_device
real_run_backward: Any = torch.autograd.graph._engine_run_backward
modes_of_the_thread: Any = _get_current_function_mode_stack
allocate_strided: Any = torch._C._dynamo.guards._empty_strided_cpu  # type: ignore[attr-defined]
MEMORY_IN_USE = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
real_set_default_device, real_parse_to = torch.set_default_device, torch._C._nn._parse_to


class Depth(threading.local):
    """How many pretences the thread is in."""

    value = 0


depth = Depth()


class PretendedStream(FakeStream):
    """The only stream, of the GPU."""

    device = GPU


class DevicePretence(TorchFunctionMode):
    """Answers for devices, and takes those of a GPU for the CPU, in every function of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == DEVICE_OF or func == NUMBER_OF:
            is_traced = torch.compiler.is_dynamo_compiling()
            caller = "" if is_traced else sys._getframe(1).f_globals.get("__name__", "")
            return pretended_device(func, args[0], caller)
        if func is torch.device:
            return GPU if len(args) == 1 and is_number(*args) else func(*args, **(kwargs or {}))
        if func is torch.Tensor.to and is_number(*args[1:]):
            args = (args[0], CPU, *args[2:])
        args, kwargs = tuple(map(on_cpu, args)), keywords_on_cpu(kwargs or {})
        # Dynamo traces this code, and knows nothing of the names of functions.
        return func(*args, **kwargs) if torch.compiler.is_compiling() else dtypes.call(func, args, kwargs)


def pretended_device(get: Callable[..., Any], tensor: torch.Tensor, caller: str) -> Any:
    """The device of a tensor or its number, by either of torch's functions, for the module of a name."""
    real = get(tensor)
    if caller.startswith(PACKAGE) or real not in (CPU, -1):
        return real
    return GPU if isinstance(real, torch.device) else GPU.index


def on_cpu(value: Any) -> Any:
    """An argument, with the CPU in place of a GPU."""
    if isinstance(value, torch.device):
        return CPU if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and NAME.fullmatch(value) else value


def is_number(device: Any = None, *_: Any) -> bool:
    """Whether the first argument, a device, is given by its number alone, as that of an accelerator."""
    return isinstance(device, int) and not isinstance(device, bool)


def keywords_on_cpu(keywords: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments, with the CPU in place of a GPU, and memory that is not pinned."""
    return {
        name: CPU if name == "device" and is_number(value) else on_cpu(value)
        for name, value in keywords.items()
        if name != "pin_memory"
    }


@contextmanager
def pretended_devices() -> Iterator[None]:
    """Inside, CPU tensors say that they are on a GPU, in this thread."""
    depth.value += 1
    try:
        with DevicePretence():
            yield
    finally:
        depth.value -= 1


def resumed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that torch calls, with the pretence of the thread as outside of torch."""

    @wraps(function)
    def resume(*args: Any, **keywords: Any) -> Any:
        is_on = any(isinstance(mode, DevicePretence) for mode in modes_of_the_thread())
        if not depth.value or is_on:
            return function(*args, **keywords)
        with DevicePretence():
            return function(*args, **keywords)

    return resume


def inherited_pretence() -> AbstractContextManager[None] | None:
    """What a thread runs in that is started inside."""
    return pretended_devices() if depth.value else None


def set_default_device(device: Any) -> None:
    """The CPU, in place of a GPU: torch adds it to the arguments after the mode has seen them."""
    real_set_default_device(CPU if is_number(device) else on_cpu(device))


def parse_to(*args: Any, **keywords: Any) -> Any:
    """What `Module.to` makes of its arguments."""
    if is_number(*args):
        args = (GPU, *args[1:])
    if is_number(keywords.get("device")):
        keywords["device"] = GPU
    return real_parse_to(*args, **keywords)


def current_accelerator(check_available: bool = False) -> torch.device | None:
    """The kind of the only accelerator."""
    return torch.device(GPU.type) if knobs.available else None


started_threads.INHERITED.append(inherited_pretence)
run_backward = resumed(real_run_backward)
PATCHES = [
    *started_threads.PATCHES,
    Patch(torch.autograd, "_engine_run_backward", run_backward),
    Patch(torch.autograd.graph, "_engine_run_backward", run_backward),
    Patch(torch, "set_default_device", set_default_device),
    Patch(torch._C._nn, "_parse_to", parse_to),
    Patch(torch._C._dynamo.guards, "_empty_strided_cuda", allocate_strided),
    Patch(torch.accelerator, "current_accelerator", current_accelerator),
    Patch(torch.accelerator, "is_available", lambda: knobs.available),
    Patch(torch.accelerator, "device_count", lambda: int(knobs.available)),
    Patch(torch.accelerator, "current_device_index", lambda: GPU.index),
    Patch(torch.accelerator, "current_device_idx", lambda: GPU.index),
    Patch(torch.accelerator, "set_device_index", lambda device: None),
    Patch(torch.accelerator, "set_device_idx", lambda device: None),
    Patch(torch.accelerator, "synchronize", lambda device=None: None),
    Patch(torch.accelerator, "current_stream", lambda device=None: PretendedStream()),
    Patch(torch.accelerator, "set_stream", lambda stream: None),
    Patch(torch.accelerator, "empty_cache", lambda: None),
    *(Patch(torch.accelerator, name, lambda device=None: 0) for name in MEMORY_IN_USE),
    Patch(torch.accelerator, "get_memory_info", lambda device=None: (knobs.total_memory, knobs.total_memory)),
]
