"""The exact value of a target: its reference, run over arbitrary-precision numbers by rules for each operation."""

from fuzz.reference.exact.evaluate import (
    ExactOutputs,
    enclosures_available,
    evaluate_elementwise,
    evaluate_exact,
    format_number,
)

__all__ = ["ExactOutputs", "enclosures_available", "evaluate_elementwise", "evaluate_exact", "format_number"]
