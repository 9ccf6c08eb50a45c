"""An output's element counts as never written where it holds what memory was filled with, and that is not due."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from fuzz import size, tensor
from fuzz.backends import BACKENDS, cpu
from fuzz.backends.poison import POISON
from fuzz.model.case import Argument, Call, Case, ListedPlan
from fuzz.model.recipes import Exact
from fuzz.oracles.examine import examine, examine_group
from fuzz.oracles.execution.case_runner import CaseRunner
from fuzz.target.spec import declare
from fuzz.worker.protocol import Examine, ReplicaGroup

N = size("N", 8, 8)
DTYPES = ("int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


@pytest.fixture
def active() -> Iterator[None]:
    cpu.activate()
    yield
    cpu.deactivate()


def allocating() -> Callable[[torch.Tensor], torch.Tensor]:
    return torch.empty_like


def keeping() -> Callable[[torch.Tensor], torch.Tensor]:
    """Gives the memory of the first call again, as a launcher with a workspace does."""
    kept: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept[1:] = []
        kept.append(torch.empty_like(x))
        return kept[0]

    return keep


@pytest.mark.usefixtures("active")
@pytest.mark.parametrize("memory", [allocating, keeping])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left_out", [None, 5])
def test_whole_numbers_may_be_poison(
    dtype: str, left_out: int | None, memory: Callable[[], Callable[[torch.Tensor], torch.Tensor]]
) -> None:
    """An element that is left out is reported, alone and beside other cases."""
    allocate = memory()

    def copies(x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = allocate(x)
        for element in range(8):
            if element != left_out:
                y[element] = x[element]
        return {"y": y.clone()}

    poison = POISON[dtype] if dtype.startswith("int") else 0
    words = tuple(poison if number in (1, 3) else 0 for number in range(8))
    case = Case("copies", (Call({"N": 8}, {"x": Argument(("N",), dtype, Exact(words, dtype))}),))
    target = declare(copies, x=tensor(N, dtypes=(dtype,)), reference=lambda x: {"y": x.clone()})
    runner = CaseRunner(target, target.launcher, BACKENDS["cpu"])
    together = examine_group(runner, ReplicaGroup(ListedPlan.of([case] * 3), ((),) * 3))
    assert isinstance(together, tuple)
    for report in (examine(runner.run(case), Examine(case)), *together):
        found = [(one.symptom, one.elements[0].index) for one in report.findings if one.oracle == "bounds"]
        assert found == ([] if left_out is None else [("unwritten", (left_out,))])
