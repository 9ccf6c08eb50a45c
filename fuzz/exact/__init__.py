"""The exact value of a target: its reference, run over mpmath's numbers by rules for each operation."""

from .evaluate import Exactly, elementwise, evaluate
from .numbers import told

__all__ = ["Exactly", "elementwise", "evaluate", "told"]
