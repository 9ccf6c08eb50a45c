"""Replaced functions, classes and methods of PyTorch and the clocks are noticed, what libraries add is not."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
import triton.testing

from fuzz.judge.processes.attributes import AttributeSnapshot


def replacement(*_: object, **__: object) -> None:
    """What a solution puts in the place of something."""


class Replacement:
    """A class that a solution puts in the place of another one."""


@pytest.mark.parametrize(
    ("owner", "name", "value", "label"),
    [
        (torch.cuda, "synchronize", replacement, "torch.cuda.synchronize"),
        (torch.cuda, "Event", Replacement, "torch.cuda.Event"),
        (torch.cuda.Event, "elapsed_time", replacement, "torch.cuda.Event.elapsed_time"),
        (torch.nn.Linear, "forward", replacement, "torch.nn.Linear.forward"),
        (torch.Tensor, "is_leaf", property(replacement), "torch.Tensor.is_leaf"),
        (torch.Tensor, "allclose", replacement, "torch.Tensor.allclose"),
        (torch, "allclose", replacement, "torch.allclose"),
        (torch.testing, "assert_close", replacement, "torch.testing.assert_close"),
        (triton.testing, "do_bench", replacement, "triton.testing.do_bench"),
        (time, "perf_counter_ns", replacement, "time.perf_counter_ns"),
    ],
)
def test_what_is_replaced_is_named(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, value: Callable[..., Any], label: str
) -> None:
    before = AttributeSnapshot()
    monkeypatch.setattr(owner, name, value, raising=False)
    assert label in list(before.find_replaced())
    monkeypatch.undo()
    assert list(before.find_replaced()) == []


def test_new_attributes_and_values_that_nobody_calls_are_no_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    before = AttributeSnapshot()
    monkeypatch.setattr(torch, "a_module_that_is_imported", ModuleType("late"), raising=False)
    monkeypatch.setattr(torch.Tensor, "a_new_method", replacement, raising=False)
    monkeypatch.setattr(torch.cuda, "_initialized", not torch.cuda._initialized)
    monkeypatch.setitem(sys.modules, "late", ModuleType("late"))
    assert list(before.find_replaced()) == []
