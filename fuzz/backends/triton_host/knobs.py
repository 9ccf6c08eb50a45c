"""Holds the knobs of the cpu backend: the device that it reports, autotuners, the order of sums, checks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from fuzz.backends.cpu.instruments import PLAIN, Instruments, ordered

COMPILERS = ("auto", "quick", "optimising")
IDENTITIES = ("cpu", "cuda")
BOUNDS = ("storage", "view")


@dataclass
class Knobs:
    """Set attributes directly, or for a block by `with knobs.set(multiprocessor_count=1):`.

    The device: `available` is `torch.cuda.is_available()`; `capability`, `device_name`, `multiprocessor_count`,
    `max_shared_mem` and `total_memory` (bytes) are its properties. Launchers may keep an answer: ask before they do.

    With the `identity` `cuda`, when the backend is next made active, tensors and Triton's target say that they are of a
    GPU, and `device="cuda"` is the CPU. The variable FUZZ_CPU_IDENTITY gives its first value.

    Autotuners: `config` is the index of the configuration that they take, among those that pruning leaves and modulo
    their number; the next ones where it cannot be launched. With a `config_seed` each kernel draws its index instead.
    `benchmarks`, set by `autotune.launch_benchmarks`, says whether benchmarks launch kernels, as on a GPU.

    Sums: `reduction_order`, if not 0, is the seed of another order in which reductions and dots combine their elements:
    a kernel that depends on the order changes its bits.

    Bounds: `bounds` is `storage` (an access is right from an argument's first element to the end of its memory) or
    `view` (to its last element).

    Checks: `instruments` are those of instruments.py that kernels are compiled with.

    Limits: with `gpu_limits` a kernel is compiled for a GPU of that capability as well when it is launched, and what
    that refuses is refused here: dots that are too small, a number of warps that is no power of two, too much shared
    memory.

    Code: `compiler` is `auto` (quick code at first, optimised code for what runs long), `quick` or `optimising`. The
    variable FUZZ_CPU_COMPILER gives its first value.
    """

    available: bool = True
    capability: tuple[int, int] = (9, 0)
    device_name: str = "cpu"
    multiprocessor_count: int = 4
    max_shared_mem: int = 232448
    total_memory: int = 80 << 30
    identity: str = field(default_factory=lambda: os.environ.get("FUZZ_CPU_IDENTITY", "cpu"))
    config: int = 0
    config_seed: int | None = None
    benchmarks: bool = False
    reduction_order: int = 0
    instruments: Instruments = PLAIN
    bounds: str = "storage"
    gpu_limits: bool = False
    compiler: str = field(default_factory=lambda: os.environ.get("FUZZ_CPU_COMPILER", "auto"))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in {known.name for known in fields(self)}:
            raise AttributeError(f"no such knob: {name}")
        if name == "reduction_order" and not 0 <= value < 1 << 31:
            raise ValueError(f"reduction_order is a seed below 2^31, or 0, not {value!r}")
        if name == "compiler" and value not in COMPILERS:
            raise ValueError(f"compiler is one of {', '.join(COMPILERS)}, not {value!r}")
        if name == "identity" and value not in IDENTITIES:
            raise ValueError(f"identity is one of {', '.join(IDENTITIES)}, not {value!r}")
        if name == "bounds" and value not in BOUNDS:
            raise ValueError(f"bounds is one of {', '.join(BOUNDS)}, not {value!r}")
        if name == "instruments":
            value = ordered(value)
        super().__setattr__(name, value)

    @contextmanager
    def set(self, **values: Any) -> Iterator[None]:
        """Other values for a block."""
        before = {name: getattr(self, name, None) for name in values}
        try:
            for name, value in values.items():
                setattr(self, name, value)
            yield
        finally:
            for name, value in before.items():
                if name in vars(self):
                    setattr(self, name, value)


knobs = Knobs()
