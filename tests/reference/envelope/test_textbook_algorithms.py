"""Textbook algorithms of another form than the reference's stay inside the envelope; wrong ones beside them do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuzz.reference.envelope import evaluate, make_precision

CPU = make_precision("libm")
Array = np.ndarray[Any, Any]
F = np.float32


def variance(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two passes."""
    return {"y": x.var(-1, correction=0)}


def merged_variance(x: Array, block: int) -> Array:
    """Blocks of columns merged as by Chan, Golub and LeVeque; blocks of one are Welford's recurrence."""
    count, mean, squares = F(0), np.zeros(len(x), F), np.zeros(len(x), F)
    for start in range(0, x.shape[1], block):
        part = x[:, start : start + block]
        size = F(part.shape[1])
        middle = part.sum(1, dtype=F) / size
        apart = part - middle[:, None]
        delta, total = middle - mean, count + size
        mean = mean + delta * F(size / total)
        squares = squares + (apart * apart).sum(1, dtype=F) + delta * delta * F(count * F(size / total))
        count = total
    return squares / count


def one_pass_variance(x: Array) -> Array:
    """E[x^2] - E[x]^2, off by the square of the condition number."""
    mean = x.mean(1, dtype=F)
    return np.maximum((x * x).mean(1, dtype=F) - mean * mean, F(0))


