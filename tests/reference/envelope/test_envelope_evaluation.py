"""What `evaluate` promises: kinds of inputs and outputs, range, uncertainty, monotone members, groups, refusals."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from fuzz.reference.envelope import Expected, NoRule, evaluate, evaluate_backward, make_precision, working_precision

CPU = make_precision("libm")
U = 2.0**-24


def one(formula: Any, *args: Any, **options: Any) -> Expected:
    """The expectation of formula(a, b, ...)."""
    names = "abcd"[: len(args)]
    inputs = dict(zip(names, args, strict=True))
    return evaluate(lambda **k: {"y": formula(*(k[n] for n in names))}, inputs, CPU, **options)["y"]


X = torch.linspace(0.3, 1.9, 12).view(3, 4)


def relative(e: Expected) -> float:
    """Largest spread over |value|, in units of u."""
    return float((e.spread / e.value.abs()).max()) / U


def test_sizes_of_perturbations() -> None:
    """A product u, two of them twice, exp 1 ulp and half a u of its argument, a sum by its terms; exact ones none."""
    assert 0.5 < relative(one(lambda a: a * a, X)) <= 1
    assert 1 < relative(one(lambda a: a * a * a, X)) <= 2.01
    assert 1 < relative(one(torch.exp, X)) <= 2 + 0.5 * float(X.abs().max())
    assert 0.5 < relative(one(lambda a: a.sum(), X)) <= 1.93 + 2.5
    for exact in (torch.neg, torch.relu, lambda a: a.T.flip(0).amax(1), lambda a: a[1:, :2], lambda a: a.clamp(0, 1)):
        assert float(one(exact, X).spread.max()) == 0


def test_sum_of_one_term_and_exact_zeros() -> None:
    """Nothing rounds there: 0*x, x - x, the sum of one term."""
    assert float(one(lambda a: a[:, :1].sum(1), X).spread.max()) == 0
    assert float(one(lambda a: a * 0 + (a - a), X).spread.max()) == 0


def test_constants_round() -> None:
    """x - 0.1 at x = float32(0.1): the kernel's 0.1 is float32's; 0.5 is exact."""
    x = torch.tensor([0.1])
    assert float(one(lambda a: a - 0.1, x).spread) > 0.01 * U
    assert float(one(lambda a: (a * 0 + 0.5) - 0.5, x).spread) <= U


def test_elementary_errors_follow_the_backend() -> None:
    """exp's error grows with |x|, on cuda more."""
    x = torch.tensor([-40.0])
    cpu, cuda = (evaluate(lambda x: {"y": x.exp()}, {"x": x}, make_precision(b))["y"] for b in ("libm", "libdevice"))
    assert relative(cpu) <= 2 + 0.5 * 40 and 20 < relative(cuda) <= 2 * (2 + 1.173 * 40)


def test_underflow_follows_the_backend() -> None:
    """x*x = 1e-40 is a subnormal, kept on the CPU and flushed on cuda; what is below either may be zero."""
    x = torch.tensor([1e-20])
    cpu, cuda = (evaluate(lambda x: {"y": x * x}, {"x": x}, make_precision(b))["y"] for b in ("libm", "libdevice"))
    assert float(cpu.spread) < 1e-44 and 0.99 < float(cuda.spread / cuda.value) < 1.01
    assert float(one(lambda a: torch.log(a * a), x * 1e-10).spread) == float("inf")


def test_range() -> None:
    """An intermediate beyond float32 is unbounded, in products and in partial sums; without the check it is not."""
    x = torch.tensor([1e30])
    assert float(one(lambda a: (a * a).sqrt(), x).spread) == float("inf")
    assert float(one(lambda a: (a * a).sqrt(), x, check_range=False).spread) < 1e24
    cancelling = torch.tensor([3e38, 3e38, -3e38, -3e38, 1.0])
    assert float(one(lambda a: a.sum(), cancelling).spread) == float("inf")
    assert float(one(lambda a: 1 / (1 + (a * a)), x).spread) < 1e-38
    assert relative(evaluate(lambda x: {"y": x * x}, {"x": x}, make_precision("libm", "float64"))["y"]) < 1


