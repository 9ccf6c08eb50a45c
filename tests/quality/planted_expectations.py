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
ONE_ROW = {"M": 1, "A": 1, "B": 1, "C": 1}
ONE_PLACE = {"B": 1, "G": 1, "D": 1, "Q": 1, "P": 1, "H1": 1, "W1": 1, "H2": 1, "W2": 1}
ONE_EACH = {"M": 1, "K": 1, "N": 1}
PLANTED: dict[str, dict[str, Expected]] = {
    "layernorm_bw": {
        "swapped_param_grads": Expected(
            "accuracy", ("dweight", "dbias"), ONE, "at N=1 xhat is 0, so dweight=0 and dbias=dy: swapped they differ"
        ),
        "one_pass_variance": Expected(
            "accuracy",
            ("dx", "dweight"),
            {"M": 1, "N": 2},
            "at N=1 E[x*x] and mean*mean are the same product, so the variance is exactly 0 as it should be",
        ),
        "mean_divides_by_block": Expected(
            "accuracy", ("dx", "dweight"), {"M": 1, "N": 3}, "1 and 2 are powers of two themselves; 3 is divided by 4"
        ),
        "bessel": Expected(
            "accuracy",
            ("dx", "dweight"),
            {"M": 1, "N": 2},
            "the first case shows wrong numbers, which do not shrink into the NaN of N=1, where the variance is 0/0",
        ),
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
            "bounds",
            ("dy",),
            {"M": 2, "N": 1},
            "one element has no second place to be read from; of two, M=2 N=1 has fewer elements (5) than M=1 N=2 (6)",
        ),
        "writes_dx_into_dy": Expected("mutation", ("dy",), ONE, "a contiguous dy is returned as dx at any size"),
        "block_chosen_by_batch": Expected(
            "invariance",
            ("dx",),
            {"M": 1, "N": 33},
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
    "rms_norm": {
        "eps_outside_sqrt": Expected("accuracy", ("y",), ONE, "|x| + eps is not sqrt(x*x + eps) for one element"),
        "tail_lost": Expected("accuracy", ("y",), ONE, "one element is no full block of 64: nothing is summed"),
        "one_plus_weight": Expected("accuracy", ("y",), ONE, "elementwise"),
        "squares_in_bfloat16": Expected("accuracy", ("y",), ONE, "one square, rounded to 8 bits"),
        "truncates_to_bfloat16": Expected("accuracy", ("y",), ONE, "elementwise, where y is bfloat16"),
        "eps_lost": Expected("accuracy", ("y",), ONE, "x = 0 is divided by 0"),
    },
    "softmax": {
        "no_max_subtracted": Expected("accuracy", ("y",), ONE, "exp(x) overflows for one x over 88.7: inf/inf"),
        "max_sees_padding": Expected(
            "accuracy", ("y",), ONE, "one element leaves 63 zeros of padding; exp(x - 0) vanishes below -104: 0/0"
        ),
        "sum_sees_padding": Expected("accuracy", ("y",), ONE, "63 elements of padding are added to the sum of one"),
        "sum_of_last_block": Expected("accuracy", ("y",), {"M": 1, "N": 65}, "the least width of two blocks of 64"),
        "sum_in_bfloat16": Expected(
            "accuracy", ("y",), {"M": 1, "N": 2}, "at N=1 the sum is exp(0) = 1, which bfloat16 holds"
        ),
        "max_of_first_block": Expected("accuracy", ("y",), {"M": 1, "N": 65}, "the least width of two blocks of 64"),
        "reciprocal_where_strided": Expected(
            "layout", ("y",), {"M": 1, "N": 2}, "at N=1 the sum and its reciprocal are 1; other sums round"
        ),
    },
    "matmul": {
        "k_tail_lost": Expected("accuracy", ("c",), ONE_EACH, "K=1 is no full block of 32: nothing is summed"),
        "k_off_by_one": Expected("accuracy", ("c",), ONE_EACH, "at K=1 the only product is masked"),
        "last_k_block_unmasked": Expected("bounds", ("a", "b"), ONE_EACH, "a block is wider than K=1, the end of a"),
        "accumulates_in_bfloat16": Expected("accuracy", ("c",), ONE_EACH, "one product, rounded to bfloat16"),
        "operands_in_bfloat16": Expected("accuracy", ("c",), ONE_EACH, "one product of rounded operands"),
        "b_assumed_contiguous": Expected(
            "bounds",
            ("b",),
            {"M": 1, "K": 1, "N": 2},
            "one element has no second place to be read from; of two, N=2 has fewer elements (3) than K=2 (4)",
        ),
        "last_block_replaces": Expected(
            "accuracy", ("c",), {"M": 1, "K": 33, "N": 1}, "the least K of two blocks of 32"
        ),
    },
    "cross_entropy": {
        "ignored_in_denominator": Expected(
            "accuracy", ("loss",), {"N": 1, "V": 1}, "the mean over one ignored row is 0/0, with the bug 0/1"
        ),
        "no_max_subtracted": Expected("accuracy", ("losses", "loss"), {"N": 1, "V": 1}, "exp(x) overflows for one x"),
        "max_sees_padding": Expected(
            "accuracy", ("losses", "loss"), {"N": 1, "V": 1}, "63 zeros of padding; below -104 the sum is log(0)"
        ),
        "smoothing_over_others": Expected("accuracy", ("losses", "loss"), {"N": 1, "V": 1}, "at V=1, 0/0"),
        "smoothing_keeps_whole_hit": Expected(
            "accuracy",
            ("losses", "loss"),
            {"N": 1, "V": 2},
            "at V=1 the label's part is log(1) - 0 = 0, whatever its weight",
        ),
        "sentinel_read": Expected("bounds", ("logits",), {"N": 1, "V": 1}, "column -100 of one ignored row"),
    },
    "cross_entropy_bw": {
        "upstream_gradient_lost": Expected(
            "accuracy", ("dlogits",), {"N": 1, "V": 2}, "at V=1 the gradient is 1 - 1 = 0, whatever its factor"
        ),
        "ignored_in_denominator": Expected(
            "accuracy", ("dlogits",), {"N": 2, "V": 2}, "one row ignored and one not; at V=1 the gradient is 0"
        ),
        "ignored_rows_unwritten": Expected("bounds", ("dlogits",), {"N": 1, "V": 1}, "one ignored row"),
        "label_within_block": Expected(
            "accuracy", ("dlogits",), {"N": 1, "V": 65}, "the least vocabulary of two blocks of 64"
        ),
        "smoothing_lost": Expected(
            "accuracy", ("dlogits",), {"N": 1, "V": 2}, "at V=1 the parts add up to 1 with and without smoothing"
        ),
        "total_of_last_block": Expected(
            "accuracy", ("dlogits",), {"N": 1, "V": 65}, "the least vocabulary of two blocks of 64"
        ),
    },
    "cross_entropy_function": {
        "gradient_over_input": Expected("mutation", ("logits",), {"N": 1, "V": 1}, "one logit becomes its gradient, 0"),
        "scales_what_it_saved": Expected(
            "autograd", ("dlogits",), {"N": 1, "V": 2}, "at V=1 the gradient is 0, once scaled and twice"
        ),
        "saves_behind_autograd": Expected(
            "autograd", ("dlogits",), {"N": 1, "V": 2}, "at V=1 the gradient is 0, of whatever logit"
        ),
        "label_lost": Expected("accuracy", ("dlogits",), {"N": 1, "V": 1}, "1 - 1 = 0 is due, with the bug 1"),
    },
    "layer_norm": {
        "swapped_param_grads": Expected("accuracy", ("dweight", "dbias"), ONE_ROW, "dweight=0, dbias=dy, swapped"),
        "one_pass_variance": Expected(
            "accuracy", ("y", "dx", "dweight"), {**ONE_ROW, "C": 2}, "of one element the variance is 0 either way"
        ),
        "eps_outside_sqrt": Expected(
            "accuracy", ("y", "dx", "dweight"), {**ONE_ROW, "C": 2}, "at one element y and dx are 0 whatever rstd is"
        ),
        "mean_of_last_dim": Expected(
            "accuracy", ("y", "dx"), {**ONE_ROW, "A": 2}, "the last dim alone must differ from the normalized shape"
        ),
        "statistics_in_low_precision": Expected(
            "accuracy", ("dx", "dweight"), {**ONE_ROW, "C": 2}, "at one element dx is 0 whatever rstd is"
        ),
        "drops_c1": Expected("accuracy", ("dx",), {**ONE_ROW, "C": 2}, "at one element the term is 0 anyway"),
        "contiguous_gradient_assumed": Expected(
            "accuracy",
            ("dx", "dweight", "dbias"),
            {**ONE_ROW, "M": 2},
            "one element has no second place to be read from; of two, M=2 has fewer elements (6) than C=2 (8)",
        ),
        "shape_not_checked": Expected("rejects", ("mismatched_normalized_shape",), ONE_ROW, "at any size"),
        "param_grads_only_with_dx": Expected("autograd", ("dweight", "dbias"), ONE_ROW, "None at any size"),
        "gradient_over_cotangent": Expected("mutation", ("grad y",), ONE_ROW, "dx=0 over one cotangent"),
    },
}
PLANTED |= {
    "silu": {
        "exp_overflows": Expected("accuracy", ("y",), {"N": 1}, "elementwise"),
        "sigmoid_saturates": Expected("accuracy", ("y",), {"N": 1}, "elementwise"),
    },
    "swiglu": {
        "silu_of_up": Expected("accuracy", ("y",), {"N": 1}, "elementwise"),
        "silu_in_bfloat16": Expected("accuracy", ("y",), {"N": 1}, "elementwise"),
    },
    "geglu": {
        "cdf_by_one_plus_erf": Expected("accuracy", ("y",), {"N": 1}, "elementwise"),
        "sigmoid_form": Expected("accuracy", ("y",), {"N": 1}, "elementwise"),
    },
    "matmul_invariant": {
        "split_by_batch": Expected(
            "invariance",
            ("c",),
            {"M": 1, "K": 33, "N": 1},
            "of three blocks of 16 the last two are added to each other first; two are the same either way",
        ),
        "one_row_by_another_path": Expected(
            "invariance", ("c",), {"M": 1, "K": 2, "N": 1}, "one product is rounded alike; a sum of two is not"
        ),
        "last_block_lost": Expected("accuracy", ("c",), ONE_EACH, "K=1 is no full block: nothing is summed"),
    },
    "matmul_split_k": {
        "tail_of_k_lost": Expected(
            "accuracy",
            ("c",),
            {"M": 1, "K": 1025, "N": 1},
            "33 blocks of 32 among 32 splits; more tiles have fewer splits, but then there are more elements in all",
        ),
        "parts_in_input_dtype": Expected(
            "accuracy", ("c",), {"M": 1, "K": 33, "N": 1}, "a single part is the result, rounded once"
        ),
        "last_part_lost": Expected("accuracy", ("c",), {"M": 1, "K": 33, "N": 1}, "the least K of two splits"),
    },
    "msda": {
        "border_clamped_before_weights": Expected(
            "accuracy",
            ("y", "dvalue", "dweights", "dplaces"),
            ONE_PLACE,
            "of a place at 0 half of the weight lies outside of the only cell, and counts for 0",
        ),
        "gradient_kept_outside_border": Expected(
            "accuracy",
            ("dplaces",),
            ONE_PLACE,
            "beside the only cell lies 0, so that a place that was clamped to it has a slope to lose",
        ),
        "corners_off_by_half": Expected(
            "accuracy",
            ("y", "dvalue", "dplaces", "dweights"),
            ONE_PLACE,
            "half a cell below the only one half of its weight is outside",
        ),
        "add_not_atomic": Expected(
            "bounds", ("dvalue",), {**ONE_PLACE, "Q": 2}, "two programs of one head and batch are two queries"
        ),
        "one_place_a_cell": Expected(
            "accuracy",
            ("dvalue",),
            {**ONE_PLACE, "P": 2},
            "two places in one grid: of one query they are 15 elements with all else, of two 16",
        ),
        "swapped_xy": Expected(
            "accuracy",
            ("y",),
            {**ONE_PLACE, "W2": 2},
            "a grid of one cell looks alike along both; of two cells, W2=2 comes first in the order of dims",
        ),
        "swapped_xy_gradients": Expected(
            "accuracy", ("dplaces",), ONE_PLACE, "at unlike places along x and y the slopes of the only cell differ"
        ),
        "wrong_level_offset": Expected(
            "accuracy", ("y",), ONE_PLACE, "the cell of the first grid is taken for that of the second"
        ),
    },
    "feed_forward": {
        "few_rows_start_from_bias": Expected(
            "invariance", ("y",), {"M": 1, "E": 2, "H": 1}, "at E=1 the second norm makes its bias of anything"
        ),
        "residual_of_normed": Expected("accuracy", ("y",), {"M": 1, "E": 1, "H": 1}, "at E=1 the norm is its bias"),
        "gelu_by_sigmoid": Expected(
            "accuracy", ("y",), {"M": 1, "E": 2, "H": 1}, "at E=1 the second norm makes its bias of anything"
        ),
    },
}
TESTED = {
    "layernorm_bw": tuple(
        name
        for name in PLANTED["layernorm_bw"]
        if name
        not in (
            "drops_c1",
            "sign_of_c2",
            "forgets_weight",
            "mean_divides_by_block",
            "last_row_lost",
            "one_pass_variance",
            "bessel",
            "low_precision_accumulate",
        )
    ),
    "msda": (),
    "silu": ("exp_overflows",),
    "swiglu": (),
    "geglu": (),
    "matmul_invariant": (),
    "matmul_split_k": (),
    "feed_forward": (),
    "rms_norm": ("truncates_to_bfloat16",),
    "softmax": ("max_sees_padding", "reciprocal_where_strided"),
    "matmul": ("b_assumed_contiguous",),
    "cross_entropy": ("sentinel_read",),
    "cross_entropy_function": ("saves_behind_autograd",),
    "layer_norm": ("param_grads_only_with_dx",),
    "cross_entropy_bw": ("ignored_rows_unwritten",),
}
"""Of these targets, the bugs that tests run, one a class; of the others all. benchmarks/planted.py runs every one."""
ON_CUDA: dict[str, Expected] = {
    "partial_uninitialised": Expected("accuracy", ("dweight", "dbias"), ONE, "poison plus anything is NaN"),
    "tail_unmasked": Expected("accuracy", ("dx", "dweight"), ONE, "the poison behind the row is read: NaN"),
    "assumes_contiguous_dy": Expected("accuracy", ("dx",), {"M": 2, "N": 1}, "the poison between the elements is read"),
    "int32_offset": Expected("fault", ("launcher",), {"M": 3, "N": 1}, "an illegal address"),
    "b_assumed_contiguous": Expected("accuracy", ("c",), {"M": 1, "K": 1, "N": 2}, "the poison behind b is read: NaN"),
    "last_k_block_unmasked": Expected("accuracy", ("c",), ONE_EACH, "the poison behind a and b is multiplied: NaN"),
    "sentinel_read": Expected("fault", ("launcher",), {"N": 1, "V": 1}, "an illegal address before the logits"),
}
"""Where the GPU, which does not check accesses, sees a bug as something else than `cpu` does."""
SAME_ON_CUDA = {"reciprocal_where_strided": "div.full.f32 has the bits of a product with the reciprocal"}
"""Bugs that a GPU's arithmetic hides, and why."""
