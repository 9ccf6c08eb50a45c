/* What the in-process compiler gets instead of the C library's headers, which a machine without a C compiler lacks: the
   part of them that kernels use, for Linux on x86-64. The names declared `extern` are looked up in this process. */
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned uint32_t; typedef long int64_t; typedef unsigned long uint64_t, size_t;
#define NULL ((void *)0)
#define INT8_MAX 127
#define INT16_MAX 32767
#define INT16_MIN (-32768)
#define UINT16_MAX 65535
#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807l
#define INT64_MIN (-9223372036854775807l - 1)
#define UINT64_MAX 18446744073709551615ul
#define M_PI 3.14159265358979323846
typedef struct { uint64_t words[64]; } jmp_buf[1];
extern int _setjmp(jmp_buf);
extern void longjmp(jmp_buf, int);
extern void *malloc(size_t);
extern void *calloc(size_t, size_t);
extern void free(void *);
extern void *memcpy(void *, const void *, size_t);
extern void *memset(void *, int, size_t);
extern int memcmp(const void *, const void *, size_t);
extern void *mmap(void *, size_t, int, int, int, int64_t);
extern int munmap(void *, size_t);
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 0x20
#define MAP_NORESERVE 0x4000
#define MAP_FAILED ((void *)-1)
extern void *stderr;
extern void *stdout;
extern int fflush(void *);
extern int fprintf(void *, const char *, ...);
extern int64_t llabs(int64_t);
extern int fesetround(int);
#define FE_TONEAREST 0
#define FE_DOWNWARD 0x400
#define FE_UPWARD 0x800
#define FE_TOWARDZERO 0xc00
#define REAL_1(name) extern double name(double); extern float name##f(float);
#define REAL_2(name) extern double name(double, double); extern float name##f(float, float);
REAL_1(acos) REAL_1(acosh) REAL_1(asin) REAL_1(asinh) REAL_1(atan) REAL_1(atanh) REAL_1(cbrt) REAL_1(ceil) REAL_1(cos)
REAL_1(cosh) REAL_1(erf) REAL_1(erfc) REAL_1(exp) REAL_1(exp2) REAL_1(expm1) REAL_1(fabs) REAL_1(floor) REAL_1(j0)
REAL_1(j1) REAL_1(lgamma) REAL_1(log) REAL_1(log10) REAL_1(log1p) REAL_1(log2) REAL_1(logb) REAL_1(nearbyint)
REAL_1(rint) REAL_1(round) REAL_1(sin) REAL_1(sinh) REAL_1(sqrt) REAL_1(tan) REAL_1(tanh) REAL_1(tgamma) REAL_1(trunc)
REAL_1(y0) REAL_1(y1) REAL_2(atan2) REAL_2(copysign) REAL_2(fdim) REAL_2(fmax) REAL_2(fmin) REAL_2(fmod) REAL_2(hypot)
REAL_2(nextafter) REAL_2(pow) REAL_2(remainder)
extern double fma(double, double, double), jn(int, double), yn(int, double), ldexp(double, int), scalbn(double, int);
extern float fmaf(float, float, float), jnf(int, float), ynf(int, float), ldexpf(float, int), scalbnf(float, int);
extern int ilogb(double), ilogbf(float);
#define READ(type, p) (*(type *)(p))
#define WRITE(type, p, value) (*(type *)(p) = (value))
static inline float float_of(uint32_t bits) { return READ(float, &bits); }
#define INFINITY float_of(0x7f800000u)
#define NAN float_of(0x7fc00000u)
#define __builtin_inff() INFINITY
#define __builtin_inf() ((double)INFINITY)
static inline int isnan(double x) { return x != x; }
static inline int signbit(double x) { return *(int64_t *)&x < 0; }
static inline int isinf(double x) { return fabs(x) > 0x1.fffffffffffffp1023; }
static inline int isfinite(double x) { return fabs(x) <= 0x1.fffffffffffffp1023; }
static inline int __builtin_add_overflow(int64_t a, int64_t b, int64_t *sum) {
    *sum = (int64_t)((uint64_t)a + (uint64_t)b);
    return ((a ^ *sum) & (b ^ *sum)) < 0;
}
static inline int __builtin_mul_overflow(int64_t a, int64_t b, int64_t *product) {
    *product = (int64_t)((uint64_t)a * (uint64_t)b);
    return a == -1 ? b == INT64_MIN : a != 0 && *product / a != b;
}
