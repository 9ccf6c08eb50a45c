"""Mathematical functions: MLIR's math dialect and CUDA's libdevice -> the C library."""

from __future__ import annotations

from .errors import UnsupportedOperation
from .types import Type

# Names that are the same in C, for double; with an f at the end for float.
SAME = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fdim floor fma fmax
fmin fmod hypot lgamma log log10 log1p log2 logb nearbyint nextafter pow remainder rint round sin sinh sqrt tan tanh
tgamma trunc fabs""".split()
OTHER = {"absf": "fabs", "powf": "pow", "roundeven": "nearbyint"}
LIBM = {name + suffix for name in SAME for suffix in ("", "f")}

# libdevice names that libm lacks or spells otherwise: templates over the operands, {0} first, each used once.
SPECIAL = {
    "isnanf": "isnan({0})", "isnand": "isnan({0})", "isinff": "(isinf({0}) != 0)", "isinfd": "(isinf({0}) != 0)",
    "finitef": "(isfinite({0}) != 0)", "isfinited": "(isfinite({0}) != 0)",
    "signbitf": "(signbit({0}) != 0)", "signbitd": "(signbit({0}) != 0)",
    "rsqrtf": "rsqrt_f32({0})", "rsqrt": "rsqrt_f64({0})",
    "fast_expf": "expf({0})", "fast_exp10f": "powf(10.0f, {0})", "fast_logf": "logf({0})", "fast_log2f": "log2f({0})",
    "fast_log10f": "log10f({0})", "fast_sinf": "sinf({0})", "fast_cosf": "cosf({0})", "fast_tanf": "tanf({0})",
    "fast_powf": "powf({0}, {1})", "fast_fdividef": "({0} / {1})", "fast_tanhf": "tanhf({0})",
    "exp10f": "powf(10.0f, {0})", "exp10": "pow(10.0, {0})",
    "abs": "absi_i32({0})", "llabs": "absi_i64({0})", "umulhi": "mulhiui_i32({0}, {1})",
    "popc": "__builtin_popcount({0})", "popcll": "__builtin_popcountll({0})",
    "clz": "leading_i32({0})", "ffs": "__builtin_ffs({0})", "ffsll": "__builtin_ffsll({0})",
    "float_as_int": "(i32)bits_f32({0})", "int_as_float": "f32_bits({0})",
    "double_as_longlong": "(i64)bits_f64({0})", "longlong_as_double": "f64_bits({0})",
    "llrintf": "to_i64_f32(nearbyintf({0}))", "llrint": "to_i64_f64(nearbyint({0}))",
    "float2int_rz": "to_i32_f32({0})", "float2int_rn": "to_i32_f32(nearbyintf({0}))",
    "int2float_rn": "(f32){0}", "ll2float_rn": "(f32){0}", "int2double_rn": "(f64){0}",
    "saturatef": "minnumf_f32(maxnumf_f32({0}, 0.0f), 1.0f)",
}  # fmt: skip
for prefix in "fd":
    for word, template in (("add", "{0} + {1}"), ("sub", "{0} - {1}"), ("mul", "{0} * {1}"), ("div", "{0} / {1}")):
        SPECIAL[f"{prefix}{word}_rn"] = f"({template})"
SPECIAL |= {"frcp_rn": "(1.0f / {0})", "drcp_rn": "(1.0 / {0})", "fsqrt_rn": "sqrtf({0})", "dsqrt_rn": "sqrt({0})"}
SPECIAL |= {"fmaf_rn": "fmaf({0}, {1}, {2})", "fma_rn": "fma({0}, {1}, {2})", "frsqrt_rn": "rsqrt_f32({0})"}


def math_call(name: str, c_type: str, texts: list[str]) -> str:
    """A call of MLIR's `math.name` on float or double."""
    suffix = "" if c_type == "f64" else "f"
    if name == "rsqrt":
        return f"rsqrt_{c_type}({texts[0]})"
    if name == "exp10":
        return f"pow{suffix}(10.0{suffix}, {texts[0]})"
    return f"{OTHER.get(name, name)}{suffix}({', '.join(texts)})"


def extern_call(symbol: str, types: list[Type], result: Type, texts: list[str]) -> str:
    """A call of libdevice's `symbol`."""
    name = symbol.removeprefix("__nv_")
    if any(type.is_narrow for type in (*types, result)) or not symbol.startswith("__nv_"):
        raise UnsupportedOperation(f"tt.extern_elementwise {symbol} on {types[0].element}")
    if name in SPECIAL:
        return f"({result.c}){SPECIAL[name].format(*texts)}"
    if name not in LIBM or (name.endswith("f") and name[:-1] in SAME) != (result.element == "f32"):
        raise UnsupportedOperation(f"tt.extern_elementwise {symbol}")
    return f"{name}({', '.join(texts)})"
