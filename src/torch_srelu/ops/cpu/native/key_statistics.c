/* Per-channel statistics of a batch for streaming quantiles; called by ops/key_statistics.py.
 *
 * Floating-point numbers are compared as integers, their keys: sign and magnitude become an ordinary
 * signed integer, so that -0 and +0 are one key and NaN lies beyond infinity. For every column of a
 * (rows, columns, inner) tensor in memory order the statistics are the sum of the keys (modulo the
 * width of the key), how many are below `lo`, the smallest and the largest; those in [lo, hi] are
 * counted in the histogram of their channel, or collected. All of it is integer arithmetic whose order
 * does not matter, so the result does not depend on the number of threads.
 */
#include <stdint.h>
#include <string.h>

enum { BLOCK = 1024 }; /* elements: the second loop over a block reads it from the first-level cache */

/* The best instructions of the machine, chosen when the library is loaded. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define FASTEST __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define FASTEST
#endif

extern int srelu_forked; /* srelu.c */

/* Where the keys inside the interval of their channel go: a histogram, or a list of keys. */
struct collector {
    const int64_t *gap;   /* per channel: the lambd of softshrink */
    const int64_t *shift; /* per channel: keys in a bin, as a power of two */
    const int64_t *first; /* per channel: the number of its first bin, softshrink(lo) >> shift */
    int64_t *out;         /* (channels, size) counts, or the keys */
    int64_t *channels;    /* of the keys */
    int64_t *collected;   /* number of keys, also beyond the capacity; NULL for a histogram */
    int64_t size;         /* number of bins, or the capacity for keys */
};

static void count_in_bins(const struct collector *to, int64_t channel, const int64_t *keys, int n)
{
    int64_t *counts = to->out + channel * to->size, gap = to->gap[channel];
    for (int i = 0; i < n; i++) {
        int64_t key = keys[i], shrunk = key > gap ? key - gap : key < -gap ? key + gap : 0;
        __atomic_fetch_add(&counts[(shrunk >> to->shift[channel]) - to->first[channel]], 1,
                           __ATOMIC_RELAXED);
    }
}

static void collect(const struct collector *to, int64_t channel, const int64_t *keys, int n)
{
    int64_t at = __atomic_fetch_add(to->collected, n, __ATOMIC_RELAXED);
    for (int i = 0; i < n && at + i < to->size; i++) {
        to->out[at + i] = keys[i];
        to->channels[at + i] = channel;
    }
}

static void add_keys(const struct collector *to, int64_t channel, const int64_t *keys, int n)
{
    if (n)
        (to->collected ? collect : count_in_bins)(to, channel, keys, n);
}

#define NAME(what) what##_float32
#define KEY int32_t
#define UNSIGNED uint32_t
#define MAGNITUDE INT32_MAX
#include "key_statistics_kernels.h"

#define NAME(what) what##_float64
#define KEY int64_t
#define UNSIGNED uint64_t
#define MAGNITUDE INT64_MAX
#include "key_statistics_kernels.h"

/* `x` holds float32 (wide = 0) or float64 keys' bits; `per_channel` columns make a channel. `lo`,
 * `hi`, and the results `sum`, `smallest`, `largest` are of the key's width; the results have
 * `threads` rows of one entry a column, to be reduced by the caller, which has filled them with
 * neutral values. */
void srelu_key_statistics(int wide, int threads, const void *x, int64_t rows, int64_t columns,
                          int64_t inner, int64_t per_channel, const void *lo, const void *hi,
                          void *sum, int64_t *below, void *smallest, void *largest,
                          const int64_t *gap, const int64_t *shift, const int64_t *first,
                          int64_t *out, int64_t *channels, int64_t *collected, int64_t size)
{
    struct collector to = {gap, shift, first, out, channels, collected, size};
#pragma omp parallel for schedule(static, 1) num_threads(srelu_forked ? 1 : threads)
    for (int t = 0; t < threads; t++)
        (wide ? stats_float64 : stats_float32)(x, rows, columns, inner, per_channel, lo, hi, sum, below,
                                               smallest, largest, &to, t, threads);
}
