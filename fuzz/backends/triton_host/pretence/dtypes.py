"""Computes in dtypes that PyTorch has on a GPU alone, and in float32 what autocast for a GPU computes in float32."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map

from fuzz.backends.triton_host import autocast

LACKS = re.compile(r"not implemented for '(\w+)'")
"""What torch says of a function that it has in other dtypes."""
NAMES = {
    "Half": torch.float16, "BFloat16": torch.bfloat16, "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16,
    "Int": torch.int32, "Long": torch.int64,
}  # fmt: skip
HALF = (torch.float16, torch.bfloat16)
# https://docs.pytorch.org/docs/stable/amp.html, "CUDA Ops that can autocast to float32".
IN_FLOAT32 = frozenset(
    """
    __pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss
    cdist cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss
    huber_loss kl_div l1_loss layer_norm log log10 log_softmax log1p log2 logsumexp margin_ranking_loss mse_loss
    multilabel_margin_loss multi_margin_loss nll_loss norm normalize pdist poisson_nll_loss pow prod reciprocal
    rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum renorm tan triplet_margin_loss
    """.split()
)


def call(func: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The result of a function of torch on CPU tensors, in the dtype that it has on a GPU."""
    name = getattr(func, "__name__", "")
    writes = "out" in keywords or name.endswith("_") and not name.endswith("__")
    if name in IN_FLOAT32 and not writes and autocast.real_is_enabled("cpu"):
        args, keywords = recast((args, keywords), HALF, torch.float32)
    try:
        return func(*args, **keywords)
    except (NotImplementedError, RuntimeError) as error:
        lacking = LACKS.search(str(error))
        if writes or lacking is None or lacking[1] not in NAMES:
            raise
    dtype = NAMES[lacking[1]]
    # Integers below 2^53 are exact in float64.
    wider = torch.float32 if dtype.is_floating_point else torch.float64
    args, keywords = recast((args, keywords), (dtype,), wider)
    return recast(func(*args, **keywords), (wider,), dtype)


def recast(values: Any, source: tuple[torch.dtype, ...], to: torch.dtype) -> Any:
    """Lists, tuples and dicts of values, with the tensors of some dtypes in another one."""

    def cast(value: Any) -> Any:
        return value.to(to) if isinstance(value, torch.Tensor) and value.dtype in source else value

    return tree_map(cast, values)
