"""Diagnosis: what is wrong, in words, recognised from all outputs of a case. Add yours to the list."""

from fuzz.oracles.diagnosis.bit_patterns import truncated, unwritten, zero
from fuzz.oracles.diagnosis.context import DiagnosisContext, Pattern, make_context
from fuzz.oracles.diagnosis.factors import negated, scaled
from fuzz.oracles.diagnosis.misplaced import stale, swapped, transposed
from fuzz.oracles.diagnosis.regions import columns_or_rows, region

PATTERNS: tuple[Pattern, ...] = (
    swapped,
    transposed,
    negated,
    unwritten,
    stale,
    zero,
    truncated,
    scaled,
    region,
    columns_or_rows,
)
"""In the order in which they are tried; the first one that fits an output speaks for it."""

LASTING: tuple[Pattern, ...] = (unwritten, zero)
"""Those that hold in every case of a cause, whatever its size."""

__all__ = ["PATTERNS", "Pattern", "DiagnosisContext", "diagnose", "make_context"]


def diagnose(seen: DiagnosisContext, least: DiagnosisContext) -> tuple[str, ...]:
    """One sentence for each wrong output that fits a pattern, each sentence once.

    Patterns are clearer in a case that is not shrunk; in the least one of its cause those hold that must.
    """
    found = []
    for output in seen.wrong:
        holding = (one for one in PATTERNS if one not in LASTING or output not in least.wrong or one(least, output))
        sentence = next((text for pattern in holding if (text := pattern(seen, output))), "")
        found += [sentence] if sentence else []
    return tuple(dict.fromkeys(found))
