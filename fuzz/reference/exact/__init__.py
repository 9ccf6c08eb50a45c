"""The exact value of a target: its reference, run over mpmath's numbers by rules for each operation."""

from fuzz.reference.exact.evaluate import ExactOutputs, evaluate_elementwise, evaluate_exact
from fuzz.reference.exact.numbers import format_number

__all__ = ["ExactOutputs", "evaluate_elementwise", "evaluate_exact", "format_number"]