def softmax(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Rows."""
    return {"y": torch.softmax(x, -1)}


def online_softmax(x: Array) -> Array:
    """Blocks of 16 columns, by powers of 2, the sum rescaled when the maximum grows."""
    x = x * F(1.44269504)
    top, total = np.full((len(x), 1), -np.inf, F), np.zeros((len(x), 1), F)
    for start in range(0, x.shape[1], 16):
        part = x[:, start : start + 16]
        higher = np.maximum(top, part.max(1, keepdims=True))
        total = total * np.exp2(top - higher) + np.exp2(part - higher).sum(1, keepdims=True, dtype=F)
        top = higher
    return np.exp2(x - top) / total


def total(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Sums of rows."""
    return {"y": x.sum(-1)}


def add_in_sequence(x: Array) -> Array:
    """From the first to the last."""
    return np.add.accumulate(x, axis=1)[:, -1]


def add_compensated(x: Array) -> Array:
    """By Kahan."""
    s, lost = np.zeros(len(x), F), np.zeros(len(x), F)
    for column in x.T:
        y = column - lost
        t = s + y
        lost, s = (t - s) - y, t
    return s


def add_in_lanes(x: Array) -> Array:
    """64 lanes, each in sequence."""
    lanes = np.pad(x, ((0, 0), (0, -x.shape[1] % 64))).reshape(len(x), -1, 64)
    return add_in_sequence(np.add.accumulate(lanes, axis=1)[:, -1])


def exponential(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Elementwise."""
    return {"y": torch.exp(x)}


def draw(kind: str, seed: int, columns: int) -> Array:
    """Four rows."""
    r = np.random.default_rng(seed)
    x = r.standard_normal((4, columns))
    rows = r.uniform(0.5, 9, (4, 1))
    made = {"normal": x, "far from 0": rows * (1 + x * 2.0 ** -r.integers(6, 20)), "equal": rows + 0 * x,
            "two values": np.where(x > 0, 1, 1 + 2.0**-12), "positive": r.random(x.shape)}[kind]  # fmt: skip
    return np.ascontiguousarray(made, dtype=F)


Kernel = Callable[[Array], Array]
HONEST: dict[str, tuple[Any, Kernel]] = {
    "Chan": (variance, lambda x: merged_variance(x, 16)),
    "Welford": (variance, lambda x: merged_variance(x, 1)),
    "online softmax": (softmax, online_softmax),
    "sequence": (total, add_in_sequence),
    "compensated": (total, add_compensated),
    "lanes": (total, add_in_lanes),
    "scan": (lambda x: {"y": x.cumsum(-1)}, lambda x: np.add.accumulate(x, axis=1)),
    "exp by exp2": (exponential, lambda x: np.exp2(9 * x * F(1.44269504))),
}
KINDS = ("normal", "far from 0", "equal", "two values", "positive")


def worst(reference: Any, kernel: Kernel, x: Array, ratio: Any, factor: float = 1.0) -> float:
    """Error over bound of one kernel."""
    expected = evaluate(reference, {"x": torch.from_numpy(x * F(factor))}, CPU, members=80)["y"]
    return float(ratio(torch.from_numpy(kernel(x)), expected))


@pytest.mark.parametrize("name", HONEST)
def test_textbook_algorithms_are_inside(name: str, ratio: Any) -> None:
    reference, kernel = HONEST[name]
    factor = 9.0 if name == "exp by exp2" else 1.0
    for seed, kind in enumerate(KINDS):
        for columns in (17, 300, 1000):
            assert worst(reference, kernel, draw(kind, seed, columns), ratio, factor) <= 1.0, (kind, columns)


def test_a_one_pass_variance_is_far_outside_where_the_mean_is_far_from_0(ratio: Any) -> None:
    for seed in range(3):
        assert worst(variance, one_pass_variance, draw("far from 0", seed, 300), ratio) > 8


WRONG: dict[str, tuple[Any, Kernel, str]] = {
    "sum": (total, lambda x: x.astype(np.float64).sum(1) * (1 + 2.0**-18), "two values"),
    "mean": (lambda x: {"y": x.mean(-1)}, lambda x: x.astype(np.float64).mean(1) * (1 + 2.0**-18), "two values"),
    "halves": (total, lambda x: x.astype(np.float16).astype(np.float64).sum(1), "two values"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_of_2_to_the_minus_18_are_outside_in_rows_of_4096(name: str, ratio: Any) -> None:
    reference, kernel, kind = WRONG[name]
    assert worst(reference, lambda x: kernel(x).astype(F), draw(kind, 1, 4096), ratio) > 1


def test_elementwise_references_do_not_perturb_their_inputs(ratio: Any) -> None:
    """sin at 10^6 is ill-conditioned: a change of the argument in its last bit is wrong there."""
    x = np.linspace(1e6, 1e6 + 10, 100, dtype=F)
    sine = lambda x: {"y": torch.sin(x)}  # noqa: E731
    assert worst(sine, lambda x: np.sin(x.astype(np.float64)).astype(F), x, ratio) <= 1
    moved = lambda x: np.sin(np.nextafter(x, F(np.inf)).astype(np.float64)).astype(F)  # noqa: E731
    assert worst(sine, moved, x, ratio) > 100


@pytest.mark.parametrize("name", ["addmm", "baddbmm", "addbmm", "a @ b + start", "start - a @ -b"])
def test_a_matrix_product_may_begin_with_what_is_added_to_it(name: str, ratio: Any) -> None:
    batched = ("baddbmm", "addbmm")

    def reference(x: torch.Tensor) -> dict[str, torch.Tensor]:
        left = x[1:].view((3, 5, 35) if name in batched else (5, 35))
        right = torch.full((3, 35, 2) if name in batched else (35, 2), 0.9)
        if name == "a @ b + start":
            return {"y": left @ right + x[0]}
        if name == "start - a @ -b":
            return {"y": x[0] - (left @ -right)}
        return {"y": getattr(torch, name)(x[0], left, right)}

    def from_the_start(x: Array) -> Array:
        products = x[1:].reshape(-1, 5, 35) * F(0.9)
        terms = products.transpose(0, 2, 1).reshape(1, -1, 5) if name == "addbmm" else products.transpose(0, 2, 1)
        sums = np.full((len(terms), 5), x[0])
        for place in range(terms.shape[1]):
            sums = sums + terms[:, place]
        return np.repeat(sums.reshape(-1, 5, 1) if name == "baddbmm" else sums.reshape(5, 1), 2, -1)

    # Half a unit in the last place of the start is 256: no product changes it.
    x = np.concatenate([[F(2**32)], np.full(5 * 35 * (3 if name in batched else 1), F(282))]).astype(F)
    assert 0.3 < worst(reference, from_the_start, x, ratio) <= 1
    assert worst(reference, lambda x: from_the_start(x) * F(1 - 2.0**-16), x, ratio) > 1


def test_no_sum_begins_with_what_is_added_to_each_of_its_copies(ratio: Any) -> None:
    """Of a bias that a product of matrices is broadcast to, and of a number such as an epsilon."""
    x = np.concatenate([[F(2**32)], np.full(35, F(282))]).astype(F)

    def product(x: torch.Tensor) -> torch.Tensor:
        return x[1:].view(1, 35) @ torch.full((35, 1), 0.9)

    for reference in (lambda x: {"y": product(x) + x[0].expand(2, 2)}, lambda x: {"y": product(x) + 2.0**32}):
        shape = tuple(reference(torch.from_numpy(x))["y"].shape)
        assert worst(reference, lambda x, shape=shape: np.full(shape, x[0]), x, ratio) > 1


def test_ties_and_decisions_are_those_of_the_unperturbed_inputs() -> None:
    x = torch.tensor([[1.0, 1.0 + 2.0**-23, 1.0], [0.5, 0.25, 0.5]])

    def reference(x: torch.Tensor) -> dict[str, torch.Tensor]:
        total = x.sum(-1, keepdim=True)
        return {"place": x.argmax(-1), "larger": x * total > 1.0000001 * total, "difference": (x[:, 0] - x[:, 2]).sum()}

    expected = evaluate(reference, {"x": x}, CPU, members=80)
    assert all(not bool(expected[name].spread.any()) for name in ("place", "difference"))


def elementwise(function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A reference of one operation."""
    return lambda x: {"y": function(x)}


@np.errstate(over="ignore")
def tanh_by_exp(x: Array) -> Array:
    return np.copysign(F(1) - F(2) / (np.exp(F(2) * np.abs(x)) + F(1)), x)


REWRITTEN: dict[str, tuple[Any, Kernel]] = {
    "tanh by exp": (elementwise(torch.tanh), tanh_by_exp),
    "tanh by sigmoid": (elementwise(torch.tanh), lambda x: F(2) / (F(1) + np.exp(F(-2) * x)) - F(1)),
    "softplus by log": (elementwise(torch.nn.functional.softplus), lambda x: np.log(F(1) + np.exp(x))),
    "elu by exp": (elementwise(torch.nn.functional.elu), lambda x: np.where(x > 0, x, np.exp(x) - F(1))),
    "celu by exp": (
        elementwise(lambda x: torch.nn.functional.celu(x, 0.5)),
        lambda x: np.where(x > 0, x, F(0.5) * (np.exp(x / F(0.5)) - F(1))),
    ),
    "mish by both": (
        elementwise(torch.nn.functional.mish),
        lambda x: x * tanh_by_exp(np.log(F(1) + np.exp(x))),
    ),
    "sigmoid by exp": (elementwise(torch.sigmoid), lambda x: np.exp(x) / (F(1) + np.exp(x))),
    "gelu by tanh of exp": (
        elementwise(lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
        lambda x: F(0.5) * x * (F(1) + tanh_by_exp(F(0.7978845608) * (x + F(0.044715) * x * x * x))),
    ),
}
ARGUMENTS = np.concatenate([np.linspace(-19, 19, 400), np.geomspace(1e-12, 1, 100), -np.geomspace(1e-12, 1, 100)])


@pytest.mark.parametrize("name", REWRITTEN)
def test_usual_rewritings_of_functions_are_inside(name: str, ratio: Any) -> None:
    reference, kernel = REWRITTEN[name]
    assert worst(reference, kernel, ARGUMENTS.astype(F), ratio) <= 1


def test_sinc_may_round_its_angle(ratio: Any) -> None:
    """sin(pi*x)/(pi*x) is -2.8e-8 at 1 in float32; an error of 2^-18 and a cosine are found."""

    def by_sine(x: Array) -> Array:
        return np.where(x == 0, F(1), np.sin(F(math.pi) * x) / np.where(x == 0, F(1), F(math.pi) * x))

    whole = np.concatenate([np.arange(-8, 9), 2.0 ** np.arange(4, 40), [0.5, 100.5, 2.0**20 + 0.5]])
    for x in (ARGUMENTS.astype(F), whole.astype(F)):
        assert worst(elementwise(torch.sinc), by_sine, x, ratio) <= 1
        assert worst(elementwise(torch.sinc), lambda x: by_sine(x) * F(1 + 2.0**-18), x, ratio) > 1
        assert worst(elementwise(torch.sinc), lambda x: by_sine(x + F(2.0**-18)), x, ratio) > 1


@pytest.mark.parametrize("decimals", [3, 0, -1])
def test_rounding_to_decimals_rounds_twice_more(decimals: int, ratio: Any) -> None:
    """As torch rounds: a bfloat16 of 3.0 to three decimals is 3.015625."""
    x = torch.linspace(-40, 40, 321, dtype=torch.bfloat16)
    power = torch.tensor(10.0 ** abs(decimals), dtype=torch.bfloat16)
    got = (x * power).round() / power if decimals >= 0 else (x / power).round() * power
    reference = elementwise(lambda x: torch.round(x, decimals=decimals))
    expected = evaluate(reference, {"x": x}, make_precision("libm", "bfloat16"), members=80)["y"]
    assert float(ratio(got, expected)) <= 1
    wrong = torch.where(x == 3.0, 3.5 if decimals >= 0 else 10.0, got)
    assert float(ratio(wrong, expected)) > 1


@pytest.mark.parametrize("rounding_mode", ["floor", "trunc"])
def test_floors_of_quotients_are_of_rounded_ones(rounding_mode: str, ratio: Any) -> None:
    """As torch divides: in bfloat16 32.88 is 33 before it is rounded down."""
    grid = torch.meshgrid(torch.arange(128.0, 256), torch.arange(3, 8, 1 / 32), indexing="ij")
    x, y = (values.flatten().bfloat16() for values in grid)
    near = (x / y == 33) & (x.double() / y.double() < 32.9)
    x, y = x[near], y[near]
    got = torch.div(x / y, 1, rounding_mode=rounding_mode)
    inputs, precision = {"x": x, "y": y}, make_precision("libm", "bfloat16")

    def reference(x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": torch.div(x, y, rounding_mode=rounding_mode)}

    assert float(ratio(got, evaluate(reference, inputs, precision, members=20)["y"])) <= 1
    halves = {"x": torch.tensor([5.0, 93.0]), "y": torch.tensor([2.0, 2.0])}
    assert float(ratio(torch.tensor([3.0, 46.0]), evaluate(reference, halves, precision, members=20)["y"])) > 1


def log_softmax(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Rows."""
    return {"y": torch.log_softmax(x, -1)}


def test_log_softmax_may_subtract_the_logarithm_of_the_sum(ratio: Any) -> None:
    def by_logsumexp(x: Array) -> Array:
        top = x.max(1, keepdims=True)
        return x - (top + np.log(np.exp(x - top).sum(1, keepdims=True, dtype=F)))

    for kind in KINDS:
        x = 4000 + draw(kind, 1, 300)
        assert worst(log_softmax, by_logsumexp, x, ratio) <= 1
        assert worst(log_softmax, lambda x: by_logsumexp(x) * F(1 + 2.0**-18) - F(1e-3), x, ratio) > 1
    x = draw("normal", 1, 300)
    assert worst(log_softmax, lambda x: by_logsumexp(x) * F(1 + 2.0**-18), x, ratio) > 1


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of the queries over all keys."""
    return {"y": torch.softmax(q @ k.T, -1) @ v}


def written_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same, with softmax written out."""
    scores = q @ k.T
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return {"y": weights / weights.sum(-1, keepdim=True) @ v}


def attention_of_heads(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, torch.Tensor]:
    """As `attention` of one head: a batched product, whose result is viewed, scaled and masked."""
    scores = torch.einsum("hld,hmd->hlm", q[None], k[None]) * 1.0
    scores = scores.masked_fill(torch.zeros(scores.shape[1:], dtype=torch.bool), -torch.inf)
    return {"y": torch.einsum("hlm,hmd->hld", torch.softmax(scores, -1), v[None])[0]}


def sums_of_products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, torch.Tensor]:
    """As `attention`, by no product of matrices."""
    weights = torch.softmax((q[:, None] * k).sum(-1), -1)
    return {"y": (weights[..., None] * v).sum(1)}


def attention_by_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, torch.Tensor]:
    """As `sums_of_products`, one query after the other, of which each also sees a key that has no weight."""
    unseen = torch.full((1,), -torch.inf)
    scores = torch.stack([torch.cat([(row * k).sum(-1), unseen]) for row in q])
    return {"y": torch.softmax(scores, -1)[:, :-1] @ v}


def attention_of_fused_lanes(q: Array, k: Array, v: Array, factor: float = 1.0) -> Array:
    """Weights in two layouts, from scores in which one lane or the other fuses its product with the addition."""
    products = q[:, None].astype(np.float64) * k[None]  # exact, of width 2
    first, second = (
        (products[..., lane] + products[..., 1 - lane].astype(F)).astype(F)  # one rounding, of one exact product
        for lane in range(2)
    )
    top = first.max(1, keepdims=True)
    return (np.exp(first - top) @ v) / np.exp(second - top).sum(1, keepdims=True, dtype=F) * F(factor)


ATTENTIONS = [attention, written_attention, attention_of_heads, sums_of_products, attention_by_rows]


@pytest.mark.parametrize("reference", ATTENTIONS)
def test_the_weights_of_attention_may_be_computed_twice(reference: Any, ratio: Any) -> None:
    worst_error = 0.0
    for seed in range(8):
        q, k, v = np.random.default_rng(seed).standard_normal((3, 6, 2)).astype(F)
        q, k = q * F(700), k * F(700)
        inputs = {name: torch.from_numpy(x) for name, x in zip(("q", "k", "v"), (q, k, v), strict=True)}
        expected = evaluate(reference, inputs, CPU, members=80)["y"]
        y = attention_of_fused_lanes(q, k, v)
        worst_error = max(worst_error, float(np.max(np.abs(y / expected.value.numpy() - 1))))
        assert float(ratio(torch.from_numpy(y), expected)) <= 1
    assert worst_error > 0.01


def cooled(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Log-softmax of logits that are divided by a temperature."""
    d = x / 0.9
    d = d - d.amax(-1, keepdim=True)
    return {"y": d - torch.log(torch.exp(d).sum(-1, keepdim=True))}


def test_an_exponential_of_what_is_loaded_has_one_value(ratio: Any) -> None:
    """The logarithm of the sum before it is subtracted rounds at the size of the logits."""
    x = np.array([[0, -4096, -4088], [-4088, -4096, -9000]], F)
    divided = x / F(0.9)
    top = divided.max(1, keepdims=True)
    lost = divided - (top + np.log(np.exp(divided - top).sum(1, keepdims=True, dtype=F)))
    expected = evaluate(cooled, {"x": torch.from_numpy(x)}, CPU, members=80)["y"]
    assert ratio(torch.from_numpy(lost), expected) > 16


@pytest.mark.parametrize("reference", [attention, written_attention])
def test_weights_of_scores_of_ordinary_size_are_as_exact_as_before(reference: Any, ratio: Any) -> None:
    for seed in range(8):
        q, k, v = np.random.default_rng(seed).standard_normal((3, 6, 2)).astype(F)
        inputs = {name: torch.from_numpy(x) for name, x in zip(("q", "k", "v"), (q, k, v), strict=True)}
        expected = evaluate(reference, inputs, CPU, members=80)["y"]
        assert float(ratio(torch.from_numpy(attention_of_fused_lanes(q, k, v)), expected)) <= 1
        wrong = attention_of_fused_lanes(q, k, v, 1 + 2.0**-17)
        assert float(ratio(torch.from_numpy(wrong), expected)) > 1


def attention_gradient(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of the queries, each of which sees the keys up to its own."""
    q = q.requires_grad_()
    with torch.enable_grad():
        scores = (q @ k.T).masked_fill(torch.ones(len(q), len(k)).triu(1) > 0, -math.inf)
        y = torch.softmax(scores, -1) @ v
    return {"dq": torch.autograd.grad(y, q, do)[0]}


def flash_attention_gradient(q: Array, k: Array, v: Array, do: Array, delta_of_first: float = 1.0) -> Array:
    """The sum in the gradient of softmax is that of do * o (Dao et al., 2022, algorithm 4)."""
    scores = np.where(np.triu(np.ones((len(q), len(k))), 1) > 0, F(-np.inf), q @ k.T)
    top = scores.max(1, keepdims=True)
    p = np.exp(scores - top)
    total = p.sum(1, keepdims=True, dtype=F)
    delta = np.add.accumulate(do * ((p @ v) / total), axis=1)[:, -1:]
    return (p / total * (do @ v.T - delta * F(delta_of_first))) @ k


def test_the_gradient_of_attention_may_sum_do_times_o(ratio: Any) -> None:
    for seed in range(5):
        q, k, v, do = np.random.default_rng(seed).standard_normal((4, 6, 40)).astype(F)
        do[0, -1] -= (do[0] @ v[0]) / v[0, -1]  # the first query's gradient of p is next to 0, unlike its terms
        inputs = {name: torch.from_numpy(x) for name, x in zip(("q", "k", "v", "do"), (q, k, v, do), strict=True)}
        expected = evaluate(attention_gradient, inputs, CPU, members=80)["dq"]
        assert np.any(flash_attention_gradient(q, k, v, do)[0])
        assert float(ratio(torch.from_numpy(flash_attention_gradient(q, k, v, do)), expected)) <= 1
        wrong = flash_attention_gradient(q, k, v, do, 1 + 2.0**-14)
        assert float(ratio(torch.from_numpy(wrong), expected)) > 1


def test_what_other_formulas_lose_is_judged_where_the_reference_promises_it(ratio: Any) -> None:
    """erfc, log1p, expm1 and log sigmoid promise small results, and tanh its tail."""
    x = ARGUMENTS.astype(F)
    for function, kernel in (
        (torch.log1p, lambda x: np.log(F(1) + x)),
        (torch.expm1, lambda x: np.exp(x) - F(1)),
        (torch.nn.functional.logsigmoid, lambda x: -np.log(F(1) + np.exp(-x))),
        (lambda x: torch.erfc(-x), lambda x: torch.erf(torch.from_numpy(x)).numpy() + F(1)),
        (torch.tanh, lambda x: np.tanh(x * F(1 + 2.0**-16))),
        (torch.nn.functional.softplus, lambda x: np.log(F(1) + np.exp(x)) * F(1 + 2.0**-18)),
    ):
        assert worst(elementwise(function), kernel, x[x > -1] if function is torch.log1p else x, ratio) > 2


def gated_norm(x: torch.Tensor, gate: torch.Tensor) -> dict[str, torch.Tensor]:
    """Rows of products less their mean, over their deviation."""
    product = x * gate
    apart = product - product.mean(-1, keepdim=True)
    return {"y": apart / ((apart * apart).mean(-1, keepdim=True) + 1e-5).sqrt()}


def fused_gated_norm(x: Array, gate: Array, product: Array) -> Array:
    """The mean of rounded products is subtracted from other ones, as a fused multiply-add does of unrounded ones."""
    rounded = x * gate
    apart = (product - rounded.mean(-1, dtype=F)[:, None].astype(np.float64)).astype(F)
    return apart / np.sqrt((apart * apart).mean(-1, dtype=F)[:, None] + F(1e-5))


def test_a_quotient_need_not_be_rounded_where_a_division_is_a_product(ratio: Any) -> None:
    def less_mean(x: torch.Tensor) -> dict[str, torch.Tensor]:
        quotient = x / 0.9
        return {"y": quotient - quotient.mean(-1, keepdim=True)}

    x = np.random.default_rng(0).standard_normal((40, 1)).astype(F)
    fused = x.astype(np.float64) / np.float64(F(0.9)) - x / F(0.9)
    assert np.any(fused)
    for arithmetic, is_admitted in (("libdevice", True), ("libm", False)):
        expected = evaluate(less_mean, {"x": torch.from_numpy(x)}, make_precision(arithmetic), members=20)["y"]
        assert (float(ratio(torch.from_numpy(fused.astype(F)), expected)) <= 1) == is_admitted
        assert float(ratio(torch.from_numpy(16 * fused.astype(F)), expected)) > 1


def test_a_product_need_not_be_rounded_where_it_is_a_term_of_a_sum(ratio: Any) -> None:
    for columns in (1, 2, 16):
        x, gate = np.random.default_rng(columns).standard_normal((2, 40, columns)).astype(F)
        inputs = {"x": torch.from_numpy(x), "gate": torch.from_numpy(gate)}
        expected = evaluate(gated_norm, inputs, CPU, members=20)["y"]
        exact = x.astype(np.float64) * gate
        fused, coarse = (fused_gated_norm(x, gate, one) for one in (exact, exact * (1 + 2.0**-18)))
        assert columns > 1 or np.any(fused)
        assert float(ratio(torch.from_numpy(fused), expected)) <= 1
        assert float(ratio(torch.from_numpy(coarse), expected)) > 2


def test_a_sum_with_a_product_may_have_fewer_dims_than_what_it_is_multiplied_by() -> None:
    def spread(x: torch.Tensor, gate: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        apart = x * gate - 1.0 * (x * gate).mean(-1, keepdim=True)
        return {"product": apart * y, "quotient": apart / y, "other": y * apart}

    x, gate, y = (torch.randn(*shape, generator=torch.Generator().manual_seed(0)) for shape in ((3,), (3,), (2, 5, 3)))
    for name, expected in evaluate(spread, {"x": x, "gate": gate, "y": y}, CPU, members=20).items():
        assert expected.spread.shape == y.shape, name


def gated_norm_gradient(x: torch.Tensor, gate: torch.Tensor, dy: torch.Tensor) -> dict[str, torch.Tensor]:
    x = x.requires_grad_()
    with torch.enable_grad():
        y = gated_norm(x, gate)["y"]
    return {"dx": torch.autograd.grad(y, x, dy)[0]}


def recomputed_gated_norm_gradient(x: Array, gate: Array, dy: Array, product: Array) -> Array:
    """The textbook gradient from the forward's mean and deviation, and from products that are computed again."""
    rounded = x * gate
    mean = rounded.mean(-1, keepdims=True, dtype=F)
    deviation = np.sqrt(np.square(rounded - mean).mean(-1, keepdims=True, dtype=F) + F(1e-5))
    y = (product - mean.astype(np.float64)).astype(F) / deviation
    away = y * (y * dy).mean(-1, keepdims=True, dtype=F) + dy.mean(-1, keepdims=True, dtype=F)
    return (dy - away) / deviation * gate


def test_a_backward_may_compute_products_again_that_the_forward_has_rounded(ratio: Any) -> None:
    """Of rows of two the gradient is next to 0, unless the products are not those of the mean and the deviation."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, gate, dy = (rng.standard_normal((40, 2)).astype(F) for _ in range(3))
        x, gate = x * F(0.1) + F(1), gate * F(0.01) + F(3)
        inputs = {name: torch.from_numpy(a.copy()) for name, a in (("x", x), ("gate", gate), ("dy", dy))}
        expected = evaluate(gated_norm_gradient, inputs, CPU, members=20)["dx"]
        exact = x.astype(np.float64) * gate
        again, coarse = (recomputed_gated_norm_gradient(x, gate, dy, one) for one in (exact, exact * (1 + 2.0**-18)))
        assert float(ratio(torch.from_numpy(again), expected)) <= 1
        assert float(ratio(torch.from_numpy(coarse), expected)) > 1


def cut_off(x: Array) -> Array:
    """float32 numbers without the 13 bits that tf32 has no place for."""
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(F).astype(np.float64)


@pytest.mark.parametrize("members", [20, 80])
@pytest.mark.parametrize(
    ("multiply", "shapes"), [(torch.matmul, ((64, 64), (64, 64))), (torch.conv2d, ((4, 8, 12, 12), (8, 8, 3, 3)))]
)
def test_what_tensor_cores_cut_off_has_one_sign_in_all_elements(
    multiply: Any, shapes: tuple[tuple[int, ...], ...], members: int, ratio: Any
) -> None:
    """Of a sum of absolute products, over which errors of random signs average out."""

    def total_of_product(a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": multiply(a, b).abs().sum()}

    for seed in range(4):
        a, b = (np.random.default_rng(seed + n).standard_normal(shape).astype(F) for n, shape in enumerate(shapes))
        inputs = {"a": torch.from_numpy(a), "b": torch.from_numpy(b)}
        expected = evaluate(total_of_product, inputs, make_precision("libdevice", dot="tf32"), members=members)["y"]
        y = multiply(*(torch.from_numpy(cut_off(operand)) for operand in (a, b))).abs().sum()
        assert float(ratio(y, expected)) <= 0.5
        assert float(ratio(y * (1 + 2.0**-6), expected)) > 2


@pytest.mark.parametrize("steps", [32, 400])
def test_a_loop_that_adds_one_number_loses_the_same_each_time(steps: int, ratio: Any) -> None:
    """Two sums of which one rounds down each time and the other up: their difference is off by a unit for each step."""

    def difference(x: torch.Tensor, added: torch.Tensor) -> dict[str, torch.Tensor]:
        for _ in range(steps):
            x = x + added
        return {"y": x[:, 0] - x[:, 1]}

    x, added = np.full((1, 2), 300, F), (np.array([[5.46875, 5.53125]]) * 2.0**-15).astype(F)
    y = x
    for _ in range(steps):
        y = y + added
    inputs = {"x": torch.from_numpy(x), "added": torch.from_numpy(added)}
    expected = evaluate(difference, inputs, CPU, members=80)["y"]
    honest = torch.from_numpy(y[:, 0] - y[:, 1])
    assert float(ratio(honest, expected)) <= 0.5
    assert float(ratio(honest + steps * 300 * 2.0**-20, expected)) > 1
