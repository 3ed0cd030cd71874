/* One look at a batch, for the search of order statistics (quantile.py; called by ops/scan.py).
 *
 * Floating-point numbers are compared as integers, their keys: sign and magnitude become an ordinary
 * signed integer, so that -0 and +0 are one key and NaN lies beyond infinity. For every column of a
 * (rows, columns, inner) tensor in memory order the scan finds the sum of the keys (modulo the width
 * of the key), how many are below `lo`, the smallest and the largest; those in [lo, hi] are counted
 * in the bins of their channel, folded, or written down. All of it is integer arithmetic whose order does
 * not matter, so the result does not depend on the number of threads.
 */
#include <stdint.h>
#include <string.h>

enum { BLOCK = 1024 }; /* elements: the second look at a block finds it in the first-level cache */

/* The best instructions of the machine, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define FASTEST __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define FASTEST
#endif

extern int srelu_forked; /* srelu.c */

/* What to do with the keys inside the interval of their channel. */
struct inside {
    const int64_t *gap;   /* per channel: keys up to +-gap count as 0, others are closer to it by gap */
    const int64_t *shift; /* per channel: keys in a bin, as a power of two */
    const int64_t *first; /* per channel: the number of its first bin, folded lo >> shift */
    int64_t *counts;      /* (channels, bins), or NULL: then write the keys down */
    int64_t bins;
    int64_t *kept_keys, *kept_channels; /* `capacity` long */
    int64_t *kept;                      /* how many there were, also beyond the capacity */
    int64_t capacity;
};

static void count(const struct inside *to, int64_t channel, const int64_t *keys, int n)
{
    int64_t *counts = to->counts + channel * to->bins, gap = to->gap[channel];
    for (int i = 0; i < n; i++) {
        int64_t key = keys[i], folded = key > gap ? key - gap : key < -gap ? key + gap : 0;
        __atomic_fetch_add(&counts[(folded >> to->shift[channel]) - to->first[channel]], 1,
                           __ATOMIC_RELAXED);
    }
}

static void keep(const struct inside *to, int64_t channel, const int64_t *keys, int n)
{
    int64_t at = __atomic_fetch_add(to->kept, n, __ATOMIC_RELAXED);
    for (int i = 0; i < n && at + i < to->capacity; i++) {
        to->kept_keys[at + i] = keys[i];
        to->kept_channels[at + i] = channel;
    }
}

static void take(const struct inside *to, int64_t channel, const int64_t *keys, int n)
{
    if (n && to->counts)
        count(to, channel, keys, n);
    else if (n)
        keep(to, channel, keys, n);
}

#define NAME(what) what##_float32
#define KEY int32_t
#define UNSIGNED uint32_t
#define MAGNITUDE INT32_MAX
#include "scan_kernels.h"

#define NAME(what) what##_float64
#define KEY int64_t
#define UNSIGNED uint64_t
#define MAGNITUDE INT64_MAX
#include "scan_kernels.h"

/* `x` holds float32 (wide = 0) or float64 keys' bits; `per_channel` columns make a channel. `lo`,
 * `hi`, and the results `sum`, `smallest`, `largest` are of the key's width; the results have
 * `threads` rows of one entry a column, to be put together by the caller, who has filled them with
 * their neutral values. */
void srelu_look(int wide, int threads, const void *x, int64_t rows, int64_t columns, int64_t inner,
                int64_t per_channel, const void *lo, const void *hi, void *sum, int64_t *below,
                void *smallest, void *largest, const int64_t *gap, const int64_t *shift,
                const int64_t *first, int64_t *counts, int64_t bins, int64_t *kept_keys,
                int64_t *kept_channels, int64_t *kept, int64_t capacity)
{
    struct inside to = {gap, shift, first, counts, bins, kept_keys, kept_channels, kept, capacity};
#pragma omp parallel for schedule(static, 1) num_threads(srelu_forked ? 1 : threads)
    for (int t = 0; t < threads; t++)
        (wide ? scan_float64 : scan_float32)(x, rows, columns, inner, per_channel, lo, hi, sum, below,
                                             smallest, largest, &to, t, threads);
}
