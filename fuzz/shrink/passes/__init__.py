"""Lists the passes, kinds of simplification: each is a function in a file of its family and stands in a list here."""

from fuzz.shrink.passes.base import Pass
from fuzz.shrink.passes.calls import fewer_calls
from fuzz.shrink.passes.defaults import (
    fewer_arguments,
    later_layouts,
    plain_dtypes,
    plain_everything,
    plain_layouts,
    plain_options,
    plain_shapes,
    smaller_split,
)
from fuzz.shrink.passes.dims import (
    BATTERY,
    UNUSUAL,
    USUAL,
    all_contiguous,
    combinations_of_small_dims,
    drop_slices,
    fill,
    keep_slices,
    rows_as_neighbours,
    smaller_dims,
    smaller_dims_with_other_values,
    usual_inputs,
)
from fuzz.shrink.passes.launch import plain_launch
from fuzz.shrink.passes.parts import fewer_parts, shorter_parts
from fuzz.shrink.passes.values import (
    fewer_bits,
    plain_numbers,
    plain_recipes,
    smallest_values,
    sorted_values,
    write_out_small,
    zero_chunks,
)

COARSE: tuple[Pass, ...] = (
    fewer_calls,
    fewer_arguments,
    plain_everything,
    rows_as_neighbours,
    fewer_parts,
    shorter_parts,
    smaller_dims,
    combinations_of_small_dims,
    smaller_dims_with_other_values,
    keep_slices,
    plain_shapes,
    plain_layouts,
    later_layouts,
    plain_dtypes,
    plain_options,
    plain_launch,
    smaller_split,
    plain_recipes,
)
"""Passes over a case whose values are recipes, in the order in which they are tried."""
FINE: tuple[Pass, ...] = (
    fewer_arguments,
    fewer_parts,
    shorter_parts,
    drop_slices,
    smallest_values,
    zero_chunks,
    plain_numbers,
    fewer_bits,
    sorted_values,
    combinations_of_small_dims,
    plain_shapes,
    plain_layouts,
    later_layouts,
    plain_dtypes,
    plain_options,
    plain_launch,
    smaller_split,
)
"""Passes over a case whose values are written out."""

__all__ = [
    "BATTERY",
    "COARSE",
    "FINE",
    "UNUSUAL",
    "USUAL",
    "Pass",
    "all_contiguous",
    "fill",
    "usual_inputs",
    "write_out_small",
]