def test_kinks() -> None:
    """A perturbation crosses a step: the spread is the step. Integers that differ are unbounded."""
    x = torch.tensor([0.1, 7.0])
    assert float(one(lambda a: ((a * 3.0) / 3.0 > a).double(), x).spread[0]) == 1
    flags = one(lambda a: (a * 3.0) / 3.0 > a, x)
    assert flags.value.dtype == torch.bool and float(flags.spread[0]) == float("inf")
    index = one(lambda a: (a * torch.tensor([1.0, 0.5])).argmax(), torch.tensor([1.0, 3.0]))
    assert int(index.value) == 1 and float(index.spread) == 0


def test_nonfinite_inputs() -> None:
    """The same infinity or NaN in all members has no spread."""
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    e = one(lambda a: a * 2 + 1, x)
    assert e.spread[:3].tolist() == [0, 0, 0] and float(e.spread[3]) < 1e-6
    assert float(one(lambda a: a.sum(), x).spread) == 0
    assert one(lambda a: torch.softmax(a, 0), torch.tensor([-float("inf"), 0.0, 1.0])).spread.isfinite().all()


def test_uncertainty() -> None:
    """float64's own error is 2^-29 of float32's, and absent when it is not wanted."""
    e = one(lambda a: (a * a).sum(), X)
    assert e.uncertainty is not None and 0 < float(e.uncertainty) < 1e-13
    assert one(lambda a: a * a, X, uncertainty=False).uncertainty is None


def layer(x: Tensor, w: Tensor) -> dict[str, Tensor]:
    """A reference with reductions, products and indexing."""
    y = torch.nn.functional.layer_norm(x, (x.shape[1],), w)
    return {"y": y, "z": y @ y.T, "i": torch.zeros(2, x.shape[1]).index_add(0, torch.tensor([1] * len(x)), y)}


def test_monotone_in_members() -> None:
    """Two members see a subset of what eight see; seeds differ."""
    inputs = {"x": torch.randn(6, 9), "w": torch.randn(9)}
    two, eight = (evaluate(layer, inputs, CPU, members=n, uncertainty=n == 8) for n in (2, 8))
    other = evaluate(layer, inputs, CPU, seed=1)
    for name in two:
        assert torch.equal(two[name].value, eight[name].value)
        assert bool((two[name].spread <= eight[name].spread * (1 + 1e-6)).all())
        assert not torch.equal(other[name].spread, eight[name].spread)


