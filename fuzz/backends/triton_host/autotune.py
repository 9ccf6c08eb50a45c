"""Replaces the benchmark of `triton.autotune`: the drawn configuration runs, and only that one is compiled.

Triton's own `Autotuner` stays. It prunes the configurations, times each with hooks around it, keeps the best in
`cache`, resets what is to be reset and launches: hooks, heuristics, `restore_value` and `reset_to_zero` keep their
meaning. Replaced are the order of the pruned configurations, the times, and the cache, so that choices by time and
by draw never mix. On a GPU it is the same, so that a test does not depend on what else the GPU does.

What a benchmark does to memory is left out with it: its launches read and write the arguments of the launch that it
precedes. `launch_benchmarks` makes them, once for each configuration.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction

from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch

Draw = tuple[Any, ...]
CACHES: WeakKeyDictionary[Autotuner, dict[Draw, dict[Any, Config]]] = WeakKeyDictionary()
"""The choices of each autotuner by draw."""
BENCHMARKED: WeakKeyDictionary[Autotuner, dict[Draw, dict[Any, Config]]] = WeakKeyDictionary()
"""The same inside a block of `launch_benchmarks`."""
MOST_BENCHMARKED = 8
"""The configurations of an autotuner that are launched as a benchmark: to compile more takes long."""
HAS_CHOSEN: WeakKeyDictionary[Autotuner, bool] = WeakKeyDictionary()
"""Whether a configuration could be launched since the autotuner last pruned them."""
IS_BENCHMARK: ContextVar[bool] = ContextVar("is_benchmark", default=False)
"""Whether what runs in this thread stands for a benchmark."""
real_prune_configs, real_bench = Autotuner.prune_configs, Autotuner._bench


def get_cache(tuner: Autotuner) -> dict[Any, Config]:
    """The choices under the present draw: of a configuration, and of the device, by which an autotuner may prune."""
    device = (knobs.capability, knobs.multiprocessor_count, knobs.max_shared_mem, knobs.gpu_limits)
    draw = (knobs.config, knobs.config_seed, *device)
    caches = BENCHMARKED if knobs.benchmarks else CACHES
    return caches.setdefault(tuner, {}).setdefault(draw, {})


def set_cache(tuner: Autotuner, value: dict[Any, Config]) -> None:
    """An autotuner that is made while the patches are applied gets a cache of its own for afterwards."""
    tuner.__dict__["cache"] = value


def prune_configs(tuner: Autotuner, arguments: dict[str, Any]) -> list[Config]:
    """The configurations that Triton's pruning leaves, rotated so that the drawn one comes first."""
    configs = list(real_prune_configs(tuner, arguments))
    HAS_CHOSEN.pop(tuner, None)
    start = draw_config(tuner.base_fn.__qualname__, len(configs))
    rotated = configs[start:] + configs[:start]
    return rotated[:MOST_BENCHMARKED] if knobs.benchmarks else rotated


def draw_config(kernel: str, count: int) -> int:
    """The index of one of `count` configurations: `knobs.config`, or with a `config_seed` one drawn for each kernel."""
    if knobs.config_seed is None:
        return knobs.config % count
    return random.Random(f"{knobs.config_seed} {kernel}").randrange(count)


def bench(tuner: Autotuner, *arguments: Any, config: Config, **keywords: Any) -> list[float]:
    """Zeros for the first configuration that could be launched, without launching it; the others are not compiled.

    Inside a block of `launch_benchmarks` all of them are launched.
    """
    has_chosen = HAS_CHOSEN.get(tuner, False)
    if has_chosen and not knobs.benchmarks:
        return [1.0] * 3
    options = {} if knobs.benchmarks else {"warmup": True}
    times: list[float] = real_bench(tuner, *arguments, config=config, **(keywords | options))
    if has_chosen:
        return [1.0] * 3
    HAS_CHOSEN[tuner] = times == [0.0] * 3
    return times


@contextmanager
def launch_benchmarks() -> Iterator[None]:
    """Inside the block, autotuners know no key, and for each one launch their configurations before the chosen one.

    As Triton does, with the arguments of the launch itself: what one configuration writes is what the next one finds,
    unless `reset_to_zero`, `restore_value` or a hook takes care of it. Triton launches each many times.
    """
    BENCHMARKED.clear()
    with knobs.set(benchmarks=True):
        yield


def count_configs() -> int:
    """The most configurations of an autotuner that has chosen one of several."""
    return max((len(tuner.configs) for tuner in CACHES), default=0)


def load_once(call: Callable[[], Any], **_: Any) -> list[float]:
    """Replaces a benchmark. Fails, as a launch would, where a kernel asks for more than the device has."""
    token = IS_BENCHMARK.set(True)
    try:
        with LOADS:
            call()
    finally:
        IS_BENCHMARK.reset(token)
    return [0.0] * 3


class Loads:
    """A block in which kernels that benchmarks run are loaded. Several threads may be inside at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._run = JITFunction.run

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._run = run = JITFunction.run

                def run_and_load(function: JITFunction[Any], *arguments: Any, **keywords: Any) -> Any:
                    kernel = run(function, *arguments, **keywords)
                    if kernel is not None and IS_BENCHMARK.get():
                        kernel._init_handles()
                    return kernel

                JITFunction.run = run_and_load

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                JITFunction.run = self._run


LOADS = Loads()


def check_disk_cache(tuner: Autotuner, key: Any, configs: Any, bench: Callable[[], Any]) -> bool:
    """Replaces the look at times on disk: these are no times."""
    bench()
    return False


PATCHES = [
    Patch(Autotuner, "cache", property(get_cache, set_cache)),
    Patch(Autotuner, "prune_configs", prune_configs),
    Patch(Autotuner, "_bench", bench),
    Patch(Autotuner, "do_bench", property(lambda tuner: load_once)),
]
if hasattr(Autotuner, "check_disk_cache"):
    PATCHES.append(Patch(Autotuner, "check_disk_cache", check_disk_cache))
