"""Computes how far sums in float32 are from the exact ones, by adding the terms up in orders that kernels use.

Each addition's rounding is exact in float64. Results are either `error_magnitudes`, how far a sum may be off in
any order, or `signed_errors`, what it loses in each of `ORDERS` orders, with its sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from fuzz.reference.envelope.noise_loops import measure_sum_errors

__all__ = [
    *("LARGEST", "LARGEST_MATMUL", "LARGEST_SCATTER", "ORDERS", "Measure"),
    *("rounding_steps", "scatter_steps", "sequential_steps", "tree_steps"),
    *("signed_errors", "matmul_errors", "scan_errors", "scatter_errors", "sum_errors", "error_magnitudes"),
    *("product_errors", "product_steps", "running_product_errors"),
]

LARGEST: Final = 1 << 22
"""Terms of all sums of one operation up to which they are added up."""
LARGEST_MATMUL: Final = 1 << 21
"""Terms of all sums of one product of matrices up to which they are added up."""
LARGEST_SCATTER: Final = 1 << 18
"""Terms at all places of one scatter, with what they are added to, up to which they are sorted and added up."""
TERMS_AT_ONCE: Final = 1 << 16
"""Terms of sums that are added up together: what fits the cache."""
FEW: Final = 1 << 12
"""Terms of sums up to which the orders are added up together: what that takes are calls, not additions."""
WIDE: Final = 128
"""Sums from which on one term of all of them is added at a time, instead of all terms of one sum."""
ORDERS: Final = 3
"""How many orders terms are added up in: from the first on, from the last on, in a tree."""
DEVIATIONS: Final = 1.5
"""How many deviations of a walk of such roundings count: at a safety of 4 these are six."""
Array = np.ndarray[Any, np.dtype[Any]]
Orders = Callable[[Array], Iterator[Array]]
"""What each step of combining columns (n, sums) loses, in one order after another."""
Measure = Callable[[list[Array], bool], Array]
"""`error_magnitudes` or `signed_errors` of (what each addition loses, by order; whether of each prefix).

