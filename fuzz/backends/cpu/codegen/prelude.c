/* Numerics and reports shared by all kernels. Floats of 8 and 16 bits are held as float and rounded after every
   operation, which is exact for + - * / and sqrt, as 24 >= 2 * 11 + 2 bits. */
#ifndef __TINYC__ /* which gets freestanding.c first */
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#define READ(type, p) ({ type read; memcpy(&read, (const void *)(p), sizeof read); read; })
#define WRITE(type, p, value) do { const type written = value; memcpy((void *)(p), &written, sizeof written); } while (0)
#endif
typedef uint8_t i1, u8; typedef int8_t i8; typedef int16_t i16; typedef int32_t i32; typedef int64_t i64;
typedef uint16_t u16; typedef uint32_t u32; typedef uint64_t u64; typedef float f32; typedef double f64;
#define INLINE static inline __attribute__((always_inline, unused))
#define COLD static __attribute__((noinline, cold, unused))
#define ALIGNED __attribute__((aligned(64), unused))
#if defined(__TINYC__)
#define INDEPENDENT
#define ROLLED
#elif defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define ROLLED
#else
#define INDEPENDENT _Pragma("GCC ivdep")
/* Unrolled into a group of masked loads, some lanes get the mask of others (gcc until 12.3 and 13.2). */
#define ROLLED _Pragma("GCC unroll 1")
#endif

/* What is wrong with one access, and all of those of a launch. */
enum { OUTSIDE_VIEW, UNWRITTEN, CONFLICT, RACE, OVERFLOW, FAILED };
typedef struct { i64 problem, site, program, other, lane, address; } Record;
typedef struct { i64 count, kept; Record record[]; } Report;
typedef union { i64 i; f64 f; } Slot;
typedef struct { u32 program, closed; } Stretch;
#define STRETCHES (1u << 26)
/* A launch, of which `next` programs have run, and the program of it that runs. */
typedef struct {
    const Slot *packed; const i64 *order; i64 programs, next, limit;
    Report *report; Stretch *stretch; u32 stretches; i64 *owner, *reader; u8 *counters;
} Launch;
typedef struct {
    i64 x, y, z, nx, ny, nz, program, shuffle; Launch *all; u32 tag; int stale, acquired, exempt, quiet; jmp_buf stop;
} Run;

/* Of a launch whose memory could not be allocated. It is not freed. */
#define SHORT -2
static Report short_of_memory ALIGNED = {SHORT, 0};
COLD void end_without_memory(Launch *all) {
    free(all->report);
    all->report = &short_of_memory, all->next = all->programs;
}
/* Whether what is wrong was not yet kept of any access of a site. */
COLD int is_new_site(const Report *found, i64 problem, i64 site) {
    for (i64 n = 0; n < found->kept; n++)
        if (found->record[n].problem == problem && found->record[n].site == site) return 0;
    return 1;
}
/* Beyond the limit there is room for the first of each of some more sites, and for one failed assertion, which ends the
   launch and is no violation. */
#define MORE_SITES 16
COLD void report(Run *run, i64 problem, i64 site, i64 address, i64 lane, i64 other) {
    Launch *all = run->all;
    const i64 limit = all->limit > 0 ? all->limit : 1, stops = problem == FAILED;
    if (!all->report) all->report = calloc(1, sizeof(Report) + (limit + MORE_SITES + 1) * sizeof(Record));
    if (!all->report) { end_without_memory(all); longjmp(run->stop, 1); }
    Report *found = all->report;
    const i64 most = limit + MORE_SITES + stops;
    if (found->kept < limit || (found->kept < most && (stops || is_new_site(found, problem, site))))
        found->record[found->kept++] = (Record){problem, site, run->program, other, lane, address};
    found->count += !stops;
    if (all->limit <= 0 || stops) longjmp(run->stop, 1);
}
/* Where an offset that wrapped around was reported, that it also leads outside says nothing more. */
COLD void outside(Run *run, i64 site, i64 address, i64 lane) {
    if (!run->quiet) report(run, OUTSIDE_VIEW, site, address, lane, -1);
}
/* An assertion that does not hold ends the launch. */
COLD void failed(Run *run, i64 site, i64 lane) { report(run, FAILED, site, 0, lane, -1); }
/* How many start addresses an access of `size` bytes has in an argument of `length` bytes. */
INLINE u64 room(i64 length, i64 size) { return length >= size ? (u64)(length - size + 1) : 0; }
/* Whether an access lies in one of the spans of a sorted table: their number, then two addresses each. */
COLD int inside_known(const Run *run, i64 address, i64 size) {
    const i64 *known = (const i64 *)run->all->packed[7].i;
    i64 low = 0, high = known ? known[0] : 0;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (known[1 + 2 * middle] <= address) low = middle + 1; else high = middle;
    }
    return low > 0 && address + size <= known[2 * low];
}
#define INSIDE(address, base, room) __builtin_expect((u64)((address) - (base)) < (room), 1)

