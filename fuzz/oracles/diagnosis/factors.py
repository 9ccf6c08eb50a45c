"""A constant factor, and what it may come from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from fuzz.oracles.diagnosis.context import DiagnosisContext

CLEAR = 16.0
"""How many times larger than its bound a value must be to tell a factor from it."""
NEAR = 1e-3
"""Relative distance within which a factor is taken for a named one; the fit itself is held to the bound."""


def negated(seen: DiagnosisContext, output: str) -> str:
    """Every element has the other sign."""
    return f"{output} is negated" if seen.fits(output, -seen.want[output], seen.bound[output]) else ""


def scaled(seen: DiagnosisContext, output: str) -> str:
    """Everything is the same multiple of what is due, where that can be told; its name where there is one."""
    wrong, want, got = seen.wrong[output], seen.want[output], seen.got[output]
    bound = seen.bound[output]
    clear = wrong & (want.abs() > CLEAR * bound)
    if int(clear.sum()) < 2 or not bool(got[wrong].isfinite().all()):
        return ""
    ratio = float((got[clear] / want[clear]).median())
    factor, text = named(ratio, seen.dims)
    exempt = ~wrong & (want.abs() * abs(factor - 1) > CLEAR * bound)
    fits = (got[wrong] - factor * want[wrong]).abs() <= 2 * bound[wrong] * max(1.0, abs(factor))
    if bool(exempt.any()) or not bool(fits.all()):
        return ""
    return f"{output} is {text} times what it should be"


def named(ratio: float, dims: Mapping[str, int]) -> tuple[float, str]:
    """(the factor, its text): one that is known where it is near enough, else the number itself."""
    for value, text in candidates(dims):
        if value and abs(ratio / value - 1) < NEAR:
            return value, text
    return ratio, f"{ratio:.4g}"


def candidates(dims: Mapping[str, int]) -> Iterator[tuple[float, str]]:
    """Factors that mistakes are made of, simplest first."""
    yield from ((2.0, "2"), (0.5, "1/2"), (-2.0, "-2"), (-0.5, "-1/2"))
    for name, size in dims.items():
        padded = 1 << max(size - 1, 0).bit_length()
        if size > 1:
            yield size / (size - 1), f"{name}/({name}-1)"
            yield (size - 1) / size, f"({name}-1)/{name}"
            yield float(size), name
            yield 1 / size, f"1/{name}"
            yield math.sqrt(size), f"sqrt({name})"
            yield 1 / math.sqrt(size), f"1/sqrt({name})"
        if padded != size and size:
            yield size / padded, f"{name}/next_pow2({name})"
            yield padded / size, f"next_pow2({name})/{name}"
    yield from ((math.log(2), "ln 2"), (1 / math.log(2), "1/ln 2"), (math.pi, "pi"), (math.sqrt(2), "sqrt(2)"))
    yield 1 / math.sqrt(2), "1/sqrt(2)"
