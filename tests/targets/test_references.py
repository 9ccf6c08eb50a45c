"""References of library targets run where their inputs are."""

import ast
from pathlib import Path

import pytest

TARGETS = Path(__file__).parents[2] / "targets"
FACTORIES = {"arange", "empty", "eye", "full", "linspace", "ones", "scalar_tensor", "tensor", "zeros"}


def made_on_the_host(path):
    """Lines on which a tensor is made without a device."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    made = [call for call in calls if ast.unparse(call.func) in {f"torch.{name}" for name in FACTORIES}]
    return [call.lineno for call in made if "device" not in {keyword.arg for keyword in call.keywords}]


@pytest.mark.parametrize("library", ["conch", "fla", "liger"])
def test_tensors_are_made_where_the_inputs_are(library):
    files = sorted((TARGETS / library).glob("*.py"))
    assert files
    assert {path.name: lines for path in files if (lines := made_on_the_host(path))} == {}
