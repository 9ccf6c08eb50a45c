/* Loops that pass once over memory where operations of torch and numpy take a pass each, with the same bits: they
   perturb all members of a stack, as MemberNoise does, measure how far members lie from the unperturbed one and what
   sums in float32 lose, and compare outputs with their bounds, as compare_elements does. */
typedef long long i64;

/* Members of each replica, those before `first_working` measure float64; a pool of noise has `stride` doubles a member,
   of which every `span` elements take the same. What is multiplied by `up` and `down` overflows in between. */
struct members {
    i64 replicas, members, first_working, span, stride;
    double up, down;
};

/* What an error is multiplied by: a term that underflows, each unit of the amplitude, each of the sum's error. */
struct scales {
    double eta, tiny, factor, sum_error;
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

/* `loses`, `strays` and `ranged` are constants: a loop that asks for a pointer each time is not vectorised. */
static inline __attribute__((always_inline)) void add_to_row(
    double *restrict t, const double *restrict amplitude, const double *restrict sum_error, const double *restrict tiny,
    const double *restrict relative, i64 count, struct scales by, double up, double down, int loses, int strays,
    int ranged)
{
    for (i64 n = 0; n < count; n++) {
        const double given = amplitude[n], size = given - given == 0 ? given : 0;
        double x = t[n];
        if (ranged) x += size * up * 0;
        if (loses) x = ADD_PRODUCT(x, by.tiny * (size > by.eta ? by.eta : size), tiny[n]);
        const double moved = ADD_PRODUCT(x, by.factor * size, relative[n]);
        x = by.factor ? moved : x;
        if (strays) x = ADD_PRODUCT(x, by.sum_error * sum_error[n], relative[n]);
        t[n] = ranged ? x * up * down : x;
    }
}

/* `amplitude` has the shape of the stack; `sum_error`, or null, holds `size` elements of each replica. */
__attribute__((visibility("default"))) void add_errors(
    const struct members *all, double *stack, i64 size, const double *amplitude, const double *sum_error,
    const double *tiny, const double *relative, double eta, double tiny_scale, double factor, double stray_scale)
{
    const struct scales by = {eta, tiny_scale, factor, stray_scale};
    const double up = all->up, down = all->down;
    for (i64 replica = 0; replica < all->replicas; replica++)
        for (i64 member = 0; member < all->members; member++) {
            const i64 row = (replica * all->members + member) * size;
            const double *r = relative + member * all->stride, *z = tiny ? tiny + member * all->stride : 0;
            const int ranged = up && member >= all->first_working;
            for (i64 start = 0; start < size; start += all->span) {
                const i64 rest = size - start, count = rest < all->span ? rest : all->span;
                double *t = stack + row + start;
                const double *a = amplitude + row + start, *s = sum_error ? sum_error + replica * size + start : 0;
                if (z && s && ranged) add_to_row(t, a, s, z, r, count, by, up, down, 1, 1, 1);
                else if (z && s) add_to_row(t, a, s, z, r, count, by, up, down, 1, 1, 0);
                else if (z && ranged) add_to_row(t, a, 0, z, r, count, by, up, down, 1, 0, 1);
                else if (z) add_to_row(t, a, 0, z, r, count, by, up, down, 1, 0, 0);
                else if (s && ranged) add_to_row(t, a, s, 0, r, count, by, up, down, 0, 1, 1);
                else if (s) add_to_row(t, a, s, 0, r, count, by, up, down, 0, 1, 0);
                else if (ranged) add_to_row(t, a, 0, 0, r, count, by, up, down, 0, 0, 1);
                else add_to_row(t, a, 0, 0, r, count, by, up, down, 0, 0, 0);
            }
        }
}

static inline unsigned long long mix(unsigned long long number, unsigned long long factor)
{
    const unsigned long long product = number * factor;
    return product ^ (unsigned long long)((i64)product >> 31);
}

struct change {
    double up, down, largest;
};

static inline double changed(double given, int raises, const struct change *by)
{
    const double size = __builtin_fabs(given), raised = size * by->up;
    if (!(size < __builtin_inf())) return given;
    return __builtin_copysign(raises ? raised > by->largest ? by->largest : raised : size * by->down, given);
}

enum { LINES = 64 };

/* Raises the larger half of each of `lines` lines that begin side by side, of `length` elements `step` apart. */
static void raise_larger(double *t, const double *given, i64 lines, i64 length, i64 step, const struct change *by)
{
    double low[LINES], high[LINES], middle[LINES];
    for (i64 line = 0; line < lines; line++) low[line] = high[line] = __builtin_fabs(given[line]), middle[line] = 0;
    for (i64 n = 0; n < length; n++)
        for (i64 line = 0; line < lines; line++) {
            const double size = __builtin_fabs(given[n * step + line]);
            low[line] = size < low[line] ? size : low[line];
            high[line] = size > high[line] ? size : high[line];
            if (size != size) middle[line] = size;
        }
    for (i64 line = 0; line < lines; line++) middle[line] += 0.5 * high[line] + 0.5 * low[line];
    for (i64 n = 0; n < length; n++)
        for (i64 line = 0; line < lines; line++) {
            const double x = given[n * step + line];
            t[n * step + line] = changed(x, __builtin_fabs(x) > middle[line], by);
        }
}

/* Perturbs the input in one row of each replica, of whose rows all are the same: elements at random, made of their
   magnitudes, where `length` is 0, else the larger half of each line of so many elements `step` apart. */
__attribute__((visibility("default"))) void perturb_inputs(
    double *stack, i64 replicas, i64 rows, i64 size, i64 row, i64 length, i64 step, i64 golden, i64 factor,
    const struct change *by)
{
    for (i64 replica = 0; replica < replicas; replica++) {
        const double *given = stack + replica * rows * size;
        double *t = stack + (replica * rows + row) * size;
        if (!length)
            for (i64 n = 0; n < size; n++) {
                const union { double number; unsigned long long bits; } magnitude = {__builtin_fabs(given[n])};
                t[n] = changed(given[n], mix(mix(magnitude.bits, golden), factor) & 1, by);
            }
        else if (step == 1)
            for (i64 start = 0; start < size; start += length)
                raise_larger(t + start, given + start, 1, length, 1, by);
        else
            for (i64 start = 0; start < step; start += LINES) {
                const i64 rest = step - start;
                raise_larger(t + start, given + start, rest < LINES ? rest : LINES, length, step, by);
            }
    }
}

/* What half a unit in the last place of a format depends on: exponents are those of `least` to `most`, and a number of
   exponent 0 has the half unit `half`. */
struct format {
    double least, most, half;
};

/* Writes the bound of each element, `safety` times its spread and uncertainty, half a unit and `tiny`, and its error over
   that. Returns -1 where an error exceeds its bound, else how many elements are smaller than `coarse` times their
   uncertainty, or their spread where `uncertainty` is null. */
__attribute__((visibility("default"))) i64 compare(
    const double *out, const double *value, const double *spread, const double *uncertainty, i64 count, double safety,
    double tiny, double coarse, const struct format *by, double *bound, double *ratio)
{
    const double *own = uncertainty ? uncertainty : spread;
    i64 beyond = 0, small = 0;
    for (i64 n = 0; n < count; n++) {
        double slack = safety * spread[n];
        if (uncertainty) slack += safety * uncertainty[n];
        const double size = __builtin_fabs(value[n]) + slack, normal = size < by->least ? by->least : size;
        union { double number; unsigned long long bits; } power = {normal < __builtin_inf() ? normal : 0.5};
        power.bits &= 0x7FFull << 52;
        const double half = (power.number > by->most ? by->most : power.number) * by->half;
        const double limit = half + slack + tiny, error = __builtin_fabs(out[n] - value[n]), over = error / limit;
        bound[n] = limit;
        ratio[n] = over == over ? over : 0;
        beyond += !(error <= limit);
        small += own[n] * coarse > __builtin_fabs(out[n]);
    }
    return beyond ? -1 : small;
}

/* Copies the unperturbed member of each replica, and writes how far at most the members from `first` to before `end` lie
   from it, each distance times the member's weight; members of weight 0 do not count. Returns whether all distances are
   finite; where one is not, what is written means nothing. */
__attribute__((visibility("default"))) int measure_spread(
    const double *rows, i64 replicas, i64 members, i64 size, i64 first, i64 end, const double *weights,
    double *restrict value, double *restrict spread)
{
    int is_finite = 1;
    for (i64 replica = 0; replica < replicas; replica++) {
        const double *given = rows + replica * members * size;
        double *v = value + replica * size, *s = spread + replica * size;
        for (i64 n = 0; n < size; n++) v[n] = given[n], s[n] = 0;
        for (i64 member = first; member < end; member++) {
            const double *row = given + member * size, weight = weights[member - first];
            i64 beyond = 0;
            for (i64 n = 0; n < size && weight; n++) {
                const double distance = __builtin_fabs(row[n] - given[n]), counted = distance * weight;
                beyond |= !(distance < __builtin_inf());
                s[n] = counted > s[n] ? counted : s[n];
            }
            if (beyond) is_finite = 0;
        }
    }
    return is_finite;
}

/* Adds up `count` rows of `lanes` numbers, in place: what remains of the second half to the first, again and again. */
static inline __attribute__((always_inline)) void fold(double *rows, i64 count, i64 lanes)
{
    while (count > 1) {
        const i64 half = count / 2;
        double *restrict low = rows;
        const double *restrict high = rows + (count - half) * lanes;
        for (i64 n = 0; n < half * lanes; n++) low[n] += high[n];
        count -= half;
    }
}

/* Raises `found` to how far sums are off whose additions lose `lost`, (count, lanes), which is consumed. */
static inline __attribute__((always_inline)) void take_walk(
    double *restrict lost, double *restrict squares, i64 count, i64 lanes, double deviations, double *restrict found)
{
    for (i64 n = 0; n < count * lanes; n++) {
        const double one = lost[n] - lost[n] == 0 ? lost[n] : 0;
        lost[n] = one, squares[n] = one * one;
    }
    fold(lost, count, lanes);
    fold(squares, count, lanes);
    for (i64 lane = 0; lane < lanes; lane++) {
        const double size = __builtin_fabs(lost[lane]) + deviations * __builtin_sqrt(squares[lane]);
        found[lane] = size > found[lane] ? size : found[lane];
    }
}

/* What each addition loses: of terms in sequence, every one `lanes` numbers behind the last or before it. */
static inline __attribute__((always_inline)) void lose_in_sequence(
    const float *terms, i64 count, i64 step, i64 lanes, double *restrict lost)
{
    float sums[LINES];
    for (i64 lane = 0; lane < lanes; lane++) sums[lane] = terms[lane];
    for (i64 n = 1; n < count; n++)
        for (i64 lane = 0; lane < lanes; lane++) {
            const float left = sums[lane], right = terms[n * step + lane], sum = left + right;
            lost[(n - 1) * lanes + lane] = sum - ((double)left + right);
            sums[lane] = sum;
        }
}

/* The same of terms in a tree, which are consumed: the second half is added to the first, again and again. */
static inline __attribute__((always_inline)) void lose_in_tree(
    float *terms, i64 count, i64 lanes, double *restrict lost)
{
    while (count > 1) {
        const i64 kept = (count + 1) / 2, added = count - kept;
        float *restrict low = terms;
        const float *restrict high = terms + kept * lanes;
        for (i64 n = 0; n < added * lanes; n++) {
            const float left = low[n], right = high[n], sum = left + right;
            lost[n] = sum - ((double)left + right);
            low[n] = sum;
        }
        lost += added * lanes;
        count = kept;
    }
}

static inline __attribute__((always_inline)) void measure_sums(
    const double *given, i64 count, i64 sums, i64 step, i64 apart, i64 lanes, double deviations, double *scratch,
    double *found)
{
    double *lost = scratch, *squares = lost + count * lanes;
    float *terms = (float *)(squares + count * lanes);
    double walks[LINES] = {0};
    for (i64 n = 0; n < count; n++)
        for (i64 lane = 0; lane < lanes; lane++)
            terms[n * lanes + lane] = lane < sums ? given[n * step + lane * apart] : 0;
    lose_in_sequence(terms, count, lanes, lanes, lost);
    take_walk(lost, squares, count - 1, lanes, deviations, walks);
    lose_in_sequence(terms + (count - 1) * lanes, count, -lanes, lanes, lost);
    take_walk(lost, squares, count - 1, lanes, deviations, walks);
    lose_in_tree(terms, count, lanes, lost);
    take_walk(lost, squares, count - 1, lanes, deviations, walks);
    for (i64 lane = 0; lane < lanes && lane < sums; lane++) found[lane] = walks[lane];
}

/* How far sums in float32 of `count` > 1 terms are off in any order, as error_magnitudes does, several sums at a time.
   The terms of a sum are `step` numbers behind each other, the sums `apart`; `scratch` has room for 20 numbers a term. */
__attribute__((visibility("default"))) void measure_sum_errors(
    const double *terms, i64 count, i64 sums, i64 step, i64 apart, double deviations, double *scratch, double *found)
{
    enum { TOGETHER = 8, FEW_TERMS = 4096 };
    i64 sum = 0;
    for (; sum < sums && count <= FEW_TERMS; sum += TOGETHER)
        measure_sums(terms + sum * apart, count, sums - sum, step, apart, TOGETHER, deviations, scratch, found + sum);
    for (; sum < sums; sum++)
        measure_sums(terms + sum * apart, count, 1, step, apart, 1, deviations, scratch, found + sum);
}
