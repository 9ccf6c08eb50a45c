"""Differential fuzzing of Triton kernels against float64 references."""

from fuzz.api import Target, target
from fuzz.contract import ulps
from fuzz.indices import indices
from fuzz.locations import locations
from fuzz.target import option, size, tensor

__all__ = ["Target", "indices", "locations", "option", "size", "target", "tensor", "ulps"]
__version__ = "0.1.0"
