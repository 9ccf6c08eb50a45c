"""The exact value of a target: its reference, run over mpmath's numbers by rules for each operation."""

from fuzz.reference.exact.evaluate import Exactly, elementwise, evaluate
from fuzz.reference.exact.numbers import told

__all__ = ["Exactly", "elementwise", "evaluate", "told"]
