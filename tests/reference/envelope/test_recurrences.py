"""A linear recurrence may be scanned by the associative law, whose products of gates underflow where no state does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from fuzz.reference.envelope import evaluate, make_precision

CPU = make_precision("libm")
Array = np.ndarray[Any, Any]
F = np.float32
Reference = Callable[..., Mapping[str, torch.Tensor]]


def state_by_state(gate: torch.Tensor, add: torch.Tensor, first: torch.Tensor) -> dict[str, torch.Tensor]:
    """The textbook loop."""
    states = [first]
    for a, b in zip(gate, add, strict=True):
        states.append(a * states[-1] + b)
    return {"h": torch.stack(states[1:])}


def into_a_tensor(gate: torch.Tensor, add: torch.Tensor, first: torch.Tensor) -> dict[str, torch.Tensor]:
    """Each state is read from the tensor into which it was written."""
    h = torch.empty_like(add)
    for t in range(len(gate)):
        h[t] = (h[t - 1] if t else first) * gate[t] + add[t]
    return {"h": h}


def in_place(gate: torch.Tensor, add: torch.Tensor, first: torch.Tensor) -> dict[str, torch.Tensor]:
    """One state, which each step writes."""
    state, states = first.clone(), []
    for a, b in zip(gate, add, strict=True):
        state.mul_(a).add_(b)
        states.append(state.clone())
    return {"h": torch.stack(states)}


def where_it_goes_on(gate: torch.Tensor, add: torch.Tensor, first: torch.Tensor) -> dict[str, torch.Tensor]:
    """Steps that a mask lets through."""
    state, states = first, []
    for a, b in zip(gate, add, strict=True):
        state = torch.where(a < 2, torch.addcmul(b, a, state), state)
        states.append(state)
    return {"h": torch.stack(states)}


REFERENCES: list[Reference] = [state_by_state, into_a_tensor, in_place, where_it_goes_on]


def scan(gate: Array, add: Array, first: Array) -> Array:
    """By Hillis and Steele: gates are multiplied with gates, and with the first state at last."""
    distance = 1
    while distance < len(gate):
        gates, adds = gate.copy(), add.copy()
        gates[distance:] = gate[:-distance] * gate[distance:]
        adds[distance:] = gate[distance:] * add[:-distance] + add[distance:]
        gate, add, distance = gates, adds, 2 * distance
    scanned: Array = gate * first + add
    return scanned


def closing_gates(seed: int) -> tuple[Array, Array, Array]:
    """Gates down to 1e-30, and states of any size that the format holds: (gate, add, first)."""
    r = np.random.default_rng(seed)
    gate = 10.0 ** -r.uniform(0, 30, (12, 8))
    add = np.where(r.random((12, 8)) < 0.3, r.standard_normal((12, 8)) * 10.0 ** -r.uniform(0, 38, (12, 8)), 0)
    return gate.astype(F), add.astype(F), (50 * r.standard_normal(8)).astype(F)


def ordinary_gates(seed: int) -> tuple[Array, Array, Array]:
    """Gates between a half and 1: (gate, add, first)."""
    r = np.random.default_rng(seed)
    gate, add, first = r.uniform(0.5, 1, (12, 8)), r.standard_normal((12, 8)), r.standard_normal(8)
    return gate.astype(F), add.astype(F), first.astype(F)


def inputs_of(arrays: tuple[Array, Array, Array]) -> dict[str, torch.Tensor]:
    """By their names."""
    return {name: torch.from_numpy(x.copy()) for name, x in zip(("gate", "add", "first"), arrays, strict=True)}


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_scan_may_lose_products_of_gates_that_underflow(reference: Reference, ratio: Any) -> None:
    worst_units = 0.0
    for seed in range(6):
        arrays = closing_gates(seed)
        y = torch.from_numpy(scan(*arrays))
        expected = evaluate(reference, inputs_of(arrays), CPU, members=80)["h"]
        error = (y.double() - expected.value).abs()
        worst_units = max(worst_units, float(error[expected.value.abs() < 2.0**-126].max()) * 2.0**149)
        assert ratio(y, expected) <= 1
    assert worst_units > 16  # units of the last place, far beyond what the loop's own roundings lose


@pytest.mark.parametrize("reference", REFERENCES)
def test_replicas_get_the_allowance_that_they_have_alone(reference: Reference) -> None:
    both = [inputs_of(closing_gates(0)), inputs_of(ordinary_gates(0))]
    stacked = {name: torch.stack([one[name] for one in both]) for name in both[0]}
    together = evaluate(reference, stacked, CPU, replicas=2)["h"]
    for row, inputs in enumerate(both):
        assert torch.equal(together.spread[row], evaluate(reference, inputs, CPU)["h"].spread)


def test_gates_of_ordinary_size_leave_the_bound_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = inputs_of(ordinary_gates(0))
    spread = evaluate(state_by_state, inputs, CPU)["h"].spread
    monkeypatch.setattr("fuzz.reference.envelope.rules.elementwise.take_step", lambda *_: None)
    assert torch.equal(evaluate(state_by_state, inputs, CPU)["h"].spread, spread)


@pytest.mark.parametrize("arrays", [closing_gates, ordinary_gates])
def test_a_scan_with_a_wrong_gate_is_outside(arrays: Any, ratio: Any) -> None:
    for seed in range(6):
        gate, add, first = arrays(seed)
        expected = evaluate(state_by_state, inputs_of((gate, add, first)), CPU, members=80)["h"]
        wrong = gate.copy()
        wrong[1] *= F(1 + 2.0**-12)
        assert ratio(torch.from_numpy(scan(wrong, add, first)), expected) > 1


def test_a_state_that_is_not_finite_stays_the_value() -> None:
    gate, add, first = closing_gates(0)
    first[:] = np.inf, -np.inf, np.nan, *first[3:]
    expected = evaluate(state_by_state, inputs_of((gate, add, first)), CPU)["h"]
    assert expected.value[-1].isfinite().tolist() == [False] * 3 + [True] * 5


def test_a_closed_gate_ends_what_products_before_it_may_lose(ratio: Any) -> None:
    gate, add, first = closing_gates(0)
    gate[6:] = 1
    gate[6], add[6:], add[8] = 0, 0, F(1e-42)
    expected = evaluate(state_by_state, inputs_of((gate, add, first)), CPU, members=80)["h"]
    assert not expected.spread[6:8].any()
    assert ratio(torch.from_numpy(scan(gate, add, first)), expected) <= 1
    assert float(expected.spread[8].max()) <= 2.0**-149


def test_a_recurrence_in_float64() -> None:
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)

    def average(x: torch.Tensor) -> dict[str, torch.Tensor]:
        h = torch.zeros((), dtype=torch.float64)
        for value in x:
            h = 0.9 * h + 0.1 * value
        return {"h": h}

    h = evaluate(average, {"x": x}, make_precision("libm", "float64"), members=20)["h"]
    assert float((average(x)["h"] - h.value).abs()) <= float(4 * h.spread) < 1e-14
