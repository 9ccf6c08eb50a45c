/* Perturbs all members of a stack in one pass over its memory: the operations, and the bits, of MemberNoise. */
typedef long long i64;

/* Members of each replica, those before `first_working` measure float64; a pool of noise has `stride` doubles a member,
   of which every `span` elements take the same. What is multiplied by `up` and `down` overflows in between. */
struct members {
    i64 replicas, members, first_working, span, stride;
    double up, down;
};

/* What an error is multiplied by: a term that underflows, each unit of the amplitude, each of the stray. */
struct scales {
    double eta, tiny, factor, stray;
};

#ifdef __FP_FAST_FMA
#define ADD_PRODUCT(sum, x, y) __builtin_fma(x, y, sum)
#else
#define ADD_PRODUCT(sum, x, y) ((sum) + (x) * (y))
#endif

static inline __attribute__((always_inline)) void round_row(
    double *restrict t, const double *restrict factor, const double *restrict tiny, i64 count, double eta, double up,
    double down, int loses, int ranged)
{
    for (i64 n = 0; n < count; n++) {
        double x = t[n];
        if (loses) {
            const double raised = x < -eta ? -eta : x;
            x = ADD_PRODUCT(x, raised > eta ? eta : raised, tiny[n]);
        }
        x *= factor[n];
        t[n] = ranged ? x * up * down : x;
    }
}

/* `stack` holds `size` elements of each member of each replica; `factor` and `tiny`, or null, are at the current step's
   offset in their pools. The first member is unperturbed: its noise is 1 and 0, which changes nothing. */
__attribute__((visibility("default"))) void round_members(
    const struct members *all, double *stack, i64 size, const double *factor, const double *tiny, double eta)
{
    for (i64 replica = 0; replica < all->replicas; replica++)
        for (i64 member = 1; member < all->members; member++) {
            double *row = stack + (replica * all->members + member) * size;
            const double *f = factor + member * all->stride, *z = tiny ? tiny + member * all->stride : 0;
            const int ranged = all->up && member >= all->first_working;
            for (i64 start = 0; start < size; start += all->span) {
                const i64 rest = size - start, count = rest < all->span ? rest : all->span;
                double *t = row + start;
                if (z && ranged) round_row(t, f, z, count, eta, all->up, all->down, 1, 1);
                else if (z) round_row(t, f, z, count, eta, 0, 0, 1, 0);
                else if (ranged) round_row(t, f, 0, count, eta, all->up, all->down, 0, 1);
                else round_row(t, f, 0, count, eta, 0, 0, 0, 0);
            }
        }
}

static inline __attribute__((always_inline)) void add_to_row(
    double *restrict t, const double *restrict amplitude, const double *restrict stray, const double *restrict tiny,
    const double *restrict relative, i64 count, const struct scales *by, double up, double down, int loses, int ranged)
{
    for (i64 n = 0; n < count; n++) {
        const double given = amplitude[n], size = given - given == 0 ? given : 0;
        double x = t[n];
        if (ranged) x += size * up * 0;
        if (loses) x = ADD_PRODUCT(x, by->tiny * (size > by->eta ? by->eta : size), tiny[n]);
        if (by->factor) x = ADD_PRODUCT(x, by->factor * size, relative[n]);
        if (stray) x = ADD_PRODUCT(x, by->stray * stray[n], relative[n]);
        t[n] = ranged ? x * up * down : x;
    }
}

/* `amplitude` has the shape of the stack; `stray`, or null, holds `size` elements of each replica. */
__attribute__((visibility("default"))) void add_errors(
    const struct members *all, double *stack, i64 size, const double *amplitude, const double *stray,
    const double *tiny, const double *relative, const struct scales *by)
{
    for (i64 replica = 0; replica < all->replicas; replica++)
        for (i64 member = 0; member < all->members; member++) {
            const i64 row = (replica * all->members + member) * size;
            const double *r = relative + member * all->stride, *z = tiny ? tiny + member * all->stride : 0;
            const int ranged = all->up && member >= all->first_working;
            for (i64 start = 0; start < size; start += all->span) {
                const i64 rest = size - start, count = rest < all->span ? rest : all->span;
                double *t = stack + row + start;
                const double *a = amplitude + row + start, *s = stray ? stray + replica * size + start : 0;
                if (z && ranged) add_to_row(t, a, s, z, r, count, by, all->up, all->down, 1, 1);
                else if (z) add_to_row(t, a, s, z, r, count, by, 0, 0, 1, 0);
                else if (ranged) add_to_row(t, a, s, 0, r, count, by, all->up, all->down, 0, 1);
                else add_to_row(t, a, s, 0, r, count, by, 0, 0, 0, 0);
            }
        }
}
