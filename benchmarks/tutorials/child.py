"""Runs one tutorial of Triton on the cpu backend, and prints a line of JSON with what its comparisons gave.

The tutorial's text is run as it is. Around it, for a machine without a GPU:

- `x_vals` of its measurements are cut to the first `points`, and a measurement calls what it measures once;
- tests and products that need more than `work` multiplications are left out: of pytest's parameters in 06, and of
  the sizes that 09 validates;
- the layer norm of PyTorch that 05 compares with is computed in float64, since that of the CPU adds up gradients of
  float16 in float16.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import triton

OUTCOME = "outcome of the tutorial: "
DIFFERENCE = re.compile(r"maximum difference between torch and triton is (\S+)")
"""01 and 07 print it of values up to 2, and leave it to the reader to judge."""
TOLERANCE = 1e-6
Compare = Callable[..., Any]


class Comparisons:
    """Counts what `torch.allclose` and `torch.testing.assert_close` were called for, and what they found."""

    def __init__(self) -> None:
        self.right = self.wrong = 0

    def counted(self, compare: Compare) -> Compare:
        def call(actual: torch.Tensor, expected: torch.Tensor, *args: Any, **options: Any) -> Any:
            try:
                is_right = compare(actual, expected, *args, **options)
            except AssertionError:
                self.wrong += 1
                raise
            self.wrong += is_right is False
            self.right += is_right is not False
            return is_right

        return call


class Printed(io.StringIO):
    """What a tutorial prints, which goes to standard error as well."""

    def write(self, text: str) -> int:
        sys.stderr.write(text)
        return super().write(text)


def double_layer_norm(x: torch.Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """PyTorch's layer norm, forward and backward, with float64 inside."""
    parameters = [None if value is None else value.double() for value in (weight, bias)]
    return layer_norm(x.double(), shape, *parameters, eps).to(x.dtype)


layer_norm = torch.nn.functional.layer_norm


def once(call: Callable[[], Any], *_: Any, quantiles: list[float] | None = None, **__: Any) -> Any:
    """In place of Triton's `do_bench`: milliseconds of one call, for every quantile asked."""
    start = time.perf_counter()
    call()
    took = 1e3 * (time.perf_counter() - start)
    return took if quantiles is None else [took] * len(quantiles)


class Small:
    """A plugin of pytest that leaves out the cases of more than `work` multiplications."""

    def __init__(self, work: float) -> None:
        self.work = work
        self.left_out = 0

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        kept = [item for item in items if self.products(item.callspec.params) <= self.work]
        self.left_out = len(items) - len(kept)
        items[:] = kept

    @staticmethod
    def products(sizes: dict[str, Any]) -> float:
        return 2.0 * sizes["Z"] * sizes["H"] * sizes["N_CTX"] ** 2 * sizes["HEAD_DIM"]


def attention(file: Path, work: float) -> str:
    plugin = Small(work)
    code = pytest.main(["-q", "-p", "no:cacheprovider", "--tb=short", str(file)], plugins=[plugin])
    if code != 0:
        raise AssertionError(f"pytest ended with {code!r}")
    return f"{plugin.left_out} larger cases left out" if plugin.left_out else ""


def persistent(file: Path, work: float) -> str:
    """What 09 validates, but for what it measures a GPU with."""
    module = runpy.run_path(str(file), run_name="tutorial")
    torch.manual_seed(0)
    side = 8192
    while side * side * 512 > work:
        side //= 2
    for dtype in (torch.float16, torch.float8_e4m3fn):
        module["validate"](32, 32, 32, dtype)
        module["validate"](side, side, 512, dtype)
    return "" if side == 8192 else f"validated at {side} x {side} for 8192 x 8192"


def whole(file: Path, work: float) -> str:
    runpy.run_path(str(file), run_name="__main__")
    return ""


HOW = {"06": attention, "09": persistent}
"""Of the others the whole file is run."""


@contextmanager
def shortened(points: int, comparisons: Comparisons) -> Iterator[None]:
    """`points` 0 leaves measurements as they are."""
    measure = triton.testing.Mark._run

    def measure_few(self: Any, bench: Any, *args: Any, **options: Any) -> Any:
        bench.x_vals = list(bench.x_vals)[: points or None]
        return measure(self, bench, *args, **options)

    with (
        mock.patch.object(triton.testing.Mark, "_run", measure_few),
        mock.patch.object(triton.testing, "do_bench", once if points else triton.testing.do_bench),
        mock.patch.object(triton.testing, "do_bench_cudagraph", once),
        mock.patch.object(torch, "allclose", comparisons.counted(torch.allclose)),
        mock.patch.object(torch.testing, "assert_close", comparisons.counted(torch.testing.assert_close)),
        mock.patch.object(torch.nn.functional, "layer_norm", double_layer_norm),
    ):
        yield


def outcome(file: Path, points: int, work: float) -> dict[str, Any]:
    """How the tutorial ended, its comparisons, and what was left out of it."""
    comparisons, error, left_out = Comparisons(), "", ""
    sys.path.insert(0, str(file.parent))
    start = time.monotonic()
    with shortened(points, comparisons), redirect_stdout(Printed()) as printed:
        try:
            left_out = HOW.get(file.name[:2], whole)(file, work)
        except Exception as raised:
            error = f"{type(raised).__name__}: {' '.join(str(raised).split())[:300]}"
    seconds = round(time.monotonic() - start, 1)
    for difference in DIFFERENCE.findall(printed.getvalue()):
        is_right = float(difference) <= TOLERANCE
        comparisons.right += is_right
        comparisons.wrong += not is_right
    found = {"right": comparisons.right, "wrong": comparisons.wrong}
    return {"tutorial": file.stem, "error": error, **found, "left out": left_out, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--points", type=int, default=1)
    parser.add_argument("--work", type=float, default=math.inf)
    options = parser.parse_args()
    print(OUTCOME + json.dumps(outcome(options.file.resolve(), options.points, options.work)))


if __name__ == "__main__":
    main()