INLINE u32 bits_f32(f32 x) { return READ(u32, &x); }
INLINE f32 f32_bits(u32 u) { return READ(f32, &u); }
INLINE u64 bits_f64(f64 x) { return READ(u64, &x); }
INLINE f64 f64_bits(u64 u) { return READ(f64, &u); }

INLINE f32 bf16_bits(u16 h) { return f32_bits((u32)h << 16); }
/* bits_* of a narrow type are those of a held value, which needs no rounding: a NaN that is only moved stays as it is. */
INLINE u16 bits_bf16(f32 x) { return (u16)(bits_f32(x) >> 16); }
/* As cvt.rn.bf16.f32: every NaN becomes 0x7fff. */
INLINE f32 round_bf16(f32 x) {
    u32 u = bits_f32(x);
    return f32_bits((u & 0x7fffffffu) > 0x7f800000u ? 0x7fff0000u : (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
}
/* A NaN keeps its sign and the upper bits of its payload, and becomes quiet, as by a processor's own conversions. */
#if (defined(__F16C__) || defined(__aarch64__)) && (defined(__clang__) ? __clang_major__ >= 15 : __GNUC__ >= 12)
INLINE f32 f16_bits(u16 h) { _Float16 x; memcpy(&x, &h, 2); return (f32)x; }
INLINE u16 narrowed_f16(f32 x) { _Float16 y = (_Float16)x; u16 h; memcpy(&h, &y, 2); return h; }
#else
INLINE f32 f16_bits(u16 h) {
    u32 a = (u32)(h & 0x7fff) << 13;
    f32 x = a > 0x0f800000u ? f32_bits(a | 0x7fc00000u) : a == 0x0f800000u ? f32_bits(0x7f800000u) : f32_bits(a) * 0x1p112f;
    return f32_bits(bits_f32(x) | (u32)(h & 0x8000) << 16);
}
INLINE u16 narrowed_f16(f32 x) {
    u32 u = bits_f32(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (u16)(sign | 0x7e00 | (a >> 13 & 0x1ffu));
    if (a >= 0x477ff000u) return (u16)(sign | 0x7c00);
    if (a < 0x38800000u) return (u16)(sign | (bits_f32(f32_bits(a) + 0.5f) - 0x3f000000u));
    return (u16)(sign | ((a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13));
}
#endif
/* gcc drops a conversion to float and back, which would have made a NaN quiet. */
INLINE u16 bits_f16(f32 x) {
    u16 h = narrowed_f16(x);
    return (h & 0x7fff) > 0x7c00 ? h | 0x200 : h;
}
/* Keeps a NaN's sign and payload, where cvt.rn.f16.f32 gives 0x7fff: that would cost more than the conversion. */
INLINE f32 round_f16(f32 x) { return f16_bits(narrowed_f16(x)); }
/* tf32 as a tensor core reads a float: the low 13 bits do not count (an H200 was seen to truncate both operands). */
INLINE f32 cut_tf32(f32 x) { return x != x ? x : f32_bits(bits_f32(x) & 0xffffe000u); }
/* As cvt.rna.tf32.f32: to nearest, ties away from zero. */
INLINE f32 round_tf32(f32 x) {
    u32 u = bits_f32(x);
    return (u & 0x7f800000u) == 0x7f800000u ? x : f32_bits((u + 0x1000u) & 0xffffe000u);
}
/* A float as the sum of its nearest bfloat16 (part 0), that of the rest, and that of the rest of these. */
INLINE f32 bf16_part(f32 x, int part) {
    const f32 first = round_bf16(x), second = round_bf16(x - first);
    return part == 0 ? first : part == 1 ? second : round_bf16(x - first - second);
}
/* Rounded to odd: a second rounding to 16 bits then equals one rounding. */
INLINE f32 odd_f32(f64 x) {
    f32 y = (f32)x;
    if (x != x || (f64)y == x) return y;
    return f32_bits((bits_f32(y) - (fabs((f64)y) > fabs(x))) | 1u);
}
/* a b + c rounded to odd, where a b is exact: the error of the sum is what Knuth's two-sum finds. */
INLINE f64 odd_fma(f64 a, f64 b, f64 c) {
    f64 product = a * b, sum = product + c, other = sum - product;
    f64 error = (product - (sum - other)) + (c - other);
    u64 bits = bits_f64(sum);
    int inexact = error == error && error != 0.0 && !(bits & 1);
    return inexact ? f64_bits((error > 0.0) == (sum > 0.0) ? bits + 1 : bits - 1) : sum;
}
INLINE f64 odd_i64(i64 x) {
    if (x > -((i64)1 << 53) && x < (i64)1 << 53) return (f64)x;
    return (f64)((x & ~(i64)0xfff) | ((x & 0xfff) ? 0x800 : 0));
}
INLINE f64 odd_u64(u64 x) {
    return x < (u64)1 << 53 ? (f64)x : (f64)((x & ~(u64)0xfff) | ((x & 0xfff) ? 0x800 : 0));
}
/* 8-bit floats as cvt.rn.satfinite.{e4m3x2,e5m2x2}.f32 makes them (PTX ISA, cvt): what is larger than the largest
   finite value, infinity too, becomes that value with its sign; every NaN becomes 0x7f. */
INLINE u8 bits_f8E5M2(f32 x) { return (u8)(bits_f16(x) >> 8); }
INLINE f32 f8E5M2_bits(u8 h) { return f16_bits((u16)(h << 8)); }
INLINE u8 bits_f8E4M3FN(f32 x) {
    u32 u = bits_f32(x), a = u & 0x7fffffffu, sign = u >> 24 & 0x80u;
    u32 small = (u32)(i32)(fabsf(x) * 512.0f), normal = (a >> 20) - (120u << 3);
    return (u8)(sign | (a > 0x7f800000u ? 0x7fu : a < 0x3c800000u ? small : normal));
}
INLINE f32 f8E4M3FN_bits(u8 h) {
    u32 a = h & 0x7fu, sign = (u32)(h & 0x80u) << 24;
    u32 u = a == 0x7fu ? 0x7fc00000u : bits_f32(f32_bits(a << 20) * 0x1p120f);
    return f32_bits(u | sign);
}
#define ROUND_8(name, drop, least, shift, largest) \
    INLINE f32 round_##name(f32 x) { \
        u32 u = bits_f32(x), a = u & 0x7fffffffu, sign = u & 0x80000000u, y = a < largest ? a : largest; \
        u32 normal = (y + (1u << (drop - 1)) - 1u + (y >> drop & 1u)) & ~((1u << drop) - 1u); \
        u32 small = bits_f32(f32_bits(y) + shift - shift); \
        return a > 0x7f800000u ? name##_bits(0x7f) : f32_bits(sign | (y < least ? small : normal)); \
    }
ROUND_8(f8E4M3FN, 20, 0x3c800000u, 0x1p14f, 0x43e00000u) ROUND_8(f8E5M2, 21, 0x38800000u, 0x1p7f, 0x47600000u)
/* As f8E4M3FN and f8E5M2 with a bias that is larger by one, without infinity and -0, whose bits are the only NaN. */
#define UNSIGNED_ZERO_8(name, drop, bias, least, subnormals, shift, largest) \
    INLINE u8 bits_##name(f32 x) { \
        u32 u = bits_f32(x), a = u & 0x7fffffffu, sign = u >> 24 & 0x80u; \
        u32 small = (u32)(i32)(fabsf(x) * subnormals), normal = (a >> drop) - ((127u - bias) << (23 - drop)); \
        return (u8)(a > 0x7f800000u ? 0x80u : a == 0 ? 0u : sign | (a < least ? small : normal)); \
    } \
    INLINE f32 name##_bits(u8 h) { \
        f32 x = f32_bits((h & 0x7fu) << drop) * f32_bits((254u - bias) << 23); \
        return h == 0x80u ? NAN : h & 0x80u ? -x : x; \
    } \
    INLINE f32 round_##name(f32 x) { \
        u32 u = bits_f32(x), a = u & 0x7fffffffu, y = a < largest ? a : largest; \
        u32 normal = (y + (1u << (drop - 1)) - 1u + (y >> drop & 1u)) & ~((1u << drop) - 1u); \
        u32 rest = y < least ? bits_f32(f32_bits(y) + shift - shift) : normal; \
        return a > 0x7f800000u ? NAN : f32_bits(rest ? rest | (u & 0x80000000u) : 0); \
    } \
    INLINE f32 load_##name(i64 p) { return name##_bits(READ(u8, p)); } \
    INLINE void store_##name(i64 p, f32 x) { WRITE(u8, p, bits_##name(x)); }