The result is (kinds, [prefixes, ]sums).
"""


def rounding_steps(n: float) -> float:
    """Roundings, in units of u times the sum of absolute terms, that a sum of n terms may accumulate; none for n <= 1.

    A tree makes log2(n) roundings. A kernel that loops over blocks makes up to about 4*sqrt(n) sequential ones, and on
    *equal* terms they share a sign and do not average out: with log2(n) alone, a group norm of constant rows exceeded
    the bound 3.3 times. Added one after another, as atomics do, n equal terms err by up to n/2 roundings of their sum
    in the worst case, which n/8 covers at a safety of 4.
    """
    return math.log2(n + 1) + max(math.sqrt(n), n / 8) if n > 1 else 0.0


def sequential_steps(n: Tensor) -> Tensor:
    """The same, element by element, for n terms added one after another (atomics, index_add): n/2 for equal terms.

    The i-th of n equal additions rounds a partial sum i/n of the whole: n/2 in total, if all have one sign.
    """
    return torch.where(n > 1, torch.log2(n + 1) + n / 2, torch.zeros_like(n))


def tree_steps(n: float) -> float:
    """Roundings, in units of u times the sum of absolute terms, that any sum of n terms may make: a tree's are random.

    What a tree or a loop does with terms whose roundings share a sign is computed from these terms.
    """
    return 1 + math.log2(n + 1) / 4 if n > 1 else 0.0


def scatter_steps(n: Tensor) -> Tensor:
    """The same, element by element."""
    return torch.where(n > 1, 1 + torch.log2(n + 1) / 4, torch.zeros_like(n))


def product_steps(n: Tensor) -> Tensor:
    """Roundings of relative size u that a product of n factors may be off by: each counts, and they are random.

    Six deviations of a walk are 3.5*sqrt(n), which is less at a safety of 4. What roundings that share a sign do, as of
    equal factors, is computed from these factors.
    """
    return torch.minimum((n - 1).clamp(min=0), 1 + n.sqrt())


def error_magnitudes(lost: list[Array], prefixes: bool) -> Array:
    """How far each sum may be off in any order, one kind.

    It is the size of the sum of the roundings, which is systematic where terms are equal, plus `DEVIATIONS` times the
    root of the sum of their squares, since in another order it is another walk.
    """
    add, (terms, sums) = _accumulate if prefixes else _total, lost[0].shape
    together, walks = len(lost) if terms * sums <= FEW else 1, []
    for some in (lost[start : start + together] for start in range(0, len(lost), together)):
        added = add(np.concatenate([*some, *map(np.square, some)], 1))
        added = added.reshape(*added.shape[:-1], 2, len(some), sums)
        walks.append(np.abs(added[..., 0, :, :]) + DEVIATIONS * np.sqrt(added[..., 1, :, :]))
    sum_error: Array = np.max(np.concatenate(walks, -2), axis=-2)[None]
    return sum_error


def signed_errors(lost: list[Array], prefixes: bool) -> Array:
    """What each sum loses, with its sign, a kind an order; of a scan always the same."""
    lost = lost * (ORDERS // len(lost))
    return np.stack([_accumulate(one) if prefixes else _total(one) for one in lost])


def sum_errors(terms: Tensor, dims: list[int], measure: Measure) -> Tensor:
    """(kinds, *shape) of the sum of terms over dims, which are kept with 1."""
    return _over_dims(terms, dims, _orders, measure)


def _over_dims(terms: Tensor, dims: list[int], orders: Orders, measure: Measure) -> Tensor:
    """The same of what is combined in given orders."""
    kept = [d for d in range(terms.dim()) if d not in dims]
    size, shape = math.prod(terms.shape[d] for d in dims), [terms.shape[d] for d in kept]
    found = _measure(terms.permute(*dims, *kept).reshape(size, *shape), orders, measure)
    return found.reshape(-1, *(1 if d in dims else n for d, n in enumerate(terms.shape)))


def scan_errors(terms: Tensor, dim: int, measure: Measure) -> Tensor:
    """(kinds, *shape) of the prefixes of terms along dim, added up in sequence."""
    return _prefix_errors(terms, dim, lambda columns: iter([_lost_in_sequence(columns)]), measure)


def _prefix_errors(terms: Tensor, dim: int, orders: Orders, measure: Measure) -> Tensor:
    """The same of prefixes that are combined in a given order."""
    found = _measure(terms.movedim(dim, 0), orders, measure, True)
    # The first prefix is one term, and the only one of a scan of one.
    first = found.new_zeros(len(found), 1, *found.shape[2:])
    return torch.cat([first, found], 1).movedim(1, dim + 1)


def matmul_errors(a: Tensor, b: Tensor, measure: Measure) -> Tensor:
    """(kinds, .., M, N) of the product of matrices (.., M, K) and (.., K, N), some rows of the first at a time."""
    columns = b.movedim(-2, 0).unsqueeze(-2)
    parts = torch.split(a, max(1, TERMS_AT_ONCE // columns.numel()), -2)
    measured = [_measure(part.movedim(-1, 0).unsqueeze(-1) * columns, _orders, measure) for part in parts]
    return torch.cat(measured, -2)


def product_errors(factors: Tensor, dims: list[int], measure: Measure) -> Tensor:
    """(kinds, *shape) of the product of factors over dims, which are kept with 1, relative to the product."""
    return _over_dims(factors, dims, _product_orders, measure)


def running_product_errors(factors: Tensor, dim: int, measure: Measure) -> Tensor:
    """(kinds, *shape) of the products of the first factors along dim, relative to them."""
    return _prefix_errors(factors, dim, lambda columns: iter([_lost_in_running_product(columns)]), measure)


def scatter_errors(terms: Tensor, places: Tensor, size: int, measure: Measure) -> Tensor:
    """(kinds, replicas, size) of the sums of those terms (replicas, n) that have the same place in 0..size-1.

    Atomics add them in any order: `error_magnitudes` takes them as they are, at random, and by value, up and down.
    """
    replicas, count = terms.shape
    # A reference may cast to another format, and what sums of its terms are off by is measured in float64 all the same.
    terms = terms.double()
    places = places + size * torch.arange(replicas, device=places.device).unsqueeze(1)
    found = _scattered(terms.reshape(-1), places.reshape(-1), replicas * size, measure)
    if measure is error_magnitudes:
        order = torch.randperm(count, generator=torch.Generator().manual_seed(count)).to(terms.device)
        mixed = terms[:, order].reshape(-1), places[:, order].reshape(-1)
        order = terms.reshape(-1).argsort()
        by_value = terms.reshape(-1)[order], places.reshape(-1)[order]
        for some in (mixed, by_value):
            found = torch.maximum(found, _scattered(*some, replicas * size, measure))
        # Sums that no order of these rounds are exact.
        found = torch.where(found > 0, torch.maximum(found, _repeated_errors(*by_value, replicas * size)), found)
    return found.view(-1, replicas, size)


def _repeated_errors(terms: Tensor, places: Tensor, size: int) -> Tensor:
    """How far sums (size) of terms, which ascend, may be off because equal terms may all round to one side.

    In which order they do is a matter of where they come: 2000 times 0.3 and then 2000 times 0.7 loses three times
    what the same does in turns. r equal terms lose up to r half units of the sum, and those of several values as a walk
    does, so r*(r - 1) are added up: nothing where all terms differ, and, doubled by the rule and at a safety of 4, all
    that terms of up to four values may lose in any order where each has as many.
    """
    # Nothing rounds where a term is not finite: the others tell no error of that sum.
    kept = (terms != 0) & torch.isfinite(terms)
    terms, places = terms[kept], places[kept]
    places, order = places.sort(stable=True)
    terms = terms[order]
    rounded = terms.float()
    begins = torch.ones_like(places, dtype=torch.bool)
    begins[1:] = (places[1:] != places[:-1]) | (rounded[1:] != rounded[:-1])
    repeats = torch.bincount(begins.cumsum(0) - 1)
    pairs = terms.new_zeros(size).index_add_(0, places[begins], (repeats * (repeats - 1)).double())
    return 2.0**-26 * pairs.sqrt() * terms.new_zeros(size).index_add_(0, places, terms.abs())


def _scattered(terms: Tensor, places: Tensor, size: int, measure: Measure) -> Tensor:
    """(kinds, size) of the sums of terms by place, those of about as many terms together, filled up with zeros."""
    places, order = places.sort(stable=True)
    terms = terms[order]
    counts = torch.bincount(places, minlength=size)
    number = torch.arange(len(terms), device=terms.device) - (counts.cumsum(0) - counts)[places]
    groups = torch.frexp((counts - 1).double())[1]  # Those of 2, of 3 and 4, of 5 to 8, ..
    found = terms.new_zeros(1 if measure is error_magnitudes else ORDERS, size)
    column = torch.zeros_like(counts)
    for group in torch.unique(groups[counts > 1]).tolist():
        sums = torch.nonzero(groups == group).squeeze(1)
        sums = sums[counts[sums] > 1]
        column[sums] = torch.arange(len(sums), device=sums.device)
        chosen = (groups == group)[places] & (counts > 1)[places]
        columns = terms.new_zeros(1 << group, len(sums))
        columns[number[chosen], column[places[chosen]]] = terms[chosen]
        found[:, sums] = sum_errors(columns, [0], measure).squeeze(1)
    return found


@np.errstate(over="ignore", invalid="ignore")
def _measure(terms: Tensor, orders: Orders, measure: Measure, prefixes: bool = False) -> Tensor:
    """(kinds, *shape) of the sums of terms (size, *shape), or with `prefixes` (kinds, size - 1, *shape)."""
    device, terms = terms.device, terms.detach().cpu()
    if measure is error_magnitudes and orders is _orders:
        by_loop = measure_sum_errors(terms, DEVIATIONS)
        if by_loop is not None:
            return by_loop[None].to(device)
    flat = terms.reshape(len(terms), math.prod(terms.shape[1:]))
    # What is added at once lies side by side: one term of all sums, or all terms of one.
    is_wide, plain = flat.shape[1] >= WIDE, torch.contiguous_format
    rows = (flat if is_wide else flat.T).to(torch.float32, memory_format=plain).numpy()
    columns: Array = rows if is_wide else rows.T
    width = max(WIDE, TERMS_AT_ONCE // max(len(columns), 1))
    parts = [columns[:, start : start + width] for start in range(0, max(columns.shape[1], 1), width)]
    found = np.concatenate([measure(list(orders(part)), prefixes) for part in parts], -1)
    return torch.from_numpy(found).to(device).reshape(*found.shape[:-1], *terms.shape[1:])


def _orders(columns: Array) -> Iterator[Array]:
    """What each addition loses, by order: from the first term on, from the last, in a tree."""
    yield _lost_in_sequence(columns)
    yield _lost_in_sequence(columns[::-1])
    yield _lost_in_tree(columns)


def _product_orders(columns: Array) -> Iterator[Array]:
    """What each multiplication loses of its product, by order: as above."""
    yield _lost_in_running_product(columns)
    yield _lost_in_running_product(columns[::-1])
    yield _lost_in_product_tree(columns)


def _lost_in_running_product(columns: Array) -> Array:
    """(n - 1, products)."""
    products: Array = np.multiply.accumulate(columns, axis=0)
    return _finite(_lost_of_product(products[1:], products[:-1], columns[1:]))


def _lost_in_product_tree(columns: Array) -> Array:
    """(n - 1, products): the first half is multiplied with the second, again and again."""
    lost: list[Array] = [np.zeros((0, columns.shape[1]))]
    while len(columns) > 1:
        half = len(columns) // 2
        left, right = columns[:half], columns[half : 2 * half]
        products = left * right
        lost.append(_lost_of_product(products, left, right))
        columns = np.concatenate([products, columns[2 * half :]])
    return _finite(np.concatenate(lost))


def _lost_of_product(products: Array, left: Array, right: Array) -> Array:
    """The products less left * right, which float64 holds, as a part of that; none of a 0."""
    exact = left.astype(np.float64) * right
    return np.divide(products - exact, exact, out=np.zeros_like(exact), where=exact != 0)


def _lost_in_sequence(columns: Array) -> Array:
    """(n - 1, sums)."""
    sums = _accumulate(columns)
    return _finite(_lost(sums[1:], sums[:-1], columns[1:]))


def _lost_in_tree(columns: Array) -> Array:
    """(n - 1, sums): the first half is added to the second, again and again."""
    lost, start = np.zeros_like(columns[1:], np.float64), 0
    while len(columns) > 1:
        half = (len(columns) + 1) // 2
        left, right = columns[:half], columns[half:]
        columns = left.copy(order="K")
        columns[: len(right)] += right
        lost[start : start + len(right)] = _lost(columns[: len(right)], left[: len(right)], right)
        start += len(right)
    return _finite(lost)


def _accumulate(terms: Array) -> Array:
    """The prefixes of terms (n, sums), added up in their dtype from the first on."""
    sums: Array = np.empty_like(terms)
    if terms.shape[1] < WIDE:
        return np.add.accumulate(terms, axis=0, out=sums)
    sums[:1] = terms[:1]
    for number in range(1, len(terms)):
        np.add(sums[number - 1], terms[number], out=sums[number])
    return sums


def _total(terms: Array) -> Array:
    """The sums of terms (n, sums), (sums): the same bits however many sums there are."""
    while len(terms) > 1:
        half = len(terms) // 2
        folded = terms[: len(terms) - half].copy(order="K")
        folded[:half] += terms[len(terms) - half :]
        terms = folded
    return terms[0] if len(terms) else np.zeros(terms.shape[1])


def _lost(sums: Array, left: Array, right: Array) -> Array:
    """The sums less left + right, which float64 holds."""
    exact = left.astype(np.float64)
    exact += right
    return np.subtract(sums, exact, out=exact)


def _finite(lost: Array) -> Array:
    """The losses, 0 where a sum overflows; changed in place, and only where one total shows that there is one."""
    return lost if np.isfinite(lost.sum()) else np.nan_to_num(lost, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
