"""The trusted value of a target: its reference in float64, with the error that an honest kernel may make."""

from fuzz.reference.envelope.ensemble import NoRule
from fuzz.reference.envelope.evaluate import (
    COTANGENT,
    Diverges,
    Expected,
    evaluate,
    evaluate_backward,
    float64_throughout,
    wider,
    with_gradients,
)
from fuzz.reference.envelope.pools import UNIT64, prepare
from fuzz.reference.envelope.precision import Precision, Ulps, precision, working

__all__ = [
    "COTANGENT",
    "UNIT64",
    "Diverges",
    "Expected",
    "NoRule",
    "Precision",
    "Ulps",
    "evaluate",
    "evaluate_backward",
    "float64_throughout",
    "precision",
    "prepare",
    "wider",
    "with_gradients",
    "working",
]
