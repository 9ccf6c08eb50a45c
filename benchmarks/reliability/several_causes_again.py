"""Six more launchers with several mistakes each: docs/reliability.md says what was found."""

import ctypes

import torch
import triton
import triton.language as tl

from fuzz import option, size, target, tensor

M, N = size("M", 1, 64), size("N", 1, 256)
ROW = dict(x=tensor(N), dtypes=("float32",))


@triton.jit
def exponentials(x, y, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    e = tl.exp(tl.load(x + r * n + at, mask=at < n, other=-float("inf")))
    tl.store(y + r * n + at, e / tl.sum(e, 0), mask=at < n)


@target(x=tensor(M, N), dtypes=("float32",), reference=lambda x: dict(y=torch.softmax(x, -1)))
def softmax_without_maximum(x):
    """Not a number where a value is large, as no maximum is subtracted; a last column of an odd width is doubled."""
    m, n = x.shape
    y = torch.empty(m, n)
    exponentials[(m,)](x.contiguous(), y, n, BLOCK=triton.next_power_of_2(n))
    if n > 1 and n % 2:
        y[:, -1] *= 2
    return dict(y=y)


@target(x=tensor(M, N), dtypes=("float32", "float16"), reference=lambda x: dict(y=x * 2))
def factor_and_columns(x):
    """Three times too large always; the columns from 100 on have the wrong sign, and are not too large."""
    y = x * 6
    y[:, 100:] = x[:, 100:] * -2
    return dict(y=y)


SEEN: dict[int, torch.Tensor] = {}


@target(**ROW, reference=lambda x: dict(y=x.cumsum(0)))
def keeps_by_size(x):
    """Returns what it returned for the size at first; raises at a size of 13, and of 26."""
    n = x.numel()
    if n % 13 == 0 and n < 30:
        raise RuntimeError(f"no plan for {n}")
    if n not in SEEN:
        SEEN[n] = x.cumsum(0)
    return dict(y=SEEN[n].clone())


CALLS = [0]


@target(**ROW, reference=lambda x: dict(y=x + 1, z=x * x))
def fifth_call(x):
    """In every fifth call `z` is zero; `y` is too large by one in its first element at multiples of 7."""
    CALLS[0] += 1
    y, z = x + 1, x * x
    if CALLS[0] % 5 == 0:
        z = torch.zeros_like(z)
    if x.numel() % 7 == 0:
        y[0] += 1
    return dict(y=y, z=z)


@target(
    **ROW,
    how=option("sum", "mean"),
    reference=lambda x, how: dict(y=(x.sum(0) if how == "sum" else x.mean(0)).reshape(1)),
)
def sum_or_mean(x, how):
    """The mean is divided by one less; the sum leaves out what is behind 64 elements, and what is negative above 8."""
    kept = torch.where(x < -8, 0, x)
    if how == "mean":
        return dict(y=(kept.sum(0) / max(x.numel() - 1, 1)).reshape(1))
    return dict(y=kept[:64].sum(0).reshape(1))


@target(**ROW, reference=lambda x: dict(y=x.abs()))
def five_by_size(x):
    """Segfaults, raises at two lines, writes over its input, and is wrong at zero, by sizes but for the last."""
    n = x.numel()
    if n % 9 == 4:
        ctypes.string_at(0)
    if n % 11 == 3:
        raise IndexError("list index out of range")
    if n % 17 == 5:
        raise IndexError("list index out of range")
    y = x.abs()
    if n > 100:
        x[-1] = 0
    return dict(y=torch.where(y == 0, 1.0, y))
