"""Right functions of signatures that libraries have: integers first, whole numbers that wrap, parts of packed rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.errors import UsageError
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.run.watcher import Watcher
from fuzz.target.loader import load

HEAD = """
import torch
from fuzz import indices, option, prefix_sums, size, target, tensor

M, N, S = size("M", 1, 24), size("N", 1, 40), size("S", 1, 5)

class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, dy):
        return dy * 3

class Largest(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, places = torch.cummax(x, -1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return values, places

    @staticmethod
    def backward(ctx, dvalues, _):
        (places,) = ctx.saved_tensors
        return torch.zeros_like(dvalues).scatter_add_(-1, places, dvalues)
"""
TARGETS = {
    "embedding": """
@target(
    ids=indices(N, below=S), weight=tensor(S, M), dtypes=("float32",), differentiable=dict(y=tensor(N, M)),
    reference=lambda ids, weight: dict(y=weight[ids.long()]),
)
def embedding(ids, weight):
    return dict(y=torch.nn.functional.embedding(ids.long(), weight))
""",
    "wrapping": """
def sums(x):
    return dict(
        total=x.sum(-1, dtype=torch.int32), running=x.cumsum(-1, dtype=torch.int32),
        product=x.prod(-1, dtype=torch.int32), powers=x.cumprod(-1, dtype=torch.int32),
    )

@target(x=tensor(M, N, dtypes=("int32",)), reference=sums)
def wrapping(x):
    return sums(x)
""",
    "parts": """
def scaled(x, scale, ends):
    part = torch.searchsorted(ends[1:].long(), torch.arange(len(x)), right=True)
    return dict(y=x * scale[part].unsqueeze(-1))

@target(x=tensor(M, N), scale=tensor(S), ends=prefix_sums(S + 1, total=M), batch=M, reference=scaled)
def parts(x, scale, ends):
    return scaled(x, scale, ends)
""",
    "linear": """
@target(x=tensor(N), differentiable=dict(y=tensor(N)), linear="x", reference=lambda x: dict(y=x * 3))
def linear(x):
    return dict(y=Tripled.apply(x))
""",
    "places": """
def largest(x):
    values, places = torch.cummax(x, -1)
    return dict(values=values, places=places)

@target(x=tensor(M, N), differentiable=dict(values=tensor(M, N), places=tensor(M, N)), reference=largest)
def places(x):
    values, places = Largest.apply(x)
    return dict(values=values, places=places)
""",
}
MISNAMED = """
@target(
    x=tensor(N), also=option(False, True), too=option(False, True), differentiable=dict({name}=tensor(N)),
    reference=lambda x, also, too: dict(y=x * 3, **(dict(other=x) if also and too else {{}})),
)
def misnamed(x, also, too):
    return dict(y=Tripled.apply(x), **(dict(other=x.clone()) if also and too else {{}}))
"""
BASELINE = """
def earlier(x):
    return dict(y=Tripled.apply(x))

@target(x=tensor(N), differentiable=dict(y=tensor(N)), baseline=earlier, contract="bitwise")
def later(x):
    return dict(y=Tripled.apply(x))
"""


def run(folder: Path, name: str, text: str) -> Result:
    path = folder / f"fuzz_{name}.py"
    path.write_text(HEAD + text, encoding="utf-8")
    options = RunOptions(str(path), backend="cpu", cases=400)
    return Fuzzer(options, load(str(path)), "cpu", folder / "found", Watcher(), {}, with_cross_checks=False).run()


@pytest.mark.parametrize("name", TARGETS)
def test_a_right_function_has_no_finding(tmp_path: Path, name: str) -> None:
    result = run(tmp_path, name, TARGETS[name])
    assert ([bug.finding.message for bug in result.bugs], result.unconfirmed) == ([], 0)


@pytest.mark.parametrize("name", ["y", "other"])
def test_an_output_of_some_options_may_have_a_gradient(tmp_path: Path, name: str) -> None:
    assert not list(run(tmp_path, "misnamed", MISNAMED.format(name=name)).bugs)


def test_gradients_of_a_target_without_a_reference_are_those_of_its_baseline(tmp_path: Path) -> None:
    assert not list(run(tmp_path, "later", BASELINE).bugs)


def test_a_gradient_of_an_output_that_there_is_not_is_refused(tmp_path: Path) -> None:
    """It would never be compared."""
    with pytest.raises(UsageError, match="differentiable names out; the reference returns other, y"):
        run(tmp_path, "misnamed", MISNAMED.format(name="out"))
