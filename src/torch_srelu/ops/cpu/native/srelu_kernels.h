/* Forward and backward for one instruction set and dtype (srelu_dtypes.h), built on the loops of
 * srelu_loops.h: division among threads, order of computation, and partial sums. */

/* A NaN in bfloat16 ends with 16 zeros. So does every NaN computed from it if those in the parameters
 * do too, and then rounding back to bfloat16 keeps it NaN. */
static inline A NAME(parameter)(const void *const *params, int which, int64_t c)
{
    A value = ((const A *)params[which])[c];
    return value == value ? value : (A)NAN;
}

static inline NAME(Channel) NAME(channel)(const void *const *params, int64_t c)
{
    return NAME(derive)(NAME(parameter)(params, 0, c), NAME(parameter)(params, 1, c),
                        NAME(parameter)(params, 2, c), NAME(parameter)(params, 3, c));
}

/* The table of a row: enough periods of channels * inner columns for a long vector loop, in whole
 * words. Column k is at k / LANES of the part that belongs to its lane. The caller frees what
 * is returned; NULL: no memory. */
static A *NAME(make_table)(NAME(Columns) * t, const void *const *params, int64_t channels,
                           int64_t inner)
{
    int64_t period = channels * inner * (channels * inner % LANES ? LANES : 1);
    int64_t width = period * ((MIN_WIDTH + period - 1) / period), words = width / LANES;
    A *table = aligned_zeros(4 * width * sizeof(A));
    if (!table)
        return NULL;
    *t = (NAME(Columns)){words, table, table + width, table + 2 * width, table + 3 * width};
    for (int s = 0; s < 4; s++)
        for (int64_t k = 0, run = 0; k < width; run++) {
            A value = NAME(parameter)(params, s, run % channels);
            for (int64_t i = 0; i < inner; i++, k++)
                table[s * width + k % LANES * words + k / LANES] = value;
        }
    return table;
}

/* The table from word k on. */
static inline NAME(Columns) NAME(from)(NAME(Columns) t, int64_t k)
{
    return (NAME(Columns)){t.words, t.t_r + k, t.a_r + k, t.t_l + k, t.a_l + k};
}

/* ---- forward ---- */

static void NAME(forward_elements)(const T *x, T *y, int64_t n, NAME(Channel) c)
{
    NAME(forward_run)((const WORD *)x, (WORD *)y, n / LANES, c);
    if (n % LANES) {
        WORD last = PAD(x[n - 1]), out;
        NAME(forward_run)(&last, &out, 1, c);
        y[n - 1] = (T)out;
    }
}

/* Elements `k` to `end`; `k` is the beginning of a row. */
static void NAME(forward_rows)(const T *x, T *y, int64_t k, int64_t end, NAME(Columns) t)
{
    int64_t width = LANES * t.words, tile = TILE * width;
    for (; k + tile <= end; k += tile) {
        prefetch(x + k + tile, tile * sizeof(T));
        NAME(forward_tile)((const WORD *)(x + k), (WORD *)(y + k), t.words, t, TILE);
    }
    for (; k < end; k += width) {
        int64_t n = min_i64(width, end - k), words = n / LANES;
        NAME(forward_tile)((const WORD *)(x + k), (WORD *)(y + k), words, t, 1);
        if (n % LANES) {
            WORD last = PAD(x[k + n - 1]), out;
            NAME(forward_tile)(&last, &out, 1, NAME(from)(t, words), 1);
            y[k + n - 1] = (T)out;
        }
    }
}

static int NAME(forward)(const void *x_, void *y_, const void *const *params, int64_t outer,
                         int64_t channels, int64_t inner, int threads)
{
    const T *x = x_;
    T *y = y_;
    int64_t n = outer * channels * inner, chunks = count_chunks(n, 1);
    int uncached = n * (int64_t)sizeof(T) > CACHED;
    threads = usable_threads(threads, chunks);

    if (channels == 1 || inner >= SHORT_RUN) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t j = 0; j < chunks; j++) {
            int64_t start = chunk_start(n, ALIGNED, j, chunks);
            int64_t end = chunk_start(n, ALIGNED, j + 1, chunks);
            if (uncached)
                prefault(y + start, (end - start) * sizeof(T));
            for (int64_t k = start, run; k < end; k += run) {
                NAME(Channel) c = NAME(channel)(params, k / inner % channels);
                run = min_i64(min_i64(inner - k % inner, end - k), BLOCK);
                if (uncached)
                    prefetch(x + k + BLOCK, run * sizeof(T));
                NAME(forward_elements)(x + k, y + k, run, c);
            }
        }
        return 0;
    }
    NAME(Columns) t;
    A *table = NAME(make_table)(&t, params, channels, inner);
    if (!table)
        return 1;
    int64_t unit = row_alignment(n, LANES * t.words);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t j = 0; j < chunks; j++) {
        int64_t start = chunk_start(n, unit, j, chunks), end = chunk_start(n, unit, j + 1, chunks);
        if (uncached)
            prefault(y + start, (end - start) * sizeof(T));
        NAME(forward_rows)(x, y, start, end, t);
    }
    free(table);
    return 0;
}

