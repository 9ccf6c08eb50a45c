"""Calls the C library for mathematical functions: those of MLIR's math dialect and of CUDA's libdevice.

glibc's functions err by at most 1 ulp (float32) or 2 ulp (float64) where libdevice's own tables allow up to 4; `fast_*`
are no faster and no worse here. Those made of others (inverse error functions, Bessel functions I, `erfcx`, `sinpi`,
`norm3d`) are computed in double: right to 1 ulp in float32, and to 1e-12 relative in float64. Directed roundings are
exact. `rcp64h` is refused: its error is that of one chip's table.
"""

from __future__ import annotations

from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.types import Type

# Names that are the same in C, for double; with an f at the end for float.
SAME = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fdim floor fma fmax
fmin fmod hypot lgamma log log10 log1p log2 logb nearbyint nextafter pow remainder rint round sin sinh sqrt tan tanh
tgamma trunc fabs j0 j1 y0 y1""".split()
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


NEAREST = {"f32": "nearbyintf", "f64": "nearbyint"}
DOWN, UP, CUT = {"f32": "floorf", "f64": "floor"}, {"f32": "ceilf", "f64": "ceil"}, {"f32": "", "f64": ""}
for source, real in (("float", "f32"), ("double", "f64")):
    for word, integer in (("int", "i32"), ("uint", "u32"), ("ll", "i64"), ("ull", "u64")):
        for mode, functions in (("rn", NEAREST), ("rd", DOWN), ("ru", UP), ("rz", CUT)):
            SPECIAL[f"{source}2{word}_{mode}"] = f"to_{integer}_{real}({functions[real]}({{0}}))"
SPECIAL |= {"double2float_rn": "{0}", "uint2float_rn": "(u32){0}", "ull2float_rn": "(u64){0}"}
SPECIAL |= {"uint2double_rn": "(u32){0}", "ll2double_rn": "{0}", "ull2double_rn": "(u64){0}"}
for mode in ("rz", "rd", "ru"):
    for word in "fadd fsub fmul fdiv dadd dsub dmul ddiv".split():
        SPECIAL[f"{word}_{mode}"] = f"nv_{word}_{mode}({{0}}, {{1}}, 0)"
    for word in "frcp drcp fsqrt dsqrt double2float int2float uint2float ll2float ull2float".split():
        SPECIAL[f"{word}_{mode}"] = f"nv_{word}_{mode}({{0}}, 0, 0)"
    for word in ("ll2double", "ull2double"):
        SPECIAL[f"{word}_{mode}"] = f"nv_{word}_{mode}({{0}}, 0, 0)"
    for word in ("fmaf", "fma"):
        SPECIAL[f"{word}_{mode}"] = f"nv_{word}_{mode}({{0}}, {{1}}, {{2}})"
SPECIAL |= {
    "clzll": "leading_i64({0})", "byte_perm": "nv_byte_perm({0}, {1}, {2})", "mulhi": "((i64){0} * {1} >> 32)",
    "mul64hi": "nv_mul64hi({0}, {1})", "umul64hi": "mulhiui_i64({0}, {1})", "mul24": "nv_mul24({0}, {1})",
    "umul24": "(((u32){0} & 0xffffffu) * ((u32){1} & 0xffffffu))", "brev": "nv_brev({0})", "brevll": "nv_brevll({0})",
    "sad": "((u32)llabs((i64){0} - {1}) + {2})", "usad": "((u32)llabs((i64)(u32){0} - (u32){1}) + {2})",
    "hadd": "(((i64){0} + {1}) >> 1)", "uhadd": "(((u64)(u32){0} + (u32){1}) >> 1)",
    "rhadd": "(((i64){0} + {1} + 1) >> 1)", "urhadd": "(((u64)(u32){0} + (u32){1} + 1) >> 1)",
    "hiloint2double": "nv_hiloint2double({0}, {1})", "double2loint": "bits_f64({0})",
    "double2hiint": "(bits_f64({0}) >> 32)", "uint_as_float": "f32_bits({0})", "float_as_uint": "bits_f32({0})",
    "ynf": "ynf({0}, {1})", "yn": "yn({0}, {1})", "jnf": "jnf({0}, {1})", "jn": "jn({0}, {1})",
    "ldexpf": "ldexpf({0}, {1})", "ldexp": "ldexp({0}, {1})", "scalbnf": "scalbnf({0}, {1})",
    "scalbn": "scalbn({0}, {1})", "powif": "pow({0}, {1})", "powi": "pow({0}, {1})", "ilogbf": "ilogbf({0})",
    "ilogb": "ilogb({0})", "llroundf": "to_i64_f32(roundf({0}))", "llround": "to_i64_f64(round({0}))",
}  # fmt: skip
IN_DOUBLE = {
    "sinpi": "nv_sinpi({0})", "cospi": "nv_cospi({0})", "rhypot": "1.0 / hypot({0}, {1})",
    "norm3d": "nv_norm3d({0}, {1}, {2})", "rnorm3d": "1.0 / nv_norm3d({0}, {1}, {2})", "rcbrt": "1.0 / cbrt({0})",
    "cyl_bessel_i0": "nv_cyl_bessel({0}, 0)", "cyl_bessel_i1": "nv_cyl_bessel({0}, 1)", "erfinv": "nv_erfinv({0})",
    "erfcx": "nv_erfcx({0})", "erfcinv": "nv_erfcinv({0})", "normcdf": "0.5 * erfc((f64){0} * -0.7071067811865475244)",
    "normcdfinv": "-1.4142135623730950488 * nv_erfcinv(2.0 * {0})",
}  # fmt: skip
for name, template in IN_DOUBLE.items():
    SPECIAL |= {name: f"({template})", f"{name}f": f"({template})"}


NEEDS_LIBDEVICE_C = frozenset(name for name, template in SPECIAL.items() if "nv_" in template)
"""Those that call functions of libdevice.c."""


def needs_libdevice(symbol: str) -> bool:
    """Whether a call of libdevice's `symbol` needs libdevice.c."""
    return symbol.removeprefix("__nv_") in NEEDS_LIBDEVICE_C


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
