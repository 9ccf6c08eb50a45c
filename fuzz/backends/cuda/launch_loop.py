"""Launches a kernel many times on a GPU by a loop in C: Triton's own launcher costs several times as much a launch.

Each launch is the one that Triton's launcher would make: the same function, grid, block, shared memory and arguments.
Kernels that it launches with anything more (clusters, cooperative grids, scratch memory, descriptors) are left to it.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

INTEGER_BYTES = {"i1": 1, "u1": 1, **{f"{sign}{bits}": bits // 8 for sign in "iu" for bits in (8, 16, 32, 64)}}
"""Bytes of integers, by Triton's names."""
FLOATS = {"fp32": ctypes.c_float, "f32": ctypes.c_float, "fp64": ctypes.c_double}
LIBRARY = "libcuda.so.1"
SCRATCH_SLOTS = 2
"""Arguments at the end that every kernel has or may have: addresses of scratch memory, here of none."""
SIDE_STREAMS = 4
"""Streams that the launches are spread over: a GPU has room for many small kernels at once."""
FEWEST_FOR_STREAMS = 16
"""The number of launches from which on side streams are worth their events."""
NON_BLOCKING, NO_TIMING = 1, 2
"""The driver's flags of streams and events."""


@dataclass(frozen=True)
class LaunchConfig:
    """What all launches share: CUDA's function and stream, grid, threads of a block, shared memory in bytes."""

    function: int
    stream: int
    grid: tuple[int, int, int]
    threads: int
    shared: int


@dataclass(frozen=True)
class LaunchLoop:
    """A launch that can be repeated. `slots` hold the arguments, 8 bytes each; `slot_of` is by position of an argument
    the slot that holds it."""

    config: LaunchConfig
    slots: np.ndarray
    slot_of: Mapping[int, int]

    def repeat(self, count: int, columns: Mapping[int, np.ndarray]) -> None:
        """Launches `count` times; `columns` are by position of an argument its addresses, int64 (count).

        Raises RuntimeError as Triton's own launcher does.
        """
        config = self.config
        # Triton's launcher multiplies ints of C, and launches nothing where the product is 0 or below.
        if ctypes.c_int(math.prod(config.grid)).value <= 0:
            return
        shape = np.array([*config.grid, config.threads, 1, 1, config.shared], dtype=np.int64).astype(np.uint32)
        slots, moving = self.slots.copy(), np.array([self.slot_of[position] for position in columns], dtype=np.int64)
        rows = np.stack([*columns.values()]) if columns else np.zeros((0, count), dtype=np.int64)
        arguments = slots.ctypes.data, len(slots), moving.ctypes.data, len(moving), rows.ctypes.data, count
        with side_streams(config.stream, count) as streams:
            turns = streams.ctypes.data, len(streams)
            launch = driver_function("cuLaunchKernel")
            check(compile_loop()(launch, config.function, shape.ctypes.data, *turns, *arguments))


def make_loop(kernel: Any, head: Sequence[Any], arguments: Sequence[Any]) -> LaunchLoop | None:
    """The loop of a launch of one of Triton's compiled kernels; None where Triton's launcher does more than to launch.

    `head` is what that launcher gets before the arguments: grid, stream, function, two kinds of metadata and two hooks.
    """
    *grid, stream, function, _, _, enter, leave = head
    types = list(kernel.src.signature.values())
    if has_hook(enter) or has_hook(leave) or len(types) != len(arguments) or not is_plain_launch(kernel.metadata):
        return None
    words: list[int] = []
    slot_of: dict[int, int] = {}
    for position, (kind, argument) in enumerate(zip(types, arguments, strict=True)):
        if kind == "constexpr":
            continue
        word = pack_argument(kind, argument) if isinstance(kind, str) else None
        if word is None:
            return None
        slot_of[position] = len(words)
        words.append(word)
    threads = kernel.metadata.target.warp_size * kernel.metadata.num_warps
    config = LaunchConfig(function, stream, (grid[0], grid[1], grid[2]), threads, kernel.metadata.shared)
    return LaunchLoop(config, np.array([*words, *[0] * SCRATCH_SLOTS], dtype=np.uint64).view(np.int64), slot_of)