/* ---- backward: gx or the sums may be NULL, then they are not computed ---- */

static inline T *NAME(offset_or_null)(T *gx, int64_t k) { return gx ? gx + k : NULL; }

/* Up to BLOCK words. The compiler may select the order in which a loop adds up. So there is only one
 * loop with sums: they have the same bits whether or not the gradient of the input is needed. */
static NAME(Sums) NAME(backward_words)(const WORD *g, const WORD *x, WORD *gx, int64_t n,
                                       NAME(Channel) c, int need_sums)
{
    WORD discarded[BLOCK];
    if (!need_sums)
        return NAME(backward_run)(g, x, gx, n, c, 0);
    return NAME(backward_run)(g, x, gx ? gx : discarded, n, c, 1);
}

/* Up to BLOCK elements of one channel; adds to sums[0], [stride], [2 stride], [3 stride]. */
static void NAME(backward_elements)(const T *g, const T *x, T *gx, int64_t n, NAME(Channel) c,
                                    double *sums, int64_t stride)
{
    int need_sums = sums != NULL;
    NAME(Sums) partial = NAME(backward_words)((const WORD *)g, (const WORD *)x, (WORD *)gx,
                                              n / LANES, c, need_sums);
    if (n % LANES) {
        WORD last_g = PAD(g[n - 1]), last_x = PAD(x[n - 1]), out;
        WORD *to = gx ? &out : NULL;
        partial = NAME(plus)(partial, NAME(backward_words)(&last_g, &last_x, to, 1, c, need_sums));
        if (gx)
            gx[n - 1] = (T)out;
    }
    if (sums) {
        sums[0] += partial.right0, sums[stride] += partial.right1;
        sums[2 * stride] += partial.left0, sums[3 * stride] += partial.left1;
    }
}

ALWAYS_INLINE void NAME(backward_needed)(const WORD *g, const WORD *x, WORD *gx, int64_t n,
                                         NAME(Columns) t, A *sums, const int rows)
{
    if (!sums)
        NAME(backward_tile)(g, x, gx, n, t, sums, rows, 1, 0);
    else if (gx)
        NAME(backward_tile)(g, x, gx, n, t, sums, rows, 1, 1);
    else
        NAME(backward_tile)(g, x, gx, n, t, sums, rows, 0, 1);
}

static void NAME(backward_row)(const WORD *g, const WORD *x, WORD *gx, int64_t n, NAME(Columns) t,
                               A *sums)
{
    NAME(backward_needed)(g, x, gx, n, t, sums, 1);
}

/* Elements `k` to `end`; `k` is the beginning of a row. */
static void NAME(backward_rows)(const T *g, const T *x, T *gx, int64_t k, int64_t end,
                                NAME(Columns) t, A *sums)
{
    int64_t width = LANES * t.words, tile = TILE * width;
    for (; k + tile <= end; k += tile) {
        prefetch(g + k + tile, tile * sizeof(T));
        prefetch(x + k + tile, tile * sizeof(T));
        NAME(backward_needed)((const WORD *)(g + k), (const WORD *)(x + k),
                              (WORD *)NAME(offset_or_null)(gx, k), t.words, t, sums, TILE);
    }
    for (; k < end; k += width) {
        int64_t n = min_i64(width, end - k), words = n / LANES, last = k + n - 1;
        NAME(backward_row)((const WORD *)(g + k), (const WORD *)(x + k),
                           (WORD *)NAME(offset_or_null)(gx, k), words, t, sums);
        if (n % LANES) {
            WORD last_g = PAD(g[last]), last_x = PAD(x[last]), out;
            NAME(backward_row)(&last_g, &last_x, gx ? &out : NULL, 1, NAME(from)(t, words),
                               sums ? sums + words : NULL);
            if (gx)
                gx[last] = (T)out;
        }
    }
}

/* Adds up the slots of all chunks in order. slots: (chunks, 4, lanes, width / lanes); column k of a
 * row belongs to channel k / inner % channels. */
