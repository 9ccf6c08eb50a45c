"""Draws launch options, configurations of autotuners and properties of the device, from a stream of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from fuzz.backends.reached_functions import all_names, find_functions, referenced_values
from fuzz.model.case import Case, LaunchOptions
from fuzz.model.edit import with_launch

ONE_PLAN_IN = 4
"""One plan in so many has launch options: each configuration is compiled on its own."""
MULTIPROCESSORS = (None, None, 1, 16, 108, 132)
"""None, the least, and those of a small GPU, an A100 and an H100 (SXM)."""
SHARED_MEMORY = (None, None, 49152, 101376, 166912)
"""None, and bytes per block: the limit without opting in, and with it on GPUs of compute capability 8.6 and 8.0."""
DEVICE_QUERIES = {"get_device_properties", "multi_processor_count", "multiprocessor_count", "max_shared_mem"}
"""Names by which a launcher asks for the properties of its device."""


@dataclass(frozen=True)
class LaunchSpace:
    """What can be drawn for a launcher: so many configurations, and whether it asks for properties of its device."""

    configs: int = 0
    asks_device: bool = False

    def __bool__(self) -> bool:
        return self.configs > 1 or self.asks_device

    def draw(self, case: Case, key: str) -> Case:
        """Now and then the case with launch options, which depend on `key` alone."""
        random = Random(f"launch {key}")
        if not self or random.randrange(ONE_PLAN_IN):
            return case
        config = random.randrange(1, self.configs) if self.configs > 1 else None
        if not self.asks_device:
            return with_launch(case, LaunchOptions(config))
        return with_launch(case, LaunchOptions(config, random.choice(MULTIPROCESSORS), random.choice(SHARED_MEMORY)))


NO_LAUNCH_OPTIONS = LaunchSpace()


def launch_space(launcher: Any) -> LaunchSpace:
    """The space of a launcher, from the code and the kernels that it reaches; nothing is run."""
    reached = find_functions(launcher)
    configs = [len(value.configs) for function in reached for value in _wrappers(function)]
    asks = any(DEVICE_QUERIES & set(all_names(function.__code__)) for function in reached)
    return LaunchSpace(max(configs, default=0), asks)


def _wrappers(function: Any) -> Iterator[Any]:
    """The autotuners among the values that a function refers to, also under other wrappers of a kernel."""
    for value in referenced_values(function):
        for _ in range(4):
            if isinstance(getattr(value, "configs", None), list):
                yield value
            if not hasattr(value, "fn"):
                break
            value = value.fn
