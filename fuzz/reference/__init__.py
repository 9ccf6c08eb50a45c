"""The trusted value of a target: its reference in float64, with the error that an honest kernel may make."""

from .ensemble import NoRule
from .evaluate import Diverges, Expected, evaluate, evaluate_backward, wider
from .noise import prepare
from .precision import Precision, Ulps, precision

__all__ = [
    "Diverges",
    "Expected",
    "NoRule",
    "Precision",
    "Ulps",
    "evaluate",
    "evaluate_backward",
    "precision",
    "prepare",
    "wider",
]
