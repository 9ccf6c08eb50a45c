"""The trusted value of a target: its reference in float64, with the error that an honest kernel may make."""

from fuzz.reference.dispatch import NoRule
from fuzz.reference.envelope.evaluate import (
    COTANGENT,
    Divergence,
    Expected,
    Reference,
    evaluate,
    evaluate_backward,
    float64_defaults,
    merge_members,
    with_gradients,
)
from fuzz.reference.envelope.member_errors import MemberErrors, evaluate_members, evaluate_orders
from fuzz.reference.envelope.noise import SAFETY
from fuzz.reference.envelope.noise_pools import UNIT64, cache_noise
from fuzz.reference.envelope.precision import Precision, Ulps, make_precision, working_dtype, working_precision

__all__ = [
    "COTANGENT",
    "SAFETY",
    "UNIT64",
    "Divergence",
    "Expected",
    "MemberErrors",
    "NoRule",
    "Precision",
    "Reference",
    "Ulps",
    "evaluate",
    "evaluate_backward",
    "evaluate_members",
    "evaluate_orders",
    "float64_defaults",
    "make_precision",
    "cache_noise",
    "merge_members",
    "with_gradients",
    "working_dtype",
    "working_precision",
]
