"""Differential fuzzing of Triton kernels against float64 references."""

from fuzz.api import Target, target
from fuzz.target.arguments import by_option, option, size, tensor
from fuzz.target.contract import ulps
from fuzz.target.indices import indices
from fuzz.target.prefix_sums import prefix_sums
from fuzz.target.sampling_locations import locations
from fuzz.target.shapes import sizes

__all__ = [
    "Target",
    "by_option",
    "indices",
    "locations",
    "option",
    "prefix_sums",
    "size",
    "sizes",
    "target",
    "tensor",
    "ulps",
]
__version__ = "0.1.0"
