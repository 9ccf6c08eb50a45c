"""The error of bits in units in the last place against exact values, with which tests compare rounding and sweeps."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fuzz.model.dtypes import Doubles, DType, from_bits, to_bits, ulp


def ulps_between(got: ArrayLike, want: ArrayLike, d: DType) -> Doubles:
    """The error of bits `got` against exact float64 values `want`, in ulps of the format at `want`.

    0 where both are NaN or the same infinity, or where `want` lies so far out that it rounds to the infinity got;
    inf where only one of the two is finite, or NaN, otherwise.
    """
    exact = np.asarray(want, dtype=np.float64)
    values = from_bits(got, d).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        errors = np.abs(values - exact) / ulp(exact, d)
    rounded = from_bits(to_bits(exact, d), d).astype(np.float64)
    same = (np.isnan(values) & np.isnan(exact)) | (np.isinf(values) & (values == rounded))
    odd = ~np.isfinite(values) | ~np.isfinite(exact)
    return np.where(same, 0.0, np.where(odd, np.inf, errors))
