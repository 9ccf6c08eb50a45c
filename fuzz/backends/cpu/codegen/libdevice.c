/* Functions of CUDA's libdevice that the C library lacks. Only kernels that use one get this text. */
#ifndef __TINYC__
#include <fenv.h>
#endif
/* A rounding mode for one operation: nothing may move across the volatile accesses. */
#define DIRECTED(name, mode, to, from, expression) \
    COLD to name(from a_, from b_, from c_) { \
        volatile from a = a_, b = b_, c = c_; \
        (void)b, (void)c; \
        fesetround(mode); \
        volatile to result = (to)(expression); \
        fesetround(FE_TONEAREST); \
        return result; \
    }
#define MODES(name, to, from, expression) \
    DIRECTED(nv_##name##_rz, FE_TOWARDZERO, to, from, expression) \
    DIRECTED(nv_##name##_rd, FE_DOWNWARD, to, from, expression) \
    DIRECTED(nv_##name##_ru, FE_UPWARD, to, from, expression)
MODES(fadd, f32, f32, a + b) MODES(fsub, f32, f32, a - b) MODES(fmul, f32, f32, a * b) MODES(fdiv, f32, f32, a / b)
MODES(dadd, f64, f64, a + b) MODES(dsub, f64, f64, a - b) MODES(dmul, f64, f64, a * b) MODES(ddiv, f64, f64, a / b)
MODES(frcp, f32, f32, 1.0f / a) MODES(drcp, f64, f64, 1.0 / a)
MODES(fsqrt, f32, f32, sqrtf(a)) MODES(dsqrt, f64, f64, sqrt(a))
MODES(fmaf, f32, f32, fmaf(a, b, c)) MODES(fma, f64, f64, fma(a, b, c))
MODES(double2float, f32, f64, a) MODES(int2float, f32, i32, a) MODES(uint2float, f32, u32, a)
MODES(ll2float, f32, i64, a) MODES(ull2float, f32, u64, a) MODES(ll2double, f64, i64, a) MODES(ull2double, f64, u64, a)

INLINE i32 nv_byte_perm(i32 x, i32 y, i32 s) {
    u64 both = (u64)(u32)y << 32 | (u32)x;
    u32 result = 0;
    for (int k = 0; k < 4; k++) result |= (u32)(both >> 8 * (s >> 4 * k & 7) & 0xff) << 8 * k;
    return (i32)result;
}
INLINE i32 nv_brev(i32 x) {
    u32 result = 0;
    for (int k = 0; k < 32; k++) result |= ((u32)x >> k & 1u) << (31 - k);
    return (i32)result;
}
INLINE i64 nv_brevll(i64 x) { return (i64)((u64)(u32)nv_brev((i32)x) << 32 | (u32)nv_brev((i32)(x >> 32))); }
INLINE i64 nv_mul64hi(i64 x, i64 y) {
    return (i64)((u64)mulhiui_i64(x, y) - (x < 0 ? (u64)y : 0) - (y < 0 ? (u64)x : 0));
}
INLINE i32 nv_mul24(i32 x, i32 y) { return (i32)((u32)((i32)((u32)x << 8) >> 8) * (u32)((i32)((u32)y << 8) >> 8)); }
INLINE f64 nv_hiloint2double(i32 high, i32 low) { return f64_bits((u64)(u32)high << 32 | (u32)low); }

/* sin(pi x) and cos(pi x): the argument is reduced exactly, to at most 1/4 of a turn of pi. */
INLINE f64 nv_sinpi(f64 x) {
    if (isinf(x)) return NAN;
    f64 r = fmod(x, 2.0), a = fabs(r), sign = r < 0 ? -1.0 : 1.0;
    if (a >= 1.0) a -= 1.0, sign = -sign;
    if (a > 0.5) a = 1.0 - a;
    return r == 0.0 || a == 0.0 ? copysign(0.0, x) : sign * (a <= 0.25 ? sin(M_PI * a) : cos(M_PI * (0.5 - a)));
}
INLINE f64 nv_cospi(f64 x) {
    if (isinf(x)) return NAN;
    f64 a = fabs(fmod(x, 2.0)), sign = 1.0;
    if (a > 1.0) a = 2.0 - a;
    if (a > 0.5) a = 1.0 - a, sign = -1.0;
    return a == 0.5 ? 0.0 : sign * (a <= 0.25 ? cos(M_PI * a) : sin(M_PI * (0.5 - a)));
}
INLINE f64 nv_norm3d(f64 x, f64 y, f64 z) { return hypot(hypot(x, y), z); }

/* exp(x^2) erfc(x): beyond 8 by the continued fraction of erfc, from its 60th term inwards. */
COLD f64 nv_erfcx(f64 x) {
    if (x < 8.0) return exp(x * x) * erfc(x);
    f64 tail = 0.0;
    for (int k = 60; k > 0; k--) tail = 0.5 * k / (x + tail);
    return 1.0 / (sqrt(M_PI) * (x + tail));
}
/* The inverse of erfc below 1/2, by Newton's method on its logarithm, also where erfc underflows. */
COLD f64 nv_tail(f64 y) {
    f64 x = sqrt(-log(y));
    for (int k = 0; k < 12; k++) {
        f64 scaled = nv_erfcx(x), logarithm = x < 8.0 ? log(erfc(x)) : log(scaled) - x * x;
        x += (logarithm - log(y)) * scaled * (0.5 * sqrt(M_PI));
    }
    return x;
}
COLD f64 nv_erfinv(f64 z) {
    f64 a = fabs(z), x = a * (0.5 * sqrt(M_PI));
    if (!(a <= 1.0)) return NAN;
    if (a == 1.0) return z * INFINITY;
    if (a > 0.5) return copysign(nv_tail(1.0 - a), z);
    for (int k = 0; k < 6; k++) x -= (erf(x) - a) * exp(x * x) * (0.5 * sqrt(M_PI));
    return copysign(x, z);
}
COLD f64 nv_erfcinv(f64 y) {
    if (!(y >= 0.0 && y <= 2.0)) return NAN;
    if (y == 0.0 || y == 2.0) return y == 0.0 ? INFINITY : -INFINITY;
    return y < 0.5 ? nv_tail(y) : y > 1.5 ? -nv_tail(2.0 - y) : nv_erfinv(1.0 - y);
}
/* Modified Bessel functions of order n = 0, 1: their integral by the trapezoidal rule, which converges geometrically for
   a periodic integrand; near 0 their series. */
COLD f64 nv_cyl_bessel(f64 x, int n) {
    f64 a = fabs(x), sum = 0.0, term = 1.0;
    if (a < 1.0) {
        for (int k = 0; k < 16; k++) sum += term, term *= 0.25 * a * a / ((k + 1.0) * (k + 1.0 + n));
        return n ? 0.5 * x * sum : sum;
    }
    if (isinf(a) || x != x) return n ? x : a;
    for (int k = 0; k < 512; k++) {
        f64 c = cos(2.0 * M_PI * k / 512.0);
        sum += exp(a * (c - 1.0)) * (n ? c : 1.0);
    }
    sum = exp(0.5 * a) * (sum / 512.0) * exp(0.5 * a);
    return n ? copysign(sum, x) : sum;
}