UNSIGNED_ZERO_8(f8E4M3FNUZ, 20, 8u, 0x3c000000u, 1024.0f, 0x1p13f, 0x43700000u)
UNSIGNED_ZERO_8(f8E5M2FNUZ, 21, 16u, 0x38000000u, 131072.0f, 0x1p6f, 0x47600000u)
static const f32 e2m1_values[16] __attribute__((unused)) = {
    0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
INLINE f32 e8m0_value(i8 s) { return (u8)s == 255 ? NAN : s ? f32_bits((u32)(u8)s << 23) : 0x1p-127f; }
/* PTX's shf: 64 bits of two registers, shifted by at most 32, of which the upper or the lower half is left. */
INLINE u32 shf_left(u32 low, u32 high, u32 by) { return (u32)((((u64)high << 32 | low) << by) >> 32); }
INLINE u32 shf_right(u32 low, u32 high, u32 by) { return (u32)(((u64)high << 32 | low) >> by); }
/* PTX's prmt: each nibble of the selector picks a byte of both registers, or with its upper bit the sign of that byte. */
INLINE u32 prmt(u32 a, u32 b, u32 selector) {
    const u64 bytes = (u64)b << 32 | a;
    u32 result = 0;
    for (int k = 0; k < 4; k++) {
        const u32 pick = selector >> 4 * k & 15u, byte = (u32)(bytes >> 8 * (pick & 7u)) & 255u;
        result |= (pick & 8u ? (byte & 128u ? 255u : 0u) : byte) << 8 * k;
    }
    return result;
}
/* PTX's lop3: any function of three bits, by its table. */
INLINE u32 lop3(u32 a, u32 b, u32 c, u32 table) {
    u32 result = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1u) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return result;
}
/* PTX's .ftz: a subnormal is zero with its sign. */
INLINE f32 flush(f32 x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
/* Fisher and Yates's permutation of [before][count][after] elements along the middle, the same for the same seed and
   count; random numbers by splitmix64. */
COLD void shuffle(i64 seed, void *array, i64 size, i64 before, i64 count, i64 after) {
    for (i64 last = count - 1; last > 0; last--) {
        u64 z = (u64)seed * 0x9e3779b97f4a7c15ull + (u64)last * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull, z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        const i64 other = (i64)((z ^ z >> 31) % ((u64)last + 1));
        for (i64 outer = 0; outer < before; outer++) {
            char *one = (char *)array + (outer * count + last) * after * size;
            char *two = (char *)array + (outer * count + other) * after * size;
            i64 k = 0;
            for (; k + 4 <= after * size; k += 4) {
                const u32 kept = READ(u32, one + k);
                WRITE(u32, one + k, READ(u32, two + k));
                WRITE(u32, two + k, kept);
            }
            for (; k < after * size; k++) { const char kept = one[k]; one[k] = two[k], two[k] = kept; }
        }
    }
}
/* Towards zero. */
INLINE f32 cut_f32(f64 x) {
    f32 y = (f32)x;
    return fabs((f64)y) > fabs(x) ? f32_bits(bits_f32(y) - 1u) : y;
}
/* As Triton's truncation of a half to its upper byte: infinity stays. */
INLINE f32 cut_f8E5M2(f32 x) {
    if (x != x || isinf(x)) return x;
    f32 y = round_f8E5M2(x);
    return fabsf(y) > fabsf(x) ? f8E5M2_bits((u8)(bits_f8E5M2(y) - 1)) : y;
}
INLINE f32 cut_bf16(f32 x) { return x != x ? round_bf16(x) : f32_bits(bits_f32(x) & 0xffff0000u); }
INLINE f32 cut_f16(f32 x) {
    f32 y = round_f16(x);
    if (x != x || !(fabsf(y) > fabsf(x))) return y;
    return f16_bits((u16)(bits_f16(y) - 1));
}

#define MEMORY(name, type) \
    INLINE type load_##name(i64 p) { return READ(type, p); } \
    INLINE void store_##name(i64 p, type x) { WRITE(type, p, x); }
MEMORY(i8, i8) MEMORY(i16, i16) MEMORY(i32, i32) MEMORY(i64, i64) MEMORY(f32, f32) MEMORY(f64, f64)
INLINE i1 load_i1(i64 p) { return load_i8(p) != 0; }
INLINE void store_i1(i64 p, i1 x) { store_i8(p, (i8)x); }
INLINE f32 load_bf16(i64 p) { return bf16_bits((u16)load_i16(p)); }
INLINE void store_bf16(i64 p, f32 x) { store_i16(p, (i16)bits_bf16(x)); }
INLINE f32 load_f16(i64 p) { return f16_bits((u16)load_i16(p)); }
INLINE void store_f16(i64 p, f32 x) { store_i16(p, (i16)bits_f16(x)); }
INLINE f32 load_f8E5M2(i64 p) { return f8E5M2_bits((u8)load_i8(p)); }
INLINE void store_f8E5M2(i64 p, f32 x) { store_i8(p, (i8)bits_f8E5M2(x)); }
INLINE f32 load_f8E4M3FN(i64 p) { return f8E4M3FN_bits((u8)load_i8(p)); }
INLINE void store_f8E4M3FN(i64 p, f32 x) { store_i8(p, (i8)bits_f8E4M3FN(x)); }
/* What a load outside of its argument gives: NaN, or the largest integer. */
#define OUTSIDE(name, type, value) \
    COLD type outside_##name(Run *run, i64 site, i64 p, i64 lane) { outside(run, site, p, lane); return value; }
OUTSIDE(i1, i1, 1) OUTSIDE(i8, i8, INT8_MAX) OUTSIDE(i16, i16, INT16_MAX) OUTSIDE(i32, i32, INT32_MAX)
OUTSIDE(i64, i64, INT64_MAX) OUTSIDE(bf16, f32, NAN) OUTSIDE(f16, f32, NAN) OUTSIDE(f32, f32, NAN)
OUTSIDE(f64, f64, NAN) OUTSIDE(f8E5M2, f32, NAN) OUTSIDE(f8E4M3FN, f32, NAN)
OUTSIDE(f8E5M2FNUZ, f32, NAN) OUTSIDE(f8E4M3FNUZ, f32, NAN)

/* Undefined in C; here as an H200 was seen to do it (benchmarks/gpu_edges.py). Shifts by the width or more empty the value
   (or fill it with the sign); PTX has 32-bit shift amounts, so that of 64 bits the lower half counts. Division by zero,
   which PTX leaves open, gives all ones, quotient and remainder; in 64 bits only 32 ones where the dividend fits in 32
   bits, as it is then divided in 32 bits. */
#define ONES(a) -1
#define ONES_64(a) ((u64)(a) >> 32 ? -1 : (i64)0xffffffff)
#define INTEGER(name, type, utype, amount, width, ones) \
    INLINE type shli_##name(type a, type b) { return (amount)b < width ? (type)((utype)a << (amount)b) : 0; } \
    INLINE type shrui_##name(type a, type b) { return (amount)b < width ? (type)((utype)a >> (amount)b) : 0; } \
    INLINE type shrsi_##name(type a, type b) { return (type)(a >> ((amount)b < width ? (amount)b : width - 1)); } \
    INLINE type divsi_##name(type a, type b) { \
        return b == 0 ? ones(a) : b == -1 ? (type)(0 - (utype)a) : (type)(a / b); \
    } \
    INLINE type remsi_##name(type a, type b) { return b == 0 ? ones(a) : b == -1 ? 0 : (type)(a % b); } \
    INLINE type divui_##name(type a, type b) { return b == 0 ? ones(a) : (type)((utype)a / (utype)b); } \
    INLINE type remui_##name(type a, type b) { return b == 0 ? ones(a) : (type)((utype)a % (utype)b); } \
    INLINE type maxsi_##name(type a, type b) { return a > b ? a : b; } \
    INLINE type minsi_##name(type a, type b) { return a < b ? a : b; } \
    INLINE type maxui_##name(type a, type b) { return (utype)a > (utype)b ? a : b; } \
    INLINE type minui_##name(type a, type b) { return (utype)a < (utype)b ? a : b; } \
    INLINE type absi_##name(type a) { return a < 0 ? (type)(0 - (utype)a) : a; }
