/* The kernels for one instruction set and dtype: T is stored, A computed with (srelu_dtypes.h).
 *
 * Two shapes of loop. "runs": a channel's values lie together (NCHW), its parameters are constants
 * of the loop. "columns": the channel changes with every few elements (channels_last, (N, C), tiny
 * feature maps), so parameters come from a table whose period divides the memory into rows.
 */
#define NAME(f) JOIN(f, ISA, DTYPE)

typedef CHANNEL_OF(A) NAME(Channel);

/* The same six numbers for a whole row of columns. */
typedef struct {
    int64_t width;
    A *t_r, *a_r, *t_l, *a_l, *i_r, *i_l;
} NAME(Columns);

static inline NAME(Channel) NAME(channel)(const void *const *params, int64_t c)
{
    A t_r = ((const A *)params[0])[c], a_r = ((const A *)params[1])[c];
    A t_l = ((const A *)params[2])[c], a_l = ((const A *)params[3])[c];
    return (NAME(Channel)){t_r, a_r, t_l, a_l, t_r * (1 - a_r), t_l * (1 - a_l)};
}

static inline A NAME(slope)(int right, int left, A a_r, A a_l)
{
    return left ? (right ? a_l + (a_r - 1) : a_l) : (right ? a_r : 1);
}

static inline A NAME(value)(A v, NAME(Channel) c)
{
    int right = v >= c.t_r, left = v <= c.t_l;
    A slope = NAME(slope)(right, left, c.a_r, c.a_l);
    A intercept = left ? (right ? c.i_r + c.i_l : c.i_l) : (right ? c.i_r : 0);
    A line = slope * v + intercept;
    return slope == 0 ? intercept : line; /* a flat tail is flat at infinity too */
}

/* ---- runs ---- */

static void NAME(forward_run)(const T *restrict x, T *restrict y, int64_t n, NAME(Channel) c)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++)
        y[k] = STORE(NAME(value)(LOAD(x[k]), c));
}

static void NAME(input_run)(const T *restrict g, const T *restrict x, T *restrict gx, int64_t n,
                            NAME(Channel) c)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        A v = LOAD(x[k]);
        gx[k] = STORE(LOAD(g[k]) * NAME(slope)(v >= c.t_r, v <= c.t_l, c.a_r, c.a_l));
    }
}

/* Adds the sums of g and of g (x - t), over the right and over the left tail, to sums[0], [stride],
 * [2 stride] and [3 stride]. */
static void NAME(sum_run)(const T *restrict g, const T *restrict x, int64_t n, NAME(Channel) c,
                          double *sums, int64_t stride)
{
    A right0 = 0, right1 = 0, left0 = 0, left1 = 0;
#pragma omp simd reduction(+ : right0, right1, left0, left1)
    for (int64_t k = 0; k < n; k++) {
        A v = LOAD(x[k]), d = LOAD(g[k]);
        int right = v >= c.t_r, left = v <= c.t_l;
        right0 += right ? d : 0;
        right1 += right ? d * (v - c.t_r) : 0;
        left0 += left ? d : 0;
        left1 += left ? d * (v - c.t_l) : 0;
    }
    sums[0] += right0, sums[stride] += right1, sums[2 * stride] += left0, sums[3 * stride] += left1;
}

/* ---- columns ---- */

static void NAME(forward_row)(const T *restrict x, T *restrict y, int64_t n, const NAME(Columns) * t)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        NAME(Channel) c = {t->t_r[k], t->a_r[k], t->t_l[k], t->a_l[k], t->i_r[k], t->i_l[k]};
        y[k] = STORE(NAME(value)(LOAD(x[k]), c));
    }
}

static void NAME(input_row)(const T *restrict g, const T *restrict x, T *restrict gx, int64_t n,
                            const NAME(Columns) * t)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        A v = LOAD(x[k]);
        gx[k] = STORE(LOAD(g[k]) * NAME(slope)(v >= t->t_r[k], v <= t->t_l[k], t->a_r[k], t->a_l[k]));
    }
}

static void NAME(sum_row)(const T *restrict g, const T *restrict x, int64_t n,
                          const NAME(Columns) * t, A *restrict right0, A *restrict right1,
                          A *restrict left0, A *restrict left1)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        A v = LOAD(x[k]), d = LOAD(g[k]), t_r = t->t_r[k], t_l = t->t_l[k];
        int right = v >= t_r, left = v <= t_l;
        right0[k] += right ? d : 0;
        right1[k] += right ? d * (v - t_r) : 0;
        left0[k] += left ? d : 0;
        left1[k] += left ? d * (v - t_l) : 0;
    }
}

