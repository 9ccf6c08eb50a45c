"""An operation of a library: how its inputs are drawn, how it runs, and what it should give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Function = Callable[..., Any]
SHAPES = (0, 1)
"""Which of its two shapes an operation draws: `Draw.pick` chooses."""


@dataclass
class Draw:
    """Random inputs of one dtype for one of two shapes, the same ones for the same seed."""

    dtype: torch.dtype
    shape: int
    seed: int = 0
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def pick(self, *choices: Any) -> Any:
        return choices[self.shape]

    def fixed(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normal values; no gradient is wanted."""
        return (torch.randn(shape, generator=self.generator) * scale).to(dtype or self.dtype)

    def leaf(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normal values whose gradient is checked."""
        return self.fixed(*shape, scale=scale, dtype=dtype).requires_grad_()

    def leaf_of(self, value: torch.Tensor) -> torch.Tensor:
        return value.detach().to(self.dtype).requires_grad_()

    def index(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=self.generator)


@dataclass
class Check:
    """One call: `kernel(*inputs)`, and a reference that is given the same inputs in float64."""

    kernel: Function
    reference: Function | None
    inputs: tuple[Any, ...]


@dataclass(frozen=True)
class Operation:
    """`draw` makes the call for a dtype and a shape."""

    name: str
    draw: Callable[[Draw], Check]
    dtypes: tuple[torch.dtype, ...]
    backward: bool
    knobs: dict[str, Any]


class Registry:
    """The operations of one library, in the order in which they are written."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def __call__(
        self,
        function: Callable[[Draw], Check] | None = None,
        *,
        dtypes: tuple[torch.dtype, ...] | None = None,
        backward: bool = True,
        **knobs: Any,
    ) -> Any:
        """Decorates a function from a Draw to a Check; it runs under these knobs."""
        chosen = dtypes or (torch.float32, torch.bfloat16, torch.float16)

        def register(draw: Callable[[Draw], Check]) -> Callable[[Draw], Check]:
            self.operations.append(Operation(draw.__name__, draw, chosen, backward, knobs))
            return draw

        return register(function) if function is not None else register


def check(kernel: Function, reference: Function | None, *inputs: Any) -> Check:
    return Check(kernel, reference, inputs)
