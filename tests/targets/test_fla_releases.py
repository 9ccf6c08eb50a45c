"""Targets of fla-core ask no release for what it does not know."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

TARGETS = Path(__file__).parents[2] / "targets" / "fla"


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module of the targets that calls operations with states, whose release has the function `swallowing`."""
    monkeypatch.syspath_prepend(TARGETS)
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.setitem(sys.modules, "fla", ModuleType("fla"))
    for name in ("_fla", "_states"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import _fla
    import _states

    for module in (_fla, _states):
        monkeypatch.setattr(module, "found", lambda place: swallowing)
    yield _states
    for name in ("_fla", "_states"):
        del sys.modules[name]


def swallowing(x: Any, initial_state: Any, output_final_state: bool, cu_seqlens: Any, **kwargs: Any) -> Any:
    """Documents the argument lower_bound."""
    return x, x


CALL: dict[str, Any] = dict(ragged=False, ends=None, initial=None, keep=False)


def test_an_argument_that_a_release_swallows_is_not_passed(states: ModuleType) -> None:
    x = torch.ones(1, 1, 1, 1)
    with pytest.raises(NotImplementedError, match="no argument use_gate_in_kernel in ops:f"):
        states.carried("ops:f", x, use_gate_in_kernel=True, **CALL)
    with pytest.raises(NotImplementedError, match="no argument state_v_first in ops:f"):
        states.carried("ops:f", x, v_first=True, **CALL)
    given: dict[str, Any] = dict(use_gate_in_kernel=False, A_log=None, chunk_size=32, lower_bound=-5.0)
    assert states.carried("ops:f", x, **given, **CALL)["y"] is x


def test_heads_in_groups_are_asked_of_releases_that_document_them(states: ModuleType) -> None:
    k, v = torch.ones(1, 1, 2, 1), torch.ones(1, 1, 4, 1)
    states.grouped("ops:f", k, k)
    with pytest.raises(NotImplementedError, match="documents no HV in ops:f"):
        states.grouped("ops:f", k, v)
