"""Replaced functions, classes and methods of PyTorch and the clocks are noticed, what libraries add is not."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.testing import _comparison

from fuzz.judge.processes.attributes import AttributeSnapshot, CodeSnapshot


def replacement(*_: object, **__: object) -> None:
    """What a solution puts in the place of something."""


class Replacement:
    """A class that a solution puts in the place of another one."""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("torch.cuda.synchronize", replacement),
        ("torch.cuda.Event", Replacement),
        ("torch.cuda.Event.elapsed_time", replacement),
        ("torch.nn.Linear.forward", replacement),
        ("torch.Tensor.is_leaf", property(replacement)),
        ("torch.Tensor.allclose", replacement),
        ("torch.allclose", replacement),
        ("torch.testing.assert_close", replacement),
        ("torch.testing._comparison.not_close_error_metas", replacement),
        ("triton.testing.do_bench", replacement),
        ("time.perf_counter_ns", replacement),
    ],
)
def test_what_is_replaced_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    before = AttributeSnapshot()
    # By its name: a backend that is active has put its own classes in the places of torch's.
    monkeypatch.setattr(name, value, raising=False)
    assert name in list(before.find_replaced())
    monkeypatch.undo()
    assert list(before.find_replaced()) == []


def test_a_function_that_executes_other_code_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = CodeSnapshot()
    functions = {
        "torch.cuda.synchronize": torch.cuda.synchronize,
        "torch.nn.Linear.forward": torch.nn.Linear.forward,
        "torch.testing._comparison.not_close_error_metas": _comparison.not_close_error_metas,
    }
    for name, function in functions.items():
        monkeypatch.setattr(function, "__code__", replacement.__code__)
        assert list(before.find_replaced()) == [name]
        monkeypatch.undo()
    assert list(before.find_replaced()) == []


def test_new_attributes_and_values_that_nobody_calls_are_no_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    before = AttributeSnapshot()
    monkeypatch.setattr(torch, "a_module_that_is_imported", ModuleType("late"), raising=False)
    monkeypatch.setattr(torch.Tensor, "a_new_method", replacement, raising=False)
    monkeypatch.setattr(torch.cuda, "_initialized", not torch.cuda._initialized)
    monkeypatch.setitem(sys.modules, "late", ModuleType("late"))
    assert list(before.find_replaced()) == []


def test_what_the_first_compiled_call_replaces_is_no_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.mutation_guard import install_generation_tagging_init

    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(torch.nn.Module, name, getattr(torch.nn.Module, name))
    monkeypatch.setattr(torch.nn.Module, "___needs_generation_tag_patch", True, raising=False)
    init = torch.nn.Module.__init__
    before = AttributeSnapshot()
    install_generation_tagging_init()
    assert torch.nn.Module.__init__ is not init
    assert not list(before.find_replaced())
