/* The statistics for one width of key: NAME, KEY, UNSIGNED and MAGNITUDE come from key_statistics.c. */

/* Without a branch: signs are random, and a misprediction costs more than everything else. */
static inline KEY NAME(key)(KEY bits)
{
    KEY negative = bits < 0 ? -1 : 0;
    return ((bits & MAGNITUDE) ^ negative) - negative;
}

/* `n` values of one column. Sums wrap around, hence unsigned. */
FASTEST static int NAME(run_stats)(const KEY *x, int n, KEY lo, KEY hi, UNSIGNED *sum, int64_t *below,
                                  KEY *smallest, KEY *largest, int64_t *inside)
{
    UNSIGNED s = 0;
    KEY low = *smallest, high = *largest;
    int under = 0, found = 0;
    for (int i = 0; i < n; i++) {
        KEY k = NAME(key)(x[i]);
        s += (UNSIGNED)k;
        under += k < lo;
        low = k < low ? k : low;
        high = k > high ? k : high;
    }
    for (int i = 0; i < n; i++) {
        KEY k = NAME(key)(x[i]);
        inside[found] = k;
        found += (k >= lo) & (k <= hi);
    }
    *sum += s;
    *below += under;
    *smallest = low;
    *largest = high;
    return found;
}

/* One value of each of `n` columns; stores in `inside` which of them are in the interval. */
FASTEST static int NAME(row_stats)(const KEY *x, int n, const KEY *restrict lo, const KEY *restrict hi,
                                  UNSIGNED *restrict sum, int64_t *restrict below,
                                  KEY *restrict smallest, KEY *restrict largest, int *restrict inside)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        KEY k = NAME(key)(x[i]);
        sum[i] += (UNSIGNED)k;
        below[i] += k < lo[i];
        smallest[i] = k < smallest[i] ? k : smallest[i];
        largest[i] = k > largest[i] ? k : largest[i];
    }
    for (int i = 0; i < n; i++) {
        KEY k = NAME(key)(x[i]);
        inside[found] = i;
        found += (k >= lo[i]) & (k <= hi[i]);
    }
    return found;
}

/* The share of thread `t` of `threads`. */
static void NAME(stats)(const void *data, int64_t rows, int64_t columns, int64_t inner,
                       int64_t per_channel, const void *lo_, const void *hi_, void *sum_,
                       int64_t *below, void *smallest_, void *largest_, const struct collector *to,
                       int t, int threads)
{
    const KEY *x = data, *lo = lo_, *hi = hi_;
    UNSIGNED *sum = (UNSIGNED *)sum_ + t * columns;
    KEY *smallest = (KEY *)smallest_ + t * columns, *largest = (KEY *)largest_ + t * columns;
    below += t * columns;
    if (inner == 1) {
        int64_t from = rows * t / threads, until = rows * (t + 1) / threads;
        for (int64_t c = 0; c < columns; c += BLOCK) {
            int n = (int)(columns - c < BLOCK ? columns - c : BLOCK), inside[BLOCK + 1];
            for (int64_t row = from; row < until; row++) {
                const KEY *v = x + row * columns + c;
                int found = NAME(row_stats)(v, n, lo + c, hi + c, sum + c, below + c, smallest + c,
                                           largest + c, inside);
                for (int i = 0; i < found; i++) {
                    int64_t k = NAME(key)(v[inside[i]]);
                    add_keys(to, (c + inside[i]) / per_channel, &k, 1);
                }
            }
        }
        return;
    }
    int64_t total = rows * columns * inner, at = total / threads * t;
    int64_t until = t + 1 == threads ? total : total / threads * (t + 1);
    while (at < until) {
        int64_t run = at / inner, c = run % columns, end = (run + 1) * inner, inside[BLOCK + 1];
        end = end < until ? end : until;
        int n = (int)(end - at < BLOCK ? end - at : BLOCK);
        int found = NAME(run_stats)(x + at, n, lo[c], hi[c], sum + c, below + c, smallest + c,
                                   largest + c, inside);
        add_keys(to, c / per_channel, inside, found);
        at += n;
    }
}

#undef NAME
#undef KEY
#undef UNSIGNED
#undef MAGNITUDE
