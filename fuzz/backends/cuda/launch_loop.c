/* Launches alike, of which only some arguments differ, without Python in between. Needs no header of CUDA. */
typedef long long i64;
typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

enum { MOST = 512 };

/* `shape` is the grid, the block and the bytes of shared memory. A slot of 8 bytes holds each argument; those of `moving`
   are in launch n the ones of the column `columns + m * count`. The launches go to the streams by turns. Returns the
   first error, 0 where there is none. */
__attribute__((visibility("default"))) int repeat(
    Launch launch, void *function, const unsigned *shape, void *const *streams, i64 turns, i64 *slots, i64 arguments,
    const i64 *moving, i64 moves, const i64 *columns, i64 count)
{
    void *parameters[MOST];
    if (arguments > MOST) return -1;
    for (i64 n = 0; n < arguments; n++) parameters[n] = slots + n;
    for (i64 n = 0; n < count; n++) {
        for (i64 m = 0; m < moves; m++) slots[moving[m]] = columns[m * count + n];
        const int error = launch(function, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6],
                                 streams[n % turns], parameters, 0);
        if (error) return error;
    }
    return 0;
}
