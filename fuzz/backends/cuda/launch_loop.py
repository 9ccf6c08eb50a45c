"""Loop: launches alike on a GPU, in C by CUDA's driver: Triton's own launcher costs several times as much for each.

What is launched is what Triton's launcher would launch: the same function, grid, block, shared memory and arguments.
Kernels that it launches with anything more (clusters, cooperative grids, scratch memory, descriptors) are left to it.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

WHOLE = {"i1": 1, "u1": 1, **{f"{sign}{bits}": bits // 8 for sign in "iu" for bits in (8, 16, 32, 64)}}
"""Bytes of integers, by Triton's names."""
FLOATS = {"fp32": ctypes.c_float, "f32": ctypes.c_float, "fp64": ctypes.c_double}
LIBRARY = "libcuda.so.1"
SCRATCH = 2
"""Arguments at the end that every kernel has or may have: addresses of scratch memory, here of none."""
SIDES = 4
"""Streams that launches alike are spread over: a GPU has room for many small kernels at once."""
FEW = 16
"""Launches from which on streams of their own are worth their events."""
NON_BLOCKING, NO_TIMING = 1, 2
"""The driver's flags of streams and events."""


@dataclass(frozen=True)
class Shape:
    """What is alike in all launches: CUDA's function and stream, grid, threads of a block, shared memory in bytes."""

    function: int
    stream: int
    grid: tuple[int, int, int]
    threads: int
    shared: int


@dataclass(frozen=True)
class Loop:
    """A launch that can be repeated. `slots` hold the arguments, 8 bytes each; `places` are by position of an argument
    the slot that holds it."""

    shape: Shape
    slots: np.ndarray
    places: Mapping[int, int]

    def repeat(self, count: int, columns: Mapping[int, np.ndarray]) -> None:
        """So many launches; by position of an argument its addresses, int64 (count). RuntimeError as Triton's own."""
        if not all(self.shape.grid):
            return
        one = self.shape
        shape = np.array([*one.grid, one.threads, 1, 1, one.shared], dtype=np.uint32)
        slots, moving = self.slots.copy(), np.array([self.places[position] for position in columns], dtype=np.int64)
        moved = np.stack([*columns.values()]) if columns else np.zeros((0, count), dtype=np.int64)
        given = slots.ctypes.data, len(slots), moving.ctypes.data, len(moving), moved.ctypes.data, count
        with beside(one.stream, count) as streams:
            turns = streams.ctypes.data, len(streams)
            check(compiled()(entry("cuLaunchKernel"), one.function, shape.ctypes.data, *turns, *given))


def loop(kernel: Any, head: Sequence[Any], arguments: Sequence[Any]) -> Loop | None:
    """The loop of a launch of one of Triton's compiled kernels; None where Triton's launcher does more than to launch.

    `head` is what that launcher gets before the arguments: grid, stream, function, two kinds of metadata and two hooks.
    """
    *grid, stream, function, _, _, enter, leave = head
    types = list(kernel.src.signature.values())
    if hooked(enter) or hooked(leave) or len(types) != len(arguments) or not plain(kernel.metadata):
        return None
    words: list[int] = []
    places: dict[int, int] = {}
    for position, (kind, argument) in enumerate(zip(types, arguments, strict=True)):
        if kind == "constexpr":
            continue
        word = slot(kind, argument) if isinstance(kind, str) else None
        if word is None:
            return None
        places[position] = len(words)
        words.append(word)
    threads = kernel.metadata.target.warp_size * kernel.metadata.num_warps
    shape = Shape(function, stream, (grid[0], grid[1], grid[2]), threads, kernel.metadata.shared)
    return Loop(shape, np.array([*words, *[0] * SCRATCH], dtype=np.uint64).view(np.int64), places)


def hooked(hook: Any) -> bool:
    """Whether anything is to be called: a function, or one of Triton's chains that is not empty."""
    return hook is not None and bool(getattr(hook, "calls", True))


def plain(metadata: Any) -> bool:
    """Whether a kernel is launched by its grid, its block and its shared memory alone."""
    more = ("launch_cooperative_grid", "launch_pdl", "global_scratch_size", "profile_scratch_size")
    clusters = (getattr(metadata, "num_ctas", 1), *getattr(metadata, "cluster_dims", ()))
    return not any(getattr(metadata, name, 0) for name in more) and set(clusters) == {1}


def slot(kind: str, argument: Any) -> int | None:
    """The 8 bytes that hold an argument, as an unsigned number; None for types that are not packed here."""
    if kind.startswith("*"):
        address = 0 if argument is None else argument if isinstance(argument, int) else argument.data_ptr()
        return int(address)
    if kind in WHOLE:
        return int(argument) & (1 << 8 * WHOLE[kind]) - 1
    if kind in FLOATS:
        return int.from_bytes(bytes(FLOATS[kind](argument)), "little")
    return None


@contextmanager
def beside(stream: int, count: int) -> Iterator[np.ndarray]:
    """The streams of so many launches that may run at the same time: what the stream holds already comes before all of
    them, and what it gets later comes after."""
    if count < FEW:
        yield np.array([stream], dtype=np.uint64)
        return
    streams, events, start = sides()
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
def sides() -> tuple[list[ctypes.c_void_p], list[ctypes.c_void_p], ctypes.c_void_p]:
    """Streams that kernels run in side by side, an event of each, and one more; of the current context, to its end."""
    streams = [ctypes.c_void_p() for _ in range(SIDES)]
    events = [ctypes.c_void_p() for _ in range(SIDES + 1)]
    for one in streams:
        check(driver().cuStreamCreate(ctypes.byref(one), NON_BLOCKING))
    for one in events:
        check(driver().cuEventCreate(ctypes.byref(one), NO_TIMING))
    return streams, events[1:], events[0]


def check(error: int) -> None:
    """Raises RuntimeError as Triton's own launcher does where the driver answers with an error."""
    if error:
        raise RuntimeError(f"Triton Error [CUDA]: {words(error)}")


@cache
def driver() -> Any:
    """CUDA's driver, which Triton has loaded before."""
    return ctypes.CDLL(LIBRARY)


@cache
def entry(name: str) -> int:
    """The address of one of the driver's functions."""
    return ctypes.cast(getattr(driver(), name), ctypes.c_void_p).value or 0


def words(error: int) -> str:
    """What the driver says of an error."""
    text = ctypes.c_char_p()
    driver().cuGetErrorString(error, ctypes.byref(text))
    return (text.value or b"unknown error").decode()


@cache
def compiled() -> Any:
    """The loop in C. It is compiled once and kept where Triton keeps its kernels."""
    from triton.runtime.cache import get_cache_manager

    from fuzz.backends.cpu.runtime.compiler import build, version

    source = Path(__file__).with_name("launch_loop.c").read_text(encoding="utf-8")
    kept = get_cache_manager(hashlib.sha256(f"{source}{version()}".encode()).hexdigest())
    path = kept.get_file("loop.so") or kept.put(build(source, "loop"), "loop.so", binary=True)
    function: Any = ctypes.CDLL(path).repeat
    number, address = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [address, address, address, address, number, address, number, address, number, address, number]
    function.restype = ctypes.c_int
    return function
