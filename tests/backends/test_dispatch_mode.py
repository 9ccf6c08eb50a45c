"""Modes that see torch's operations are plain functions, which no guard of torch's compiler wraps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fuzz.backends.dispatch_mode import DispatchMode
from fuzz.backends.launcher_allocations import OperationObserver
from fuzz.judge.ops.samples import CallRecorder
from fuzz.judge.processes.scale_down import ElementCounter
from fuzz.judge.processes.solution_worker import OperationLog
from fuzz.reference.dispatch import RuleMode

MODES = (OperationObserver, CallRecorder, ElementCounter, OperationLog, RuleMode)


def is_guarded(mode: type[TorchDispatchMode]) -> bool:
    return hasattr(mode.__torch_dispatch__, "__wrapped__")


def test_no_mode_is_guarded() -> None:
    class Guarded(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    # What makes the guard is torch's own, and may become another thing.
    assert is_guarded(Guarded)
    assert all(issubclass(mode, DispatchMode) and not is_guarded(mode) for mode in MODES)


def test_it_sees_operations() -> None:
    with ElementCounter() as counter:
        torch.ones(3) + 1
    assert counter.count == 6
