"""What each planted bug must be found as, and the least dims that can show it, derived by hand.

`outputs` are those of which at least one must be in the finding; dims are those of the last call.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expected:
    """Oracle, outputs and least dims of one planted bug on one backend; `why` derives the dims."""

    oracle: str
    outputs: tuple[str, ...]
    dims: dict[str, int]
    why: str
    calls: int = 1


ONE = {"M": 1, "N": 1}
PLANTED: dict[str, dict[str, Expected]] = {
    "layernorm_bw": {
        "swapped_param_grads": Expected(
            "accuracy", ("dweight", "dbias"), ONE, "at N=1 xhat is 0, so dweight=0 and dbias=dy: swapped they differ"
        ),
        "one_pass_variance": Expected(
            "accuracy", ("dx", "dweight"), {"M": 1, "N": 2},
            "at N=1 E[x*x] and mean*mean are the same product, so the variance is exactly 0 as it should be",
        ),
        "mean_divides_by_block": Expected(
            "accuracy", ("dx", "dweight"), {"M": 1, "N": 3}, "1 and 2 are powers of two themselves; 3 is divided by 4"
        ),
        "bessel": Expected("accuracy", ("dx", "dweight"), ONE, "at N=1 the variance is 0/0"),
        "drops_c1": Expected(
            "accuracy", ("dx",), {"M": 1, "N": 2}, "at N=1 xhat is 0, and with it the term that is missing"
        ),
        "sign_of_c2": Expected("accuracy", ("dx",), ONE, "at N=1 dx is rstd*(wdy - wdy) = 0, with the bug 2*rstd*wdy"),
        "forgets_weight": Expected(
            "accuracy", ("dx",), ONE, "at N=1 dx is rstd*(dy - weight*dy) with the bug, where 0 is due"
        ),
        "tail_unmasked": Expected("bounds", ("x",), ONE, "a block is wider than a row of 1, which is the end of x"),
        "last_row_lost": Expected("accuracy", ("dweight", "dbias"), ONE, "the only row of partial sums is lost"),
        "partial_uninitialised": Expected(
            "bounds", ("partial_weight", "partial_bias"), ONE, "the first row adds to what nobody wrote, at any size"
        ),
        "low_precision_accumulate": Expected(
            "accuracy", ("dweight", "dbias"), ONE, "dbias=dy of one row, rounded to bfloat16 on the way"
        ),
        "assumes_contiguous_dy": Expected(
            "bounds", ("dy",), {"M": 2, "N": 1},
            "one element has no second place to be read from; of two, M=2 N=1 has fewer elements (5) than M=1 N=2 (6)",
        ),
        "writes_dx_into_dy": Expected("mutation", ("dy",), ONE, "a contiguous dy is returned as dx at any size"),
        "block_chosen_by_batch": Expected(
            "invariance", ("dx",), {"M": 1, "N": 33},
            "blocks of 16 added up, then a tree of 16, is the tree of 64 for up to 32 columns: column 16+i is added "
            "to i first in both; column 32 is the first added in another order. One row alone against one of eight",
        ),
        "first_n_baked_in": Expected(
            "bounds", ("dx",), {"M": 1, "N": 2}, "a call with N=1, then N=2: the second column is never written", 2
        ),
        "store_past_end": Expected("bounds", ("dbias",), ONE, "one element past the end at any width within a block"),
        "int32_offset": Expected(
            "bounds", ("x", "dy"), {"M": 3, "N": 1}, "row 2 of stride 2**30 is the first whose offset passes 2**31"
        ),
        "atomic_order": Expected(
            "deterministic", ("dweight", "dbias"), {"M": 3, "N": 1}, "a sum of two terms does not depend on their order"
        ),
    },
    "gelu_bw": {
        "erf_saturates": Expected("accuracy", ("dx",), {"N": 1}, "elementwise"),
        "cdf_by_one_plus_erf": Expected("accuracy", ("dx",), {"N": 1}, "elementwise"),
        "pdf_without_x": Expected("accuracy", ("dx",), {"N": 1}, "elementwise"),
        "tanh_form": Expected("accuracy", ("dx",), {"N": 1}, "elementwise"),
    },
}
ON_CUDA: dict[str, Expected] = {
    "partial_uninitialised": Expected("accuracy", ("dweight", "dbias"), ONE, "poison plus anything is NaN"),
    "tail_unmasked": Expected("accuracy", ("dx", "dweight"), ONE, "the poison behind the row is read: NaN"),
    "assumes_contiguous_dy": Expected("accuracy", ("dx",), {"M": 2, "N": 1}, "the poison between the elements is read"),
    "int32_offset": Expected("fault", ("launcher",), {"M": 3, "N": 1}, "an illegal address"),
}
"""Where the GPU, which does not check accesses, sees a bug as something else than `cpu` does."""
