"""What arithmetic a kernel is allowed: unit roundoff, underflow, range, documented errors of elementary functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["Precision", "Ulps", "make_precision", "working_dtype", "working_precision"]


class Ulps(NamedTuple):
    """Error of an elementary function f at x, in units in the last place: |error| <= (base + slope*|x|) ulp(f(x))."""

    base: float
    slope: float = 0.0


@dataclass(frozen=True)
class Precision:
    """The arithmetic a kernel is allowed.

    u: working unit roundoff (relative). eta: underflow unit: what an operation may lose where its result is tiny.
    largest: largest finite value. ulps: errors of elementary functions by name ("div" is division); a name that is
    missing has `UNKNOWN`. dot: "ieee", or "tf32" (operands of a matrix product truncated to 10 stored bits).
    tensor_cores: matrix products run on tensor cores, which truncate. nan_below: results smaller than this, except 0,
    become NaN in the members, which shows what underflow may have touched; 0 switches this off.
    """

    u: float
    eta: float
    largest: float
    ulps: Mapping[str, Ulps]
    dot: str = "ieee"
    tensor_cores: bool = False
    nan_below: float = 0.0

    @property
    def smallest_normal(self) -> float:
        """Smallest normal number: the exponents of the IEEE formats reach as far down as up, but for 2."""
        return math.ldexp(4.0, -math.frexp(self.largest)[1])

    @property
    def holds_doubles(self) -> bool:
        """Whether a kernel of this precision computes in float64, so that it gets constants as doubles."""
        return self.u < 2.0**-50

    def error(self, name: str) -> Ulps:
        """Error of one elementary function."""
        return self.ulps.get(name, UNKNOWN)


UNKNOWN = Ulps(4)
"""Error of an elementary function that the tables below do not name: the loosest of their usual entries."""

# glibc's manual, "Known Maximum Errors in Math Functions", x86_64, float: exp exp2 log log2 sin cos pow at most 1,
# log10 2, expm1 log1p tanh erf asin acos atan at most 1-2, sinh cosh tan 2, erfc 2-3, lgamma 4-7. sqrt and division
# are IEEE. rsqrt is a square root and a division, sigmoid 1/(1 + exp(-x)). Kernels compute exp(x) as exp2(x*log2(e)):
# the product and the constant round, 2u|x| together, which a slope of 0.25 ulp covers at a safety of 4.
_CPU = {
    "div": Ulps(0.5), "sqrt": Ulps(0.5), "reciprocal": Ulps(0.5), "rsqrt": Ulps(1), "sigmoid": Ulps(2, 0.25),
    "exp": Ulps(1, 0.25), "exp2": Ulps(1, 0.25), "expm1": Ulps(1), "log": Ulps(1), "log2": Ulps(1), "log10": Ulps(2),
    "log1p": Ulps(1), "sin": Ulps(1), "cos": Ulps(1), "tan": Ulps(2), "tanh": Ulps(2), "sinh": Ulps(2), "cosh": Ulps(2),
    "asin": Ulps(1), "acos": Ulps(1), "atan": Ulps(1), "atan2": Ulps(1), "asinh": Ulps(2), "acosh": Ulps(2),
    "atanh": Ulps(2), "erf": Ulps(1), "erfc": Ulps(3), "pow": Ulps(1), "lgamma": Ulps(7), "hypot": Ulps(1),
}  # fmt: skip

# CUDA Programming Guide, appendix "Mathematical Functions", and the PTX ISA. Assumed of Triton's NVIDIA backend: exp is
# ex2.approx(x * log2(e)), 2 + 1.173*|x| ulp; exp2 is ex2.approx (2^-22 relative, 2 ulp); division is div.full (2 ulp);
# sqrt is sqrt.approx (1 ulp); log, log2, erf, sin, ... are libdevice's __nv_*f without fast math (log 1 ulp, not
# lg2.approx with its absolute 2^-22 near 1); a reciprocal is a div.full; pow is __nv_powf (4 ulp).
_CUDA = {
    "div": Ulps(2), "sqrt": Ulps(1), "reciprocal": Ulps(2), "rsqrt": Ulps(2), "sigmoid": Ulps(5, 1.173),
    "exp": Ulps(2, 1.173), "exp2": Ulps(2), "expm1": Ulps(1), "log": Ulps(1), "log2": Ulps(1), "log10": Ulps(2),
    "log1p": Ulps(1), "sin": Ulps(2), "cos": Ulps(2), "tan": Ulps(4), "tanh": Ulps(2), "sinh": Ulps(3), "cosh": Ulps(2),
    "asin": Ulps(2), "acos": Ulps(2), "atan": Ulps(2), "atan2": Ulps(3), "asinh": Ulps(3), "acosh": Ulps(4),
    "atanh": Ulps(3), "erf": Ulps(2), "erfc": Ulps(4), "pow": Ulps(4), "lgamma": Ulps(6), "hypot": Ulps(3),
}  # fmt: skip

# numpy's float32 loops (SIMD; numpy/_core/src/umath, test_umath_accuracy): exp 2.52, log 3.83, sin and cos 1.5-2.4,
# others up to 4 ulp. The interpreter computes rsqrt and sigmoid from them; erf from math.erf, rounded once.
_NUMPY = {
    **{name: Ulps(max(2.0, 2 * ulps.base)) for name, ulps in _CPU.items()},
    "div": Ulps(0.5), "sqrt": Ulps(0.5), "reciprocal": Ulps(0.5), "rsqrt": Ulps(1), "erf": Ulps(1),
    "exp": Ulps(3), "exp2": Ulps(3), "log": Ulps(4), "log2": Ulps(4), "sigmoid": Ulps(4),
}  # fmt: skip

_TABLES = {"libm": _CPU, "libdevice": _CUDA, "numpy": _NUMPY}
_GPU = ("libdevice",)
"""Tables of GPUs: float32 and bfloat16 subnormals are flushed there, and tensor cores truncate."""

# (u, smallest subnormal, smallest normal, largest finite) of each dtype that a kernel may accumulate in.
_FORMATS = {
    "float64": (2.0**-53, 2.0**-1074, 2.0**-1022, float.fromhex("0x1.fffffffffffffp1023")),
    "float32": (2.0**-24, 2.0**-149, 2.0**-126, float.fromhex("0x1.fffffep127")),
    "bfloat16": (2.0**-8, 2.0**-133, 2.0**-126, float.fromhex("0x1.fep127")),
    "float16": (2.0**-11, 2.0**-24, 2.0**-14, 65504.0),
}


def working_dtype(accumulate: str, dtypes: Iterable[str]) -> str:
    """The dtype that a kernel accumulates in: for "inputs" the coarsest among float32 and those of its tensors."""
    if accumulate != "inputs":
        return accumulate
    return max(("float32", *(name for name in dtypes if name in _FORMATS)), key=lambda name: _FORMATS[name][0])


@lru_cache(maxsize=64)
def make_precision(
    arithmetic: str, accumulate: str = "float32", dot: str = "ieee", flush_subnormals: bool = False
) -> Precision:
    """The precision of a kernel that accumulates in the named dtype, on a backend with this `Backend.arithmetic`.

    With `flush_subnormals` any of them may lose subnormals, as PyTorch's own matrix products lose those of bfloat16.
    A GPU flushes float32 and bfloat16 subnormals (ex2.approx.ftz, div.full, fast paths); the others, and float16 and
    float64 everywhere, keep them. bfloat16 and float16 arithmetic is an operation rounded to that format.
    """
    if arithmetic not in _TABLES:
        raise ValueError(f"arithmetic {arithmetic!r}: one of {', '.join(_TABLES)}")
    if accumulate not in _FORMATS:
        raise ValueError(f"accumulate {accumulate!r}: one of {', '.join(_FORMATS)}")
    if dot not in ("ieee", "tf32"):
        raise ValueError(f"dot {dot!r}: one of ieee, tf32")
    u, subnormal, normal, largest = _FORMATS[accumulate]
    flushes = flush_subnormals or arithmetic in _GPU and accumulate in ("float32", "bfloat16")
    eta, ulps = normal if flushes else subnormal, MappingProxyType(_TABLES[arithmetic])
    return Precision(u, eta, largest, ulps, dot, tensor_cores=arithmetic in _GPU)


def working_precision(arithmetic: str, accumulate: str, dtypes: Iterable[str], dot: str = "ieee") -> Precision:
    """The precision of a kernel for tensors of these dtypes.

    One that accumulates in "inputs" may round to any of them: beside bfloat16 the range is still that of float16.
    """
    if accumulate != "inputs":
        return make_precision(arithmetic, accumulate, dot)
    names = dict.fromkeys(working_dtype(accumulate, [name]) for name in ("float32", *dtypes))
    each = [make_precision(arithmetic, name, dot, True) for name in names]
    coarsest = max(each, key=lambda one: one.u)
    return replace(coarsest, eta=max(one.eta for one in each), largest=min(one.largest for one in each))