ALWAYS_INLINE void NAME(finish)(double *slots, int64_t chunks, int64_t width, const int lanes,
                                int64_t inner, int64_t channels, const void *const *params,
                                A *grad_params)
{
    for (int64_t j = 1; j < chunks; j++)
        for (int64_t s = 0; s < 4 * width; s++)
            slots[s] += slots[j * 4 * width + s];
    for (int64_t c = 0; c < channels; c++) {
        double sum[4] = {0, 0, 0, 0};
        for (int64_t start = c * inner; start < width; start += channels * inner)
            for (int64_t k = start; k < start + inner; k++)
                for (int s = 0; s < 4; s++)
                    sum[s] += slots[s * width + k % lanes * (width / lanes) + k / lanes];
        NAME(Channel) p = NAME(channel)(params, c);
        grad_params[c] = (A)(sum[0] * (1 - p.a_r));
        grad_params[channels + c] = (A)sum[1];
        grad_params[2 * channels + c] = (A)(sum[2] * (1 - p.a_l));
        grad_params[3 * channels + c] = (A)sum[3];
    }
}

static int NAME(backward_runs)(const T *g, const T *x, T *gx, const void *const *params,
                               A *grad_params, int64_t outer, int64_t channels,
                               int64_t inner, int threads)
{
    int64_t n = outer * channels * inner, chunks = count_chunks(n, grad_params ? channels : 1);
    double *slots = grad_params ? calloc(chunks * 4 * channels, sizeof(double)) : NULL;
    if (grad_params && !slots)
        return 1;
    int uncached = n * (int64_t)sizeof(T) > CACHED;
    threads = usable_threads(threads, chunks);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t j = 0; j < chunks; j++) {
        int64_t start = chunk_start(n, ALIGNED, j, chunks);
        int64_t end = chunk_start(n, ALIGNED, j + 1, chunks);
        if (uncached)
            prefault(NAME(offset_or_null)(gx, start), (end - start) * sizeof(T));
        for (int64_t k = start, run; k < end; k += run) {
            int64_t c = k / inner % channels;
            double *sums = slots ? slots + j * 4 * channels + c : NULL;
            run = min_i64(min_i64(inner - k % inner, end - k), BLOCK);
            if (uncached) {
                prefetch(g + k + BLOCK, run * sizeof(T));
                prefetch(x + k + BLOCK, run * sizeof(T));
            }
            NAME(backward_elements)(g + k, x + k, NAME(offset_or_null)(gx, k), run,
                                    NAME(channel)(params, c), sums, channels);
        }
    }
    if (slots)
        NAME(finish)(slots, chunks, channels, 1, 1, channels, params, grad_params);
    free(slots);
    return 0;
}

static int NAME(backward_columns)(const T *g, const T *x, T *gx, const void *const *params,
                                  A *grad_params, int64_t outer, int64_t channels,
                                  int64_t inner, int threads)
{
    NAME(Columns) t;
    A *table = NAME(make_table)(&t, params, channels, inner);
    if (!table)
        return 1;
    int64_t n = outer * channels * inner, width = LANES * t.words, sums = 4 * width;
    int64_t chunks = count_chunks(n, grad_params ? width : 1), unit = row_alignment(n, width);
    int uncached = n * (int64_t)sizeof(T) > CACHED;
    threads = usable_threads(threads, chunks);
    double *slots = NULL; /* of every chunk; after them, in A, the accumulators of every thread */
    if (grad_params) {
        slots = aligned_zeros(sums * (chunks * sizeof(double) + threads * sizeof(A)));
        if (!slots) {
            free(table);
            return 1;
        }
    }
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t j = 0; j < chunks; j++) {
        double *slot = slots ? slots + j * sums : NULL;
        A *accumulators = slots ? (A *)(slots + chunks * sums) + omp_get_thread_num() * sums : NULL;
        int64_t start = chunk_start(n, unit, j, chunks), end = chunk_start(n, unit, j + 1, chunks);
        if (uncached)
            prefault(NAME(offset_or_null)(gx, start), (end - start) * sizeof(T));
        for (int64_t k = start; k < end; k += FLUSH * width) {
            NAME(backward_rows)(g, x, gx, k, min_i64(k + FLUSH * width, end), t, accumulators);
            for (int64_t s = 0; slot && s < sums; s++)
                slot[s] += accumulators[s], accumulators[s] = 0;
        }
    }
    if (slots)
        NAME(finish)(slots, chunks, width, LANES, inner, channels, params, grad_params);
    free(slots);
    free(table);
    return 0;
}

static int NAME(backward)(const void *g, const void *x, void *gx, const void *const *params,
                          void *grad_params, int64_t outer, int64_t channels, int64_t inner,
                          int threads)
{
    if (channels == 1 || inner >= SHORT_RUN)
        return NAME(backward_runs)(g, x, gx, params, grad_params, outer, channels, inner, threads);
    return NAME(backward_columns)(g, x, gx, params, grad_params, outer, channels, inner, threads);
}

#undef NAME
#undef T
#undef A
#undef DTYPE
#undef WORD
#undef LANES
#undef LOW
#undef HIGH
#undef PACK
#undef PAD
