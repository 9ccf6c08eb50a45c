"""Targets of fla-core ask no release for what it does not know."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
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
    states.grouped("ops:f", k, k, raw=True)
    with pytest.raises(NotImplementedError, match="documents no HV in ops:f"):
        states.grouped("ops:f", k, v)


def test_rates_of_heads_in_groups_are_asked_of_releases_that_document_them(
    states: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    k, v = torch.ones(1, 1, 2, 1), torch.ones(1, 1, 4, 1)
    monkeypatch.setattr(swallowing, "__doc__", "Values have HV heads.")
    states.grouped("ops:f", k, v)
    with pytest.raises(NotImplementedError, match="documents no A_log in ops:f"):
        states.grouped("ops:f", k, v, raw=True)


def heads_first(x: Any, head_first: bool = True) -> Any:
    """Documents the argument offsets."""
    return x if head_first else x.transpose(1, 2)


def test_a_release_that_takes_heads_first_is_told_that_time_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(TARGETS)
    module = ModuleType("fla.ops")
    vars(module).update(f=heads_first, g=swallowing)
    for name, of_it in {"fla": ModuleType("fla"), "fla.ops": module}.items():
        monkeypatch.setitem(sys.modules, name, of_it)
    monkeypatch.delitem(sys.modules, "_fla", raising=False)
    import _fla

    assert _fla.found("ops:f")(torch.ones(1, 2, 3)).shape == (1, 3, 2)
    _fla.takes("ops:f", "offsets")
    with pytest.raises(NotImplementedError, match="no argument cu_seqlens"):
        _fla.takes("ops:f", "cu_seqlens")
    assert _fla.found("ops:g") is swallowing
    del sys.modules["_fla"]


def test_a_place_that_a_kernel_does_not_guard_is_left_to_its_callers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "guarded.py").write_text("def f(place):\n    return place >= 0\n")
    (tmp_path / "unguarded.py").write_text("def f(place):\n    return place < 9\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(TARGETS)
    monkeypatch.setitem(sys.modules, "fla", ModuleType("fla"))
    monkeypatch.delitem(sys.modules, "_fla", raising=False)
    import _fla

    functions = {name: importlib.import_module(name).f for name in ("guarded", "unguarded")}
    monkeypatch.setattr(_fla, "found", functions.get)
    _fla.checks("guarded", ">= 0")
    with pytest.raises(NotImplementedError, match="checks no >= 0 in unguarded"):
        _fla.checks("unguarded", ">= 0")
    for name in ("_fla", *functions):
        del sys.modules[name]


def test_the_newest_release_is_asked_for_places_before_a_table() -> None:
    try:
        file = distribution("fla-core").locate_file("fla/modules/rotary/ops.py")
    except PackageNotFoundError:
        pytest.skip("fla-core is not installed")
    assert ">= 0" in Path(str(file)).read_text("utf-8")
