"""What single members err: their largest is the spread, and they are kept apart by what they perturb."""

import torch

from fuzz.reference.envelope import evaluate, evaluate_members, make_precision
from fuzz.reference.envelope.evaluate import HOST_LIMIT

CPU = make_precision("libm")
X = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))


def softmax(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": torch.softmax(x, -1)}


def test_the_largest_of_them_is_the_spread_without_walks() -> None:
    found = evaluate_members(softmax, {"x": X}, CPU, 20)["y"]
    assert found.steps.shape[1:] == found.inputs.shape[1:] == X.shape
    assert len(found.steps) + len(found.inputs) == 20 and len(found.inputs) > 0
    spread = evaluate(softmax, {"x": X}, CPU, members=20, uncertainty=False, check_range=False)["y"].spread
    largest = torch.maximum(found.steps.abs().amax(0), found.inputs.abs().amax(0) / 4)
    torch.testing.assert_close(largest, spread)


def test_perturbed_inputs_do_not_count_for_elementwise_outputs() -> None:
    found = evaluate_members(lambda x: {"y": torch.exp(x)}, {"x": X}, CPU, 8)["y"]
    assert len(found.inputs) == 0 and float(found.steps.abs().max()) > 0


def test_nothing_is_said_where_members_take_too_much_memory() -> None:
    assert evaluate_members(softmax, {"x": torch.zeros(1, HOST_LIMIT // 8)}, CPU, 8) == {}