INTEGER(i8, i8, u8, u8, 8, ONES) INTEGER(i16, i16, u16, u16, 16, ONES) INTEGER(i32, i32, u32, u32, 32, ONES)
INTEGER(i64, i64, u64, u32, 64, ONES_64)
INLINE i32 mulhiui_i32(i32 a, i32 b) { return (i32)(((u64)(u32)a * (u32)b) >> 32); }
INLINE i64 mulhiui_i64(i64 a, i64 b) {
    const u64 a0 = (u32)a, a1 = (u64)a >> 32, b0 = (u32)b, b1 = (u64)b >> 32;
    const u64 one = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (u32)one;
    return (i64)(a1 * b1 + (one >> 32) + (other >> 32));
}

/* Float to integer as cvt.rzi: out of range saturates (PTX ISA, cvt). NaN is 0 between types of at most 32 bits, and the
   upper bit alone where either has 64, as an H200 was seen to give. What becomes 0 is a case of its own because gcc, with
   -fno-trapping-math, makes a conversion there and back a truncation, which keeps the sign of -0.3. */
#define TO_INTEGER(from, to, low, high, min, max, nan) \
    INLINE to to_##to##_##from(from x) { \
        return x != x ? (to)(nan) : x <= low ? min : x >= high ? max : x > -1 && x < 1 ? 0 : (to)x; \
    }
