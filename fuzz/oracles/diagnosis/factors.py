"""Recognises outputs that are wrong by a constant factor, and names what the factor may come from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from fuzz.oracles.diagnosis.context import DiagnosisContext

CLEAR = 16.0
"""By how many times a value must exceed its bound for its factor to be known."""
NEAR_FACTOR = 1e-3
"""Relative distance within which a factor is taken for a named one; the fit itself is held to the bound."""


def match_negated(context: DiagnosisContext, output: str) -> str:
    """Every element has the other sign."""
    return f"{output} is negated" if context.fits(output, -context.want[output], context.bound[output]) else ""


def match_factor(context: DiagnosisContext, output: str) -> str:
    """All elements are one multiple of the expected values; the multiple by name where it has one.

    Values of one size have a common factor by chance, as those of a normalised row of two, so that alone these tell
    nothing.
    """
    wrong, want, got = context.wrong[output], context.want[output], context.got[output]
    bound = context.bound[output]
    clear = wrong & (want.abs() > CLEAR * bound)
    sizes = want[clear].abs()
    are_enough = bool((sizes != sizes[:1]).any()) or (context.unshrunk and len(sizes))
    if not are_enough or not bool(got[wrong].isfinite().all()):
        return ""
    ratio = float((got[clear] / want[clear]).median())
    near = [(value, describe_factor(output, text)) for value, text in name_factor(ratio, context.dims)]
    factor, sentence = next((each for each in near if each[1] == context.unshrunk), near[0])
    exempt = ~wrong & (want.abs() * abs(factor - 1) > CLEAR * bound)
    fits = (got[wrong] - factor * want[wrong]).abs() <= 2 * bound[wrong] * max(1.0, abs(factor))
    if bool(exempt.any()) or not bool(fits.all()):
        return ""
    return sentence


def describe_factor(output: str, text: str) -> str:
    """The sentence on an output that is wrong by the factor of this text."""
    return f"{output} is {text} times what it should be"


def name_factor(ratio: float, dims: Mapping[str, int]) -> list[tuple[float, str]]:
    """(factor, its text) of the known factors within NEAR_FACTOR, simplest first, then of the number itself."""
    near = [(value, text) for value, text in known_factors(dims) if value and abs(ratio / value - 1) < NEAR_FACTOR]
    return [*near, (ratio, format_factor(ratio))]


def format_factor(ratio: float) -> str:
    """A factor with four digits; one that these would make a 1 by what it is off."""
    text = f"{ratio:.4g}"
    return text if text != "1" else f"(1 {'-' if ratio < 1 else '+'} {abs(ratio - 1):.2g})"


def known_factors(dims: Mapping[str, int]) -> Iterator[tuple[float, str]]:
    """Factors by which common mistakes differ, simplest first."""
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
