"""`triton.autotune` without a benchmark: the drawn configuration runs, and nothing but that one is compiled.

Triton's own `Autotuner` stays. It prunes the configurations, takes the time of each with hooks around it, keeps the
best in `cache`, resets what is to be reset and launches: hooks, heuristics, `restore_value` and `reset_to_zero` keep
their meaning. Replaced are the order of the pruned configurations, the times, and the place of the cache: what was
chosen by times and what was drawn never mix. It is the same where kernels run on a GPU, so that what is tested does not
depend on what else the GPU does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction

from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch

Draw = tuple[int, int | None]
caches: WeakKeyDictionary[Autotuner, dict[Draw, dict[Any, Config]]] = WeakKeyDictionary()
tuned: WeakKeyDictionary[Autotuner, bool] = WeakKeyDictionary()
really_prune, really_bench = Autotuner.prune_configs, Autotuner._bench


def cache(tuner: Autotuner) -> dict[Any, Config]:
    """What was chosen under the present draw."""
    draw = (knobs.config, knobs.config_seed)
    return caches.setdefault(tuner, {}).setdefault(draw, {})


def set_cache(tuner: Autotuner, value: dict[Any, Config]) -> None:
    """A tuner made while the backend is active has a cache of its own for afterwards."""
    tuner.__dict__["cache"] = value


def prune(tuner: Autotuner, arguments: dict[str, Any]) -> list[Config]:
    """What Triton's pruning leaves, turned so that the drawn configuration comes first."""
    kept = list(really_prune(tuner, arguments))
    tuned.pop(tuner, None)
    start = drawn(tuner.base_fn.__qualname__, len(kept))
    return kept[start:] + kept[:start]


def drawn(kernel: str, count: int) -> int:
    """Which of `count` configurations: `knobs.config`, or a draw of its own for each kernel from `config_seed`."""
    if knobs.config_seed is None:
        return knobs.config % count
    return random.Random(f"{knobs.config_seed} {kernel}").randrange(count)


def bench(tuner: Autotuner, *arguments: Any, config: Config, **keywords: Any) -> list[float]:
    """Zero for the first configuration that can be launched, which is not done; the others are not even compiled."""
    if tuned.get(tuner):
        return [1.0] * 3
    times: list[float] = really_bench(tuner, *arguments, config=config, **(keywords | {"warmup": True}))
    tuned[tuner] = times == [0.0] * 3
    return times


def once(call: Callable[[], Any], **_: Any) -> list[float]:
    """In the place of a benchmark. Fails, as a launch would, where a kernel asks for more than the device has."""
    run = JITFunction.run

    def loaded(function: JITFunction[Any], *arguments: Any, **keywords: Any) -> Any:
        kernel = run(function, *arguments, **keywords)
        kernel._init_handles()
        return kernel

    JITFunction.run = loaded
    try:
        call()
    finally:
        JITFunction.run = run
    return [0.0] * 3


def not_kept(tuner: Autotuner, key: Any, configs: Any, bench: Callable[[], Any]) -> bool:
    """In the place of a look at times that are kept on disk: these are none."""
    bench()
    return False


PATCHES = [
    Patch(Autotuner, "cache", property(cache, set_cache)),
    Patch(Autotuner, "prune_configs", prune),
    Patch(Autotuner, "_bench", bench),
    Patch(Autotuner, "do_bench", property(lambda tuner: once)),
]
if hasattr(Autotuner, "check_disk_cache"):
    PATCHES.append(Patch(Autotuner, "check_disk_cache", not_kept))