def has_hook(hook: Any) -> bool:
    """Whether a hook calls anything: it is a function, or one of Triton's chains that is not empty."""
    return hook is not None and bool(getattr(hook, "calls", True))


def is_plain_launch(metadata: Any) -> bool:
    """Whether a kernel is launched by its grid, its block and its shared memory alone."""
    extras = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")
    clusters = (getattr(metadata, "num_ctas", 1), *getattr(metadata, "cluster_dims", ()))
    return not any(getattr(metadata, name, 0) for name in extras) and set(clusters) == {1}


def pack_argument(kind: str, argument: Any) -> int | None:
    """The 8 bytes that hold an argument, as an unsigned number; None for types that are not packed here."""
    if kind.startswith("*"):
        address = 0 if argument is None else argument if isinstance(argument, int) else argument.data_ptr()
        return int(address)
    if kind in INTEGER_BYTES:
        return int(argument) & (1 << 8 * INTEGER_BYTES[kind]) - 1
    if kind in FLOATS:
        return int.from_bytes(bytes(FLOATS[kind](argument)), "little")
    return None


@contextmanager
def side_streams(stream: int, count: int) -> Iterator[np.ndarray]:
    """Streams, uint64, for so many launches that may run at the same time: work that `stream` holds already comes
    before all of them, and work that it gets later comes after."""
    if count < FEWEST_FOR_STREAMS:
        yield np.array([stream], dtype=np.uint64)
        return
    streams, events, start = create_streams()
    check(driver().cuEventRecord(start, ctypes.c_void_p(stream)))
    for side in streams:
        check(driver().cuStreamWaitEvent(side, start, 0))
    errors: list[int] = []
    try:
        yield np.array([side.value for side in streams], dtype=np.uint64)
    finally:
        # After an error too: launches before it may still run in memory that is about to be given to others.
        for side, event in zip(streams, events, strict=True):
            errors.append(driver().cuEventRecord(event, side))
            errors.append(driver().cuStreamWaitEvent(ctypes.c_void_p(stream), event, 0))
    check(next(filter(None, errors), 0))


@cache
def create_streams() -> tuple[list[ctypes.c_void_p], list[ctypes.c_void_p], ctypes.c_void_p]:
    """Side streams of the current context, an event of each, and one more event; they live as long as the context."""
    streams = [ctypes.c_void_p() for _ in range(SIDE_STREAMS)]
    events = [ctypes.c_void_p() for _ in range(SIDE_STREAMS + 1)]
    for stream in streams:
        check(driver().cuStreamCreate(ctypes.byref(stream), NON_BLOCKING))
    for event in events:
        check(driver().cuEventCreate(ctypes.byref(event), NO_TIMING))
    return streams, events[1:], events[0]


def check(error: int) -> None:
    """Raises RuntimeError as Triton's own launcher does where the driver answers with an error."""
    if error:
        raise RuntimeError(f"Triton Error [CUDA]: {error_text(error)}")


@cache
def driver() -> Any:
    """CUDA's driver, which Triton has loaded before."""
    return ctypes.CDLL(LIBRARY)


@cache
def driver_function(name: str) -> int:
    """The address of one of the driver's functions."""
    return ctypes.cast(getattr(driver(), name), ctypes.c_void_p).value or 0


def error_text(error: int) -> str:
    """The driver's description of an error."""
    text = ctypes.c_char_p()
    driver().cuGetErrorString(error, ctypes.byref(text))
    return (text.value or b"unknown error").decode()


@cache
def compile_loop() -> Any:
    """The loop in C. It is compiled once and cached where Triton caches its kernels."""
    from triton.runtime.cache import get_cache_manager

    from fuzz.backends.cpu.compilers.compiler import build, version

    source = Path(__file__).with_name("launch_loop.c").read_text(encoding="utf-8")
    cache = get_cache_manager(hashlib.sha256(f"{source}{version()}".encode()).hexdigest())
    path = cache.get_file("loop.so") or cache.put(build(source, "loop"), "loop.so", binary=True)
    function: Any = ctypes.CDLL(path).repeat
    number, address = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [address, address, address, address, number, address, number, address, number, address, number]
    function.restype = ctypes.c_int
    return function