@pytest.mark.parametrize("limit", [100, 300, 700])
def test_groups_change_nothing(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Members evaluated in small groups have the same noise."""
    inputs = {"x": torch.randn(6, 9), "w": torch.randn(9)}
    whole = evaluate(layer, inputs, CPU)
    monkeypatch.setattr(sys.modules[evaluate.__module__], "LIMIT", limit)
    parts = evaluate(layer, inputs, CPU)
    for name, e in whole.items():
        torch.testing.assert_close(parts[name].spread, e.spread, rtol=1e-6, atol=0)
        torch.testing.assert_close(parts[name].uncertainty, e.uncertainty, rtol=1e-3, atol=1e-17)


def test_long_tensors() -> None:
    """More elements than the pool of noise holds."""
    x = torch.rand(3, 50_001) + 1
    e = one(lambda a: a * a, x, members=2)
    assert 0.9 < relative(e) <= 1 and e.spread.std() > 0


def in_place(x: Tensor, w: Tensor) -> dict[str, Tensor]:
    """Writes through views, into new tensors, into arguments."""
    out = torch.zeros_like(x)
    out[:, 0] = x[:, 1] * w[0]
    out[1:].add_(w, alpha=2).mul_(x[1:])
    out.view(-1)[2] = 5
    x += 1
    x[0].zero_()
    new = torch.empty(3, 4, dtype=x.dtype)
    new.copy_(x).clamp_(max=1.5).div_(w)
    new.index_put_((torch.tensor([0, 0]),), w.expand(2, 4), accumulate=True)
    new.masked_fill_(x > 2, 7.0)
    flags = torch.zeros(3, 4, dtype=torch.bool)
    flags |= x > 1.5
    return {"out": out, "new": new, "x": x, "flags": flags}


def test_in_place() -> None:
    """Writes do what they do on plain tensors, and never reach the caller."""
    x, w = X.clone(), torch.linspace(0.5, 0.9, 4)
    got = evaluate(in_place, {"x": x, "w": w}, CPU)
    assert torch.equal(x, X)
    for name, t in in_place(X.double(), w.double()).items():
        torch.testing.assert_close(got[name].value, t, rtol=1e-12, atol=0)
    assert 0 < float(got["out"].spread.max()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool])
@pytest.mark.parametrize("has_gradients", [False, True])
def test_what_is_computed_may_be_written_into_whole_numbers(dtype: torch.dtype, has_gradients: bool) -> None:
    """As codes into a cache: alone and beside other replicas; one that a step of rounding decides may be either."""

    def append(x: Tensor, cache: Tensor, slots: Tensor) -> dict[str, Tensor]:
        codes = torch.round(x * x).to(dtype)
        for row, slot in enumerate(slots.tolist()):
            cache[slot] = codes[row]
        return {"cache": cache, "y": x * 2}

    x = torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 1.2247449159622192]])
    cache, slots = torch.zeros(4, 3, dtype=dtype), torch.tensor([2, 0])
    due = torch.zeros(4, 3, dtype=dtype)
    due[2], due[0] = torch.round(x.double() ** 2).to(dtype)

    def evaluated(replicas: int | None) -> dict[str, Expected]:
        one = {"x": x, "cache": cache, "slots": slots}
        inputs: dict[str, Any] = {n: t if replicas is None else torch.stack([t] * replicas) for n, t in one.items()}
        how: dict[str, Any] = dict(members=16, replicas=replicas)
        seeds = {"y": torch.ones_like(inputs["x"])}
        if has_gradients:
            return evaluate_backward(append, inputs, seeds, ["x"], CPU, **how)
        return evaluate(append, inputs, CPU, **how)

    for replicas in (None, None, 2):
        got = evaluated(replicas)["cache"]
        value, spread = (part if replicas is None else part[1] for part in (got.value, got.spread))
        assert torch.equal(value, due) and torch.equal(cache, torch.zeros_like(cache))
        # The square is 1.5000001, of which float32 holds the half.
        assert spread.isinf().nonzero().tolist() == ([] if dtype is torch.bool else [[0, 2]])


def test_in_place_views() -> None:
    """A tensor may change its own shape."""
    e = one(lambda a: (a * 3).t_().unsqueeze_(0), X)
    assert e.value.shape == (1, 4, 3) and torch.equal(e.value[0], X.double().T * 3)
    assert one(lambda a: torch.matmul(a, a[0]), X).value.shape == (3,)


def test_in_place_under_autograd() -> None:
    """Writes into slices of a result are differentiated."""

    def slices(x: Tensor) -> dict[str, Tensor]:
        y = x * x
        y[1:, :2].mul_(3)
        y[:, 3] += x[:, 0]
        return {"y": y}

    x = X.double().requires_grad_()
    (want,) = torch.autograd.grad(slices(x)["y"].sum(), x)
    got = evaluate_backward(slices, {"x": X}, {"y": torch.ones(3, 4)}, ["x"], CPU)
    torch.testing.assert_close(got["dx"].value, want, rtol=1e-12, atol=0)


def test_autograd_inside() -> None:
    """A reference may differentiate, by grad and by backward."""

    def gradient(x: Tensor) -> dict[str, Tensor]:
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        g.sum().backward()
        assert x.grad is not None
        return {"g": g, "h": x.grad}

    got = evaluate(gradient, {"x": X}, CPU)
    torch.testing.assert_close(got["g"].value, 3 * X.double() ** 2)
    torch.testing.assert_close(got["h"].value, 6 * X.double())
    assert 0 < float(got["h"].spread.max()) < 1e-5


def test_unused_input_has_gradient_0() -> None:
    """An output without cotangent takes no part."""
    got = evaluate_backward(
        lambda a, b: {"y": a * 2, "z": b * a}, {"a": X, "b": X}, {"y": torch.ones(3, 4)}, ["a", "b"], CPU
    )
    assert set(got) == {"y", "z", "da", "db"} and float(got["da"].value.max()) == 2
    assert not bool(got["db"].value.any()) and not bool(got["db"].spread.any())


def test_shapes_of_outputs() -> None:
    """Aliases, transposes, no dims, no elements, integers and constants come back."""
    got = evaluate(
        lambda x, n, i: {
            "same": x, "t": x.T, "s": x.sum() * n, "e": x[:0] * 2, "i": i + 1, "c": torch.ones(2), "m": x[:0].sum(),
        },
        {"x": X.T, "n": 3, "i": torch.arange(3)},
        CPU,
    )  # fmt: skip
    assert torch.equal(got["same"].value, X.T.double()) and torch.equal(got["t"].value, X.double())
    assert got["s"].value.dim() == 0 and got["e"].value.shape == (0, 3) and got["e"].spread.shape == (0, 3)
    assert torch.equal(got["i"].value, torch.arange(3) + 1) and float(got["c"].spread.max()) == 0


def test_reduced_precision_inputs_and_float32_casts() -> None:
    """Inputs arrive exactly; a cast inside the reference rounds every member."""
    x = torch.randn(5, 3).bfloat16()
    assert torch.equal(one(lambda a: a, x).value, x.double())
    assert float(one(lambda a: (a * 3).to(torch.bfloat16), x.float()).spread.max()) in (
        0.0,
        *2.0 ** torch.arange(-20.0, 1),
    )


@pytest.mark.parametrize("shape", [(2, 0), (0, 0), (0, 3), (1, 0, 3), (2, 0, 0)])
@pytest.mark.parametrize(
    "function",
    [lambda x: x.sum(1), lambda x: x.sum(), lambda x: x.mean(1), lambda x: x.cumsum(1), lambda x: x @ x.mT],
)
def test_sums_without_terms_and_without_results(function: Any, shape: tuple[int, ...]) -> None:
    """Also by the members that add terms up in orders."""
    x = torch.zeros(shape)
    assert one(function, x, members=80).value.shape == function(x).shape


def test_data_dependent_shapes() -> None:
    """The mask is member 0's; a member that disagrees is unbounded."""
    x = torch.tensor([0.1, 0.7, 0.2])
    e = one(lambda a: a[(a * 3.0) / 3.0 > 0.1 * 1.0000001], x)
    assert e.value.numel() >= 2
    assert one(lambda a: a[a > 0.15] * 2, x).spread.max() < 1e-6


def test_refusals() -> None:
    """Unknown and random operations are named; the reference's own errors pass; other results are refused."""
    with pytest.raises(NoRule, match="linalg_eigh"):
        one(lambda a: torch.linalg.eigh(a @ a.T)[0], X)
    for random in (lambda a: a + torch.randn(3, 4), torch.bernoulli, lambda a: a.clone().uniform_(), torch.rand_like):
        with pytest.raises(NoRule, match="random"):
            one(random, X)
    with pytest.raises(ZeroDivisionError):
        one(lambda a: 1 // 0, X)
    with pytest.raises(TypeError, match="not a mapping"):
        evaluate(lambda x: x, {"x": X}, CPU)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="'y'"):
        one(lambda a: 3.0, X)


def test_unknown_names() -> None:
    """Tables, dtypes and dot modes are listed in the message."""
    for arguments in (("gpu",), ("libm", "int8"), ("libm", "float32", "fp8")):
        with pytest.raises(ValueError, match="one of"):
            make_precision(*arguments)


def test_a_kernel_that_accumulates_in_its_inputs_has_the_worst_of_their_formats() -> None:
    bfloat16, float16 = (working_precision("libm", "inputs", [name]) for name in ("bfloat16", "float16"))
    mixed = working_precision("libm", "inputs", ["float16", "int64", "bfloat16"])
    assert (mixed.u, mixed.largest, mixed.eta) == (bfloat16.u, float16.largest, float16.eta)
    assert (mixed.u, mixed.largest, mixed.eta) == (2.0**-8, 65504, 2.0**-14)
    assert working_precision("libm", "float32", ["float16"]) == make_precision("libm")
