"""Subject: a target's kernel as any test of it sees it: make tensors, call it, compare with the reference in float64.

Shared by the peers, so that they differ in what they try and how they search alone. Tolerances are those of published
tests of such kernels (docs/scoreboard.md), relative to the largest element, so that good kernels pass.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fuzz.backends import cpu
from fuzz.model.dims import resolve
from fuzz.run.environment import process_age
from fuzz.sweep.fork_pool import ForkPool
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Target

TOLERANCES = {"float32": 1e-4, "float16": 1e-2, "bfloat16": 2e-2}


@dataclass
class Subject:
    """A target with one of its planted bugs, or none, and what a tool did with it. Times count from process start.

    `untouched` is a copy of this process in which no kernel has run yet.
    """

    target: Target
    launcher: Any
    seconds: float
    untouched: ForkPool = field(init=False)
    began: float = field(default_factory=lambda: time.monotonic() - process_age())
    cases: int = 0
    first: float | None = None
    after: int = 0
    elements: int = 0
    failed: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        self.untouched = ForkPool(lambda saved: self.fails(self.launcher, pickle.loads(saved)), 1)

    @staticmethod
    def of(name: str, bug: str, seconds: float) -> Subject:
        torch.set_num_threads(1)
        target = load(name)
        cpu.activate()
        return Subject(target, load_planted(target, bug)[1] if bug else target.launcher, seconds)

    @property
    def age(self) -> float:
        return time.monotonic() - self.began

    def shapes(self, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        return {name: resolve(spec.shape, dims) for name, spec in self.target.tensors.items()}

    def dtypes(self) -> tuple[str, ...]:
        """Those that all tensors may have."""
        return next(iter(self.target.tensors.values())).dtypes

    def check(self, tensors: Mapping[str, torch.Tensor], options: Mapping[str, Any], dims: Mapping[str, int]) -> None:
        """Runs the kernel on copies and compares; AssertionError where they differ, or what the kernel raises."""
        self.cases += 1
        self.after += self.first is not None
        try:
            self.compare(self.launcher, tensors, options, dims)
        except Exception:
            self.first = self.age if self.first is None else self.first
            self.elements = sum(one.numel() for one in tensors.values())
            self.failed = tensors, options, dims
            raise

    def compare(
        self, launcher: Any, tensors: Mapping[str, torch.Tensor], options: Mapping[str, Any], dims: Mapping[str, int]
    ) -> None:
        scalars = {**options, **{name: dims[dim] for name, dim in self.target.passed_sizes.items()}}
        assert self.target.reference is not None
        got = launcher(**{name: one.clone() for name, one in tensors.items()}, **scalars)
        want = self.target.reference(**{name: one.double() for name, one in tensors.items()}, **scalars)
        for name, value in want.items():
            agree(got[name], value)

    def fails(self, launcher: Any, counterexample: tuple[Any, ...]) -> bool:
        try:
            self.compare(launcher, *counterexample)
        except Exception:
            return True
        return False

    def false_alarm(self) -> bool:
        """Whether the good kernel fails on the counterexample too, which then says nothing of the planted bug."""
        good = self.target.launcher
        return bool(self.failed) and self.launcher is not good and self.fails(good, self.failed)

    def alone(self) -> bool:
        """Whether the counterexample fails by itself, without the calls that this process made before it."""
        try:
            return bool(self.untouched.compute([pickle.dumps(self.failed)])[0])
        except EOFError:
            # It ended the process.
            return True

    def tell(self) -> None:
        """Prints what came of it, as one JSON value, and ends the process."""
        value = dict(found=self.first is not None, seconds=self.first, cases=self.cases - self.after)
        value |= dict(rate=value["cases"] / max(self.first or self.age, 1e-3), elements=self.elements)
        if self.failed:
            value |= dict(alone=self.alone())
        if self.false_alarm():
            value |= dict(found=False, alarm=True)
        print(json.dumps(value | dict(executions=self.after)), flush=True)
        os._exit(0)


def agree(got: torch.Tensor, want: torch.Tensor) -> None:
    """Like torch.testing.assert_close, absolutely within the tolerance of the largest element."""
    tolerance = TOLERANCES[str(got.dtype).removeprefix("torch.")]
    exact = want.to(got.dtype).double()
    finite = exact[exact.isfinite()]
    largest = float(finite.abs().max()) if finite.numel() else 0.0
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance * max(largest, 1e-3), equal_nan=True)
