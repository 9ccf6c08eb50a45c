"""Launchers with one mistake, or with several, that compile no kernel: what should be y = 2 x and z = 3 x."""

from __future__ import annotations

import ctypes
import time
from itertools import pairwise

import torch

from fuzz import indices, option, prefix_sums, size, target, tensor

N = size("N", 1, 200)
M = size("M", 1, 40)
ROWS, PARTS = size("ROWS", 1, 200), size("PARTS", 1, 9)
DTYPES = ("float32", "bfloat16")


def double(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": x * 2}


def both(x: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": x * 2, "z": x * 3}


def rows(x: torch.Tensor, **_: object) -> dict[str, torch.Tensor]:
    return {"y": x * 2, "total": x.sum(-1)}


def means(x: torch.Tensor, ends: torch.Tensor) -> dict[str, torch.Tensor]:
    """The mean of the rows of each part."""
    bounds = ends.tolist()
    return {"y": torch.stack([x[a:b].sum(0) / max(b - a, 1) for a, b in pairwise(bounds)])}


def chosen_only(x: torch.Tensor, chosen: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"y": torch.where(chosen >= 0, x[chosen.clamp_min(0).long()], 0)}


ONE = {"x": tensor(N), "dtypes": ("float32",), "reference": double}
BOTH = {"x": tensor(N), "dtypes": ("float32",), "reference": both}


# ------------------------------------------------------------------ several causes


@target(**ONE, timeout=1.5)
def four_faults(x):
    """Dies, hangs, fills memory and raises, each for a twentieth to a tenth of the sizes."""
    kind = x.numel() % 20
    if kind in (3, 13):
        ctypes.string_at(0)
    if kind == 5:
        time.sleep(1000)
    if kind == 7:
        raise MemoryError("no memory for the workspace")
    if kind == 11:
        raise RuntimeError(f"no configuration for {x.numel()} elements")
    return {"y": x * 2}


@target(**ONE)
def nan_and_number(x):
    """NaN for numbers above 64; wrong numbers behind element 100."""
    y = torch.where(x.abs() > 64, torch.nan, x * 2)
    y[100:] = x[100:] * 2.5
    return {"y": y}


@target(**ONE)
def nan_and_number_by_chance(x):
    """NaN where the size is a multiple of five, wrong numbers where it is one of three."""
    y = x * 2
    if x.numel() % 5 == 0:
        y[-1] = torch.nan
    elif x.numel() % 3 == 0:
        y[-1] = x[-1] * 2.5
    return {"y": y}


@target(**BOTH)
def always_and_large(x):
    """y is always wrong, z is in cases of more than 64 elements."""
    return {"y": x * 2.01, "z": x * 3 if x.numel() <= 64 else x * 3.5}


@target(**ONE)
def always_and_tail(x):
    """y is always wrong, and 0 behind element 64."""
    y = x * 2.01
    y[64:] = 0
    return {"y": y}


@target(x=tensor(N), flag=option(False, True), dtypes=("float32",), reference=lambda x, flag: double(x))
def always_and_flag(x, flag):
    """y is always wrong, and more so with the flag."""
    return {"y": x * (2.2 if flag else 2.01)}


@target(**BOTH)
def flood_and_rare(x):
    """y is always wrong, z in few sizes only."""
    return {"y": x * 2.01, "z": x * (3.5 if x.numel() in (23, 47, 97, 113) else 3)}


@target(**ONE)
def always_and_nan(x):
    """y is always wrong, and NaN above 64."""
    return {"y": torch.where(x.abs() > 64, torch.nan, x * 2.01)}


@target(**ONE)
def always_and_raises(x):
    """y is always wrong, and cases of more than 150 elements raise."""
    if x.numel() > 150:
        raise RuntimeError("too large")
    return {"y": x * 2.01}


@target(x=tensor(N), flag=option(False, True), dtypes=("float32",), reference=lambda x, flag: both(x))
def always_and_option(x, flag):
    """y is always wrong, z with the flag."""
    return {"y": x * 2.01, "z": x * (3.5 if flag else 3)}


def named_by_option(x: torch.Tensor, each: bool, cap: float) -> dict[str, torch.Tensor]:
    return {"each" if each else "y": x * 2, "z": x * 3}


@target(
    x=tensor(N), each=option(False, True), cap=option(0.0, 2.0), dtypes=("float32",), reference=named_by_option
)  # fmt: skip
def output_of_an_option(x, each, cap):
    """With an option z is wrong, and with a cap the output that it alone gives."""
    first = {"each": x * (2.01 if cap else 2)} if each else {"y": x * 2}
    return first | {"z": x * (3.5 if each and not cap else 3)}


@target(x=tensor(N), flag=option(False, True), dtypes=("float32",), reference=lambda x, flag: both(x))
def three(x, flag):
    """y overwritten with the flag, z NaN for large numbers, y wrong in large cases."""
    y, z = x * 2, torch.where(x.abs() > 64, torch.nan, x * 3)
    if flag:
        y = y + 1
    if x.numel() > 64:
        z = z * 1.5
    return {"y": y, "z": z}


@target(x=tensor(N), dtypes=("float32",), reference=double)
def two_raises(x):
    """Raises the same type at two lines."""
    if x.numel() % 3 == 0:
        raise RuntimeError("first")
    if x.numel() % 7 == 0:
        raise RuntimeError("second")
    return {"y": x * 2}


@target(x=tensor(N), dtypes=("float32", "float16"), reference=double)
def always_and_nan_in_half_precision(x):
    """y is always wrong, and NaN for ordinary numbers above 64 in float16."""
    y = x * 2.2
    return {"y": torch.where(x.abs() > 64, torch.nan, y) if x.dtype == torch.float16 else y}


@target(x=tensor(N), dtypes=("float32",), reference=double)
def always_and_early_overflow(x):
    """y is always wrong, and NaN for numbers above 2^120, of which the double is far from the largest one."""
    return {"y": torch.where(x.abs() > 2.0**120, torch.nan, x * 2.01)}


@target(x=tensor(N), w=tensor(N), flag=option(False, True), dtypes=("float32",), reference=lambda x, w, flag: double(x))
def writes_and_returns_an_input(x, w, flag):
    """w is overwritten without the flag, and x is returned with it."""
    if flag:
        return {"y": x.mul_(2) if x.is_contiguous() else x * 2}
    w += 1
    return {"y": x * 2}


# ------------------------------------------------------------------ one cause


@target(x=tensor(N), dtypes=DTYPES, reference=both)
def factor(x):
    """Both outputs, always."""
    return {"y": x * 2.1, "z": x * 3.1}


@target(x=tensor(N), dtypes=DTYPES, reference=double)
def missing_term(x):
    """The error is large beside the result where that nearly vanishes."""
    return {"y": x * 2 + 1}


@target(x=tensor(M, N), dtypes=DTYPES, reference=rows)
def grows(x):
    """The sum is wrong by an error that grows with the size."""
    return {"y": x * 2, "total": x.contiguous().sum(-1) + x.shape[1] / 100}


@target(x=tensor(N), dtypes=DTYPES, reference=both)
def overflow(x):
    """Both outputs, for large numbers."""
    large = x.abs() > 100
    return {"y": torch.where(large, torch.inf, x * 2), "z": torch.where(large, 0 * x, x * 3)}


@target(x=tensor(N), dtypes=DTYPES, reference=double)
def tail(x):
    """The elements behind the last whole block of 64."""
    y = x * 2
    y[x.numel() // 64 * 64 :] = 0
    return {"y": y}


@target(x=tensor(M, N), dtypes=DTYPES, reference=rows)
def columns(x):
    """The columns from 64 on, in both outputs."""
    y, total = x * 2, x.contiguous().sum(-1)
    if x.shape[1] > 64:
        y[:, 64:] = 0
        total = x[:, :64].contiguous().sum(-1)
    return {"y": y, "total": total}


@target(x=tensor(M, N), dtypes=DTYPES, reference=rows)
def strides(x):
    """Both outputs, where the matrix is not contiguous."""
    factor = 1.0 if x.is_contiguous() else 1.5
    return {"y": factor * x * 2, "total": factor * x.contiguous().sum(-1)}


@target(x=tensor(N), dtypes=DTYPES, reference=double)
def rounds(x):
    """Computes in bfloat16."""
    return {"y": (x.bfloat16() * 2).to(x.dtype)}


@target(x=tensor(N), flag=option(False, True), dtypes=DTYPES, reference=lambda x, flag: both(x))
def with_option(x, flag):
    """Both outputs, with the flag."""
    return {"y": x * 2 + flag, "z": x * 3 + flag * x}


@target(x=tensor(N), dtypes=DTYPES, reference=double)
def negative(x):
    """The sign of what is negative."""
    return {"y": x.abs() * 2}


@target(x=tensor(N), dtypes=DTYPES, reference=double)
def raises(x):
    """Raises with a message of its own for each case."""
    if x.numel() > 40 and float(x.abs().max()) > 1:
        raise RuntimeError(f"{x.numel()} elements up to {float(x.abs().max())}")
    return {"y": x * 2}


@target(x=tensor(N), dtypes=DTYPES, reference=double)
def odd_sizes(x):
    """The last element of every odd size."""
    y = x * 2
    if x.numel() % 2:
        y[-1] = 3 * x[-1] + 1
    return {"y": y}


@target(x=tensor(N), dtypes=("float32",), reference=double)
def raises_and_wrong_by_size(x):
    """Some sizes raise, others have a wrong last element: each mistake is gone at the other's sizes."""
    y = x * 2
    if x.numel() % 16 == 6:
        raise RuntimeError("no such size")
    if x.numel() % 16 == 5:
        y[-1] += 1 + y[-1].abs()
    return {"y": y}


@target(x=tensor(N), dtypes=("float32", "float16"), reference=double)
def overflows_in_half_precision(x):
    """Both what it computes and what it should leave the range of float16, in other elements; not that of float32."""
    return {"y": torch.where(x.abs() < 1e30, x * 16 + 1, x * 2)}


@target(x=tensor(N), w=tensor(N), dtypes=("float32",), reference=lambda x, w: {"y": x * w})
def forgotten_factor(x, w):
    """Ten thousand instead of w: where x is large that overflows."""
    return {"y": x * 1e4}


@target(x=tensor(N), r=tensor(N), dtypes=("float32",), reference=lambda x, r: {"y": x + r})
def adds_into_an_input(x, r):
    """The sum is written into what r.contiguous() gives, and returned: r itself where it is contiguous."""
    total = r.contiguous()
    return {"y": total.add_(x)}


@target(x=tensor(ROWS, N), ends=prefix_sums(PARTS + 1, total=ROWS), dims=(PARTS,), dtypes=("float32",), reference=means)
def row_of_a_part(x, ends):
    """The last row of a part that is one row longer than whole blocks of 8."""
    bounds = ends.tolist()
    kept = [x[a : b - (b - a > 1 and (b - a) % 8 == 1)] for a, b in pairwise(bounds)]
    sums = [rows.contiguous().sum(0) / max(b - a, 1) for rows, (a, b) in zip(kept, pairwise(bounds), strict=True)]
    return {"y": torch.stack(sums)}


@target(x=tensor(M, N), dtypes=DTYPES, reference=rows)
def last_column(x):
    """The last column, in both outputs, where a row is longer than a block of 64."""
    y, total = x * 2, x.contiguous().sum(-1)
    if x.shape[1] > 64:
        y[:, -1] = 0
        total = x[:, :-1].contiguous().sum(-1)
    return {"y": y, "total": total}


@target(x=tensor(N), chosen=indices(N, below=N, sentinel=-1), dtypes=("float32",), reference=chosen_only)
def sentinel(x, chosen):
    """Of an index that is the sentinel a number is read all the same; NaN where all of them are."""
    y = x[chosen.clamp_min(0)] if chosen.max() >= 0 else x * torch.nan
    return {"y": y}


@target(x=tensor(M, N), dtypes=("float32",), layout="bitwise", batch=M, reference=lambda x: {"y": x / 3})
def rounds_where_strided(x):
    """The promised bits, unless it is given strides."""
    return {"y": x / 3 if x.is_contiguous() else x * torch.tensor(1 / 3)}
