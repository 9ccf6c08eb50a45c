"""Parameters with one value in every call, by what the definition says of them."""

from __future__ import annotations

import ast

import pytest

from fuzz.coverage_report.parameters import find_parameter_blockers
from fuzz.coverage_report.protocol import SourceFunction, TensorKind, Value

FUNCTION = SourceFunction("f.py", 1, "f")


def find(definition: str, *seen: Value) -> list[str]:
    node = ast.parse(definition).body[0]
    assert isinstance(node, ast.FunctionDef)
    return [blocker.what for blocker in find_parameter_blockers(FUNCTION, node, {(FUNCTION, "a"): {*seen}})]


@pytest.mark.parametrize(
    ("definition", "seen", "never"),
    [
        ("def f(a): ...", (None,), ["f: a is always None"]),
        ("def f(a): ...", (True,), ["f: a is always True"]),
        ("def f(a=0.5): ...", (0.5,), ["f: a is always its default, 0.5"]),
        ("def f(*, a=0.5): ...", (0.5,), ["f: a is always its default, 0.5"]),
        ("def f(a=0.5): ...", (0.5, 1.0), []),
        ("def f(a): ...", (3,), []),
        ("def f(a=None): ...", (3, 4), ["f: a is never None"]),
        ("def f(a: int | None): ...", (3, 4), ["f: a is never None"]),
        ("def f(a=None): ...", (3, None), []),
        ("def f(self, a=[]): ...", ("a list",), []),
        ("def f(a): ...", (TensorKind("int64", 1, True), TensorKind("int64", 2, False)), []),
        ("def f(b): ...", (None,), []),
    ],
)
def test_values_that_were_never_given(definition: str, seen: tuple[Value, ...], never: list[str]) -> None:
    assert find(definition, *seen) == never


def test_a_decorator_may_have_made_a_tensor_contiguous() -> None:
    tensors = TensorKind("int64", 1, True), TensorKind("int64", 2, True)
    assert find("def f(a): ...", *tensors) == ["f: a is always contiguous"]
    assert find("@staticmethod\ndef f(a): ...", *tensors) == ["f: a is always contiguous"]
    assert find("@contiguous\ndef f(a): ...", *tensors) == []
