"""Writes the exact inputs of calls as the text of functions that make them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from fuzz.model.case import Argument, Call, Scalar
from fuzz.model.dims import resolve
from fuzz.model.layout import CONTIGUOUS
from fuzz.target.spec import Target

TENSOR_HELPER = '''
def tensor(words, dtype, shape, strides, offset=0):
    """The exact bit patterns, in row-major order of the distinct elements, as a strided tensor."""
    bits = {torch.float64: torch.int64, torch.float32: torch.int32, torch.float16: torch.int16,
            torch.bfloat16: torch.int16, torch.int64: torch.int64, torch.int32: torch.int32,
            torch.int16: torch.int16, torch.int8: torch.int8, torch.uint8: torch.uint8, torch.bool: torch.uint8}[dtype]
    size = torch.empty(0, dtype=bits).element_size() * 8
    values = [int(w, 16) for w in words.split()] if isinstance(words, str) else list(words)
    values = [v - (1 << size) if bits != torch.uint8 and v >> (size - 1) else v for v in values]
    span = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else offset
    base = torch.empty(span, dtype=bits, device=DEVICE).view(dtype) if span < 1 << 26 else lazily_mapped(span, dtype)
    if span < 1 << 26 and dtype.is_floating_point:
        base.fill_(float("nan"))
    stored = [1 if s == 0 else n for n, s in zip(shape, strides)]
    filled = torch.tensor(values, dtype=bits, device=DEVICE).view(dtype).reshape(stored)
    torch.as_strided(base, stored, strides, offset).copy_(filled)
    return torch.as_strided(base, shape, strides, offset)


def lazily_mapped(span, dtype):
    """Memory of which only what is touched is taken."""
    if DEVICE == "cuda":
        return torch.empty(span, dtype=dtype, device=DEVICE)
    import mmap

    size = span * torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000), dtype=dtype)
'''


def call_lines(calls: Sequence[Call], target: Target) -> Iterator[str]:
    """Functions that make the tensors of each call anew, and its options and sizes."""
    for index, call in enumerate(calls):
        yield from function_lines(f"arguments_{index}", call.arguments, call)
        yield from function_lines(f"cotangents_{index}", call.cotangents, call)
        scalars = target.scalars(call)
        yield f"options_{index} = dict({', '.join(f'{key}={scalar_text(value)}' for key, value in scalars.items())})"
        yield ""
        yield ""


def function_lines(name: str, tensors: Mapping[str, Argument], call: Call) -> Iterator[str]:
    """The text of a function that makes tensors by name."""
    yield f"def {name}():"
    if not tensors:
        yield from ("    return {}", "", "")
        return
    yield "    return dict("
    yield from (f"        {key}={tensor_text(value, call)}," for key, value in tensors.items())
    yield from ("    )", "", "")


def scalar_text(value: Scalar) -> str:
    """An expression for an option; infinities and NaN have no literal."""
    finite = not isinstance(value, float) or math.isfinite(value)
    return repr(value) if finite else f"float({str(value)!r})"


def tensor_text(value: Argument, call: Call) -> str:
    shape = resolve(value.shape, call.dims)
    words = value.bits(call.dims).reshape(-1)
    text = '"' + " ".join(f"{int(word):x}" for word in words) + '"'
    strides = value.layout.strides(shape)
    offset = f", {value.layout.offset}" if value.layout != CONTIGUOUS and value.layout.offset else ""
    return f"tensor({text}, torch.{value.dtype}, {shape}, {strides}{offset})"