static int NAME(make_columns)(NAME(Columns) * t, const void *const *params, int64_t channels,
                              int64_t inner)
{
    int64_t period = channels * inner;
    t->width = period * ((MIN_WIDTH + period - 1) / period);
    t->t_r = malloc(6 * t->width * sizeof(A));
    if (!t->t_r)
        return 1;
    t->a_r = t->t_r + t->width, t->t_l = t->a_r + t->width, t->a_l = t->t_l + t->width;
    t->i_r = t->a_l + t->width, t->i_l = t->i_r + t->width;
    for (int64_t k = 0; k < t->width; k++) {
        NAME(Channel) c = NAME(channel)(params, k / inner % channels);
        t->t_r[k] = c.t_r, t->a_r[k] = c.a_r, t->t_l[k] = c.t_l, t->a_l[k] = c.a_l;
        t->i_r[k] = c.i_r, t->i_l[k] = c.i_l;
    }
    return 0;
}

/* ---- forward ---- */

static int NAME(forward)(const void *x_, void *y_, const void *const *params, int64_t outer,
                         int64_t channels, int64_t inner, int threads)
{
    const T *x = x_;
    T *y = y_;
    int64_t n = outer * channels * inner, chunks = count_chunks(n, 1);
    threads = usable_threads(threads, chunks);

    if (channels == 1 || inner >= SHORT_RUN) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t j = 0; j < chunks; j++)
            for (int64_t k = n * j / chunks, end = n * (j + 1) / chunks, run; k < end; k += run) {
                run = at_most(inner - k % inner, end - k);
                NAME(forward_run)(x + k, y + k, run, NAME(channel)(params, k / inner % channels));
            }
        return 0;
    }
    NAME(Columns) t;
    if (NAME(make_columns)(&t, params, channels, inner))
        return 1;
    int64_t rows = (n + t.width - 1) / t.width;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t j = 0; j < chunks; j++)
        for (int64_t r = rows * j / chunks; r < rows * (j + 1) / chunks; r++)
            NAME(forward_row)(x + r * t.width, y + r * t.width, at_most(t.width, n - r * t.width), &t);
    free(t.t_r);
    return 0;
}

/* ---- backward ---- */

/* Adds up the slots of all chunks in order. slots: (chunks, 4, width); column k of a row belongs to
 * channel k / inner % channels. */
static void NAME(finish)(const double *slots, int64_t chunks, int64_t width, int64_t inner,
                         int64_t channels, const void *const *params, A *grad_params)
{
    for (int64_t c = 0; c < channels; c++) {
        double sum[4] = {0, 0, 0, 0};
        for (int64_t j = 0; j < chunks; j++)
            for (int64_t start = c * inner; start < width; start += channels * inner)
                for (int64_t k = start; k < start + inner; k++)
                    for (int s = 0; s < 4; s++)
                        sum[s] += slots[(j * 4 + s) * width + k];
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
    threads = usable_threads(threads, chunks);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t j = 0; j < chunks; j++)
        for (int64_t k = n * j / chunks, end = n * (j + 1) / chunks, run; k < end; k += run) {
            int64_t c = k / inner % channels;
            NAME(Channel) p = NAME(channel)(params, c);
            run = at_most(at_most(inner - k % inner, end - k), BLOCK);
            if (gx)
                NAME(input_run)(g + k, x + k, gx + k, run, p);
            if (slots)
                NAME(sum_run)(g + k, x + k, run, p, slots + j * 4 * channels + c, channels);
        }
    if (slots)
        NAME(finish)(slots, chunks, channels, 1, channels, params, grad_params);
    free(slots);
    return 0;
}

static int NAME(backward_columns)(const T *g, const T *x, T *gx, const void *const *params,
                                  A *grad_params, int64_t outer, int64_t channels,
                                  int64_t inner, int threads)
{
    NAME(Columns) t;
    if (NAME(make_columns)(&t, params, channels, inner))
        return 1;
    int64_t n = outer * channels * inner, rows = (n + t.width - 1) / t.width;
    int64_t chunks = count_chunks(n, grad_params ? t.width : 1), sums = 4 * t.width;
    double *slots = grad_params ? calloc(chunks * sums, sizeof(double) + sizeof(A)) : NULL;
    if (grad_params && !slots) {
        free(t.t_r);
        return 1;
    }
    threads = usable_threads(threads, chunks);
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t j = 0; j < chunks; j++) {
        double *slot = slots ? slots + j * sums : NULL;
        A *recent = slots ? (A *)(slots + chunks * sums) + j * sums : NULL;
        int64_t first = rows * j / chunks, end = rows * (j + 1) / chunks;
        for (int64_t r = first; r < end; r++) {
            int64_t k = r * t.width, width = at_most(t.width, n - k);
            if (gx)
                NAME(input_row)(g + k, x + k, gx + k, width, &t);
            if (!slot)
                continue;
            NAME(sum_row)(g + k, x + k, width, &t, recent, recent + t.width, recent + 2 * t.width,
                          recent + 3 * t.width);
            if ((r - first) % FLUSH == FLUSH - 1 || r == end - 1)
                for (int64_t s = 0; s < sums; s++)
                    slot[s] += recent[s], recent[s] = 0;
        }
    }
    if (slots)
        NAME(finish)(slots, chunks, t.width, inner, channels, params, grad_params);
    free(slots);
    free(t.t_r);
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
#undef LOAD
#undef STORE