#define TO_INTEGERS(from, wide) \
    TO_INTEGER(from, i16, -0x1p15, 0x1p15, INT16_MIN, INT16_MAX, wide << 15) \
    TO_INTEGER(from, u16, 0, 0x1p16, 0, UINT16_MAX, wide << 15) \
    TO_INTEGER(from, i32, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX, wide << 31) \
    TO_INTEGER(from, u32, 0, 0x1p32, 0, UINT32_MAX, wide << 31) \
    TO_INTEGER(from, i64, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX, 1ull << 63) \
    TO_INTEGER(from, u64, 0, 0x1p64, 0, UINT64_MAX, 1ull << 63)
TO_INTEGERS(f32, 0u) TO_INTEGERS(f64, 1u)

/* minnum and maxnum prefer the number, minimum and maximum the NaN; -0 < +0 in all of them. */
#define FLOAT(name, utype, bits, from) \
    INLINE name larger_##name(name a, name b) { return a == b ? from(bits(a) & bits(b)) : a > b ? a : b; } \
    INLINE name smaller_##name(name a, name b) { return a == b ? from(bits(a) | bits(b)) : a < b ? a : b; } \
    INLINE name maxnumf_##name(name a, name b) { return a != a ? b : b != b ? a : larger_##name(a, b); } \
    INLINE name minnumf_##name(name a, name b) { return a != a ? b : b != b ? a : smaller_##name(a, b); } \
    INLINE name maximumf_##name(name a, name b) { return a != a ? a : b != b ? b : larger_##name(a, b); } \
    INLINE name minimumf_##name(name a, name b) { return a != a ? a : b != b ? b : smaller_##name(a, b); } \
    INLINE i1 ord_##name(name a, name b) { return a == a && b == b; } \
    INLINE i1 uno_##name(name a, name b) { return a != a || b != b; } \
    INLINE i1 one_##name(name a, name b) { return a < b || a > b; } \
    INLINE i1 ueq_##name(name a, name b) { return !(a < b || a > b); }
FLOAT(f32, u32, bits_f32, f32_bits) FLOAT(f64, u64, bits_f64, f64_bits)
/* A magnitude with the sign of the product of a and b; a NaN stays as it is. */
INLINE f32 xorsign(f32 x, f32 a, f32 b) {
    return x != x ? x : f32_bits((bits_f32(x) & 0x7fffffffu) | ((bits_f32(a) ^ bits_f32(b)) & 0x80000000u));
}
/* NVIDIA's compiler makes this of a remainder: with a large quotient the result may exceed the divisor. */
INLINE f32 remf_f32(f32 x, f32 y) { return isinf(y) ? x : fmaf(-truncf(x / y), y, x); }
INLINE f64 remf_f64(f64 x, f64 y) { return isinf(y) ? x : fma(-trunc(x / y), y, x); }
INLINE f32 rsqrt_f32(f32 x) { return (f32)(1.0 / sqrt((f64)x)); }
INLINE f64 rsqrt_f64(f64 x) { return 1.0 / sqrt(x); }
INLINE i32 leading_i32(i32 x) { return x ? __builtin_clz((u32)x) : 32; }
INLINE i64 leading_i64(i64 x) { return x ? __builtin_clzll((u64)x) : 64; }
