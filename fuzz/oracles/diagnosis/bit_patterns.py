"""Recognises wrong elements by their bits: nobody wrote them, they are 0, truncated instead of rounded, or narrower."""

from __future__ import annotations

import numpy as np
import torch

from fuzz.backends.guarded_memory import read_words
from fuzz.backends.poison import POISON
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.oracles.diagnosis.context import DiagnosisContext

NARROW = {"bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Formats of 16 bits, and the relative distance of their neighbouring values."""


def match_unwritten(context: DiagnosisContext, output: str) -> str:
    """Elements that still hold, or were computed from, the poison of memory that nobody wrote."""
    raw, wrong = context.raw[output], context.wrong[output]
    held = read_words(raw) == POISON[context.kind(output).name]
    if held.any():
        return f"{int(held.sum())} of {raw.numel()} elements of {output} were never written"
    nan = raw.isnan() & wrong & context.want[output].isfinite()
    if bool(nan.any()) and all(bool(x.isfinite().all()) for x in context.inputs.values()):
        return f"{output} is NaN, and no input is"
    return ""


def match_zero(context: DiagnosisContext, output: str) -> str:
    """All wrong elements are 0."""
    wrong = context.wrong[output]
    if bool((context.got[output][wrong] == 0).all()):
        return f"{output} is 0 in {'every element' if bool(wrong.all()) else 'the wrong elements'}"
    return ""


def match_truncated(context: DiagnosisContext, output: str) -> str:
    """Elements cut off at the format's last bit instead of rounded to nearest."""
    kind = context.kind(output)
    want, got, wrong = context.want[output], context.got[output], context.wrong[output]
    finite = want.isfinite() & got.isfinite()
    nearest = np.asarray(from_bits(to_bits(want.numpy(), kind), kind))
    away = np.abs(nearest) > np.abs(want.numpy())
    words = to_bits(nearest, kind) - away.astype(kind.unsigned)
    cut = torch.from_numpy(np.asarray(from_bits(words, kind), dtype=np.float64))
    same = (got == cut) | ~finite
    if bool((wrong & finite).any()) and int(away.sum()) >= 2 and bool(same.all()):
        return f"{output} is truncated instead of rounded to {kind.name}"
    return ""


def match_narrow(context: DiagnosisContext, output: str) -> str:
    """Elements of a wider format that all fit one of 16 bits, in which they are right."""
    kind = context.kind(output)
    want, got, wrong = context.want[output], context.got[output], context.wrong[output]
    finite = want.isfinite() & got.isfinite() & (got != 0)
    if kind.bits <= 16 or int((wrong & finite).sum()) < 2:
        return ""
    for name, apart in NARROW.items():
        narrow = named_dtype(name)
        kept = torch.from_numpy(np.asarray(from_bits(to_bits(got.numpy(), narrow), narrow), dtype=np.float64))
        near = (got - want).abs() <= apart * want.abs() + context.bound[output]
        if bool(((kept == got) & near | ~finite).all()):
            return f"{output} is rounded to {name}, and it is {kind.name}"
    return ""
