
/* Exact arithmetic for proofs about a block: whatever overflows sets `slow`, and the block is checked lane by lane. */
INLINE i64 plus(i64 a, i64 b, int *slow) { i64 c; *slow |= __builtin_add_overflow(a, b, &c); return c; }
INLINE i64 times(i64 a, i64 b, int *slow) { i64 c; *slow |= __builtin_mul_overflow(a, b, &c); return c; }
INLINE i64 lesser(i64 a, i64 b, int *slow) { return a < b ? a : b; }
INLINE i64 greater(i64 a, i64 b, int *slow) { return a > b ? a : b; }
INLINE i64 over(i64 a, i64 b, int *slow) { return b > 0 ? a / b : 0; }
#define FITS(low, high) ((low) >= INT32_MIN && (high) <= INT32_MAX)

#define RAW(bits) \
    INLINE u##bits raw_##bits(i64 p) { return READ(u##bits, p); }
RAW(8) RAW(16) RAW(32) RAW(64)
INLINE u32 get_tag(i64 p) { return raw_32(p); }
INLINE void set_tag(i64 p, u32 x) { WRITE(u32, p, x); }

/* Memory that was allocated and holds `poison`: an element is unwritten while its bits are those of the poison and its
   byte of the shadow is 0. Whoever writes the poison's bits themselves must set the shadow. */
INLINE int is_unwritten(i64 address, i64 shadow, i64 size) {
    if (!shadow) return 0;
    for (i64 k = 0; k < size; k++) if (raw_8(shadow + address + k)) return 0;
    return 1;
}
INLINE void written(i64 address, i64 shadow, i64 size) { if (shadow) memset((void *)(shadow + address), 1, size); }

/* The offset's 32-bit arithmetic wrapped around: the address says so in its upper bits, of which real ones are 0. It is
   moved up by BIAS, because an offset may lead below 0 from an argument that lies low in memory. */
#define BIAS ((i64)1 << 46)
#define TAG(number) (BIAS + (i64)((u64)22 << 58 | (u64)((number) & 1023) << 48))
#define TAGGED(address) (__builtin_expect(((u64)(address) >> 58) == 22, 0))
#define UNTAGGED(address) ((i64)((u64)(address) & 0xffffffffffffu) - BIAS)
COLD i64 overflowed(Run *run, i64 site, i64 address, i64 lane) {
    run->quiet = 1;
    report(run, OVERFLOW, site, UNTAGGED(address), lane, ((u64)address >> 48) & 1023);
    return UNTAGGED(address);
}

/* Who stored or loaded an element last: the tag of a stretch of a program between two atomic operations.
   Two stretches are in order if the earlier one was followed, and the later one preceded, by an atomic operation of its
   program: locks, counters and flags are made of these. */
#define MANY 0x80000000u
COLD void begin_stretch(Run *run) {
    Launch *all = run->all;
    const u32 tag = ++all->stretches;
    if (tag >= STRETCHES) { run->tag = 0; return; }
    all->stretch[tag] = (Stretch){(u32)run->program + 1, 0};
    run->tag = tag;
}
/* A program that synchronised begins a new stretch when it next touches memory. */
INLINE u32 own_tag(Run *run) {
    if (run->all->stretch && run->stale) run->stale = 0, begin_stretch(run);
    return run->tag;
}
INLINE void synchronise(Run *run) {
    if (!run->all->stretch) return;
    if (run->tag) run->all->stretch[run->tag].closed = 1;
    run->acquired = run->stale = 1;
}
INLINE i64 program_of(Run *run, u32 tag) {
    tag &= ~MANY;
    return (i64)(run->all->stretch ? run->all->stretch[tag].program : tag) - 1;
}
INLINE int in_order(Run *run, u32 tag) {
    Stretch *stretch = run->all->stretch;
    return run->exempt || (stretch && run->acquired && stretch[tag & ~MANY].closed);
}
/* Before a store of `bits` by this program. */
COLD void check_store(Run *run, i64 site, i64 address, i64 lane, i64 size, u64 bits, u32 owner, u32 reader) {
    if (!memcmp((const void *)address, &bits, size)) return;
    if (owner && program_of(run, owner) != run->program && !in_order(run, owner)) {
        report(run, CONFLICT, site, address, lane, program_of(run, owner));
    } else if (reader && !in_order(run, reader)) {
        i64 other = program_of(run, reader);
        if (other == run->program && !(reader & MANY)) return;
        report(run, RACE, site, address, lane, other == run->program ? -1 : other);
    }
}
/* Before a load by this program. */
COLD void check_load(Run *run, i64 site, i64 address, i64 lane, u32 owner) {
    if (program_of(run, owner) != run->program && !in_order(run, owner))
        report(run, RACE, site, address, lane, program_of(run, owner));
}
/* Of several readers the last is kept, and that there were others; where programs synchronise, the last alone. */
INLINE u32 merge_readers(u32 reader, u32 tag, int synchronises) {
    return synchronises ? tag : reader == 0 || (reader & ~MANY) == tag ? reader | tag : MANY | tag;
}
/* Large memory is reserved only, and takes no more than what is touched. */
#define LARGE (1 << 22)
static void *zeroed(i64 size) {
    if (size < LARGE) return calloc(1, size);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
static void unmap(void *p, i64 size) {
    if (size < LARGE) free(p); else if (p) munmap(p, size);
}

/* Counters saturate, as a fuzzer's do. */
INLINE void count(u8 *counter) { *counter += *counter < 255; }
INLINE i64 bucket(i64 n) { return n < 4 ? n : n < 8 ? 4 : n < 16 ? 5 : n < 32 ? 6 : n < 128 ? 7 : 8; }
#ifdef __TINYC__
/* Accesses of every lane, where nothing is inlined. */
#define load_i8(p) READ(i8, p)
#define load_i16(p) READ(i16, p)
#define load_i32(p) READ(i32, p)
#define load_i64(p) READ(i64, p)
#define load_f32(p) READ(f32, p)
#define load_f64(p) READ(f64, p)
#define store_i8(p, x) WRITE(i8, p, x)
#define store_i16(p, x) WRITE(i16, p, x)
#define store_i32(p, x) WRITE(i32, p, x)
#define store_i64(p, x) WRITE(i64, p, x)
#define store_f32(p, x) WRITE(f32, p, x)
#define store_f64(p, x) WRITE(f64, p, x)
#define raw_16(p) READ(u16, p)
#define raw_32(p) READ(u32, p)
#define raw_64(p) READ(u64, p)
#define get_tag(p) READ(u32, p)
#define set_tag(p, x) WRITE(u32, p, x)
#endif
