/* Repeats a launch of which only some arguments differ, without Python in between. Needs no header of CUDA. */
typedef long long i64;
typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

enum { MOST_ARGUMENTS = 512 };

/* `shape` holds the grid, the block and the bytes of shared memory. A slot of 8 bytes holds each argument; in launch n
   the slot `moving[m]` holds `columns[m * count + n]`. Launches alternate between the streams. Returns the first error,
   0 where there is none. */
__attribute__((visibility("default"))) int repeat(
    Launch launch, void *function, const unsigned *shape, void *const *streams, i64 stream_count, i64 *slots,
    i64 slot_count, const i64 *moving, i64 moving_count, const i64 *columns, i64 count)
{
    void *parameters[MOST_ARGUMENTS];
    if (slot_count > MOST_ARGUMENTS) return -1;
    for (i64 n = 0; n < slot_count; n++) parameters[n] = slots + n;
    for (i64 n = 0; n < count; n++) {
        for (i64 m = 0; m < moving_count; m++) slots[moving[m]] = columns[m * count + n];
        const int error = launch(function, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6],
                                 streams[n % stream_count], parameters, 0);
        if (error) return error;
    }
    return 0;
}
