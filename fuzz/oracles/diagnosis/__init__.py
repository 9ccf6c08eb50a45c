"""Describes in words what is wrong, by patterns in all outputs of a case. A new pattern is a line in PATTERNS."""

from dataclasses import replace
from itertools import islice

from fuzz.oracles.diagnosis.bit_patterns import match_narrow, match_truncated, match_unwritten, match_zero
from fuzz.oracles.diagnosis.context import DiagnosisContext, Pattern, make_context
from fuzz.oracles.diagnosis.factors import match_factor, match_negated
from fuzz.oracles.diagnosis.misplaced import match_earlier_call, match_swapped, match_transposed
from fuzz.oracles.diagnosis.regions import match_input_interval, match_rows_or_columns

PATTERNS: tuple[Pattern, ...] = (
    match_swapped,
    match_transposed,
    match_negated,
    match_unwritten,
    match_earlier_call,
    match_zero,
    match_truncated,
    match_narrow,
    match_factor,
    match_input_interval,
    match_rows_or_columns,
)
"""In the order in which they are tried; the first one that fits an output gives its sentence."""

LASTING: tuple[Pattern, ...] = (match_unwritten, match_zero)
"""Those that fit every case of a cause, whatever its size."""

__all__ = ["PATTERNS", "Pattern", "DiagnosisContext", "diagnose", "make_context"]


def diagnose(context: DiagnosisContext, least: DiagnosisContext) -> tuple[str, ...]:
    """One sentence for each wrong output that fits a pattern, each sentence once.

    Patterns are clearer in a case that is not shrunk; lasting ones must also fit the least case of its cause. A
    sentence is of the least case, which is the one that is shown, or says that it is of the unshrunk one.
    """
    found = []
    for output in context.wrong:
        candidates = (one for one in PATTERNS if one not in LASTING or output not in least.wrong or one(least, output))
        fitting = ((pattern, text) for pattern in candidates if (text := pattern(context, output)))
        for pattern, text in islice(fitting, 1):
            shown = text if least is context else describe_least(least, pattern, output, text)
            found.append(shown or context.name(text))
    return tuple(dict.fromkeys(found))


def describe_least(least: DiagnosisContext, pattern: Pattern, output: str, unshrunk: str) -> str:
    """The sentence of a pattern on the least case, whose unshrunk case it fits; empty where it does not fit."""
    return pattern(replace(least, unshrunk=unshrunk), output) if output in least.wrong else ""
