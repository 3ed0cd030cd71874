/* The vector loops for one instruction set and dtype (srelu_dtypes.h).
 *
 * Two access patterns. A "run": a channel's values are contiguous (NCHW), its parameters constants
 * of the loop. A "tile": the channel changes with every few elements (channels_last, (N, C), tiny
 * feature maps), so parameters are loaded from a table, once for the several rows of the tile.
 */
#define NAME(f) JOIN(f, ISA, DTYPE)

/* One channel: its parameters, and the slopes and intercepts of the table in ops/reference.py. */
typedef struct {
    A t_r, a_r, t_l, a_l, a_both, i_r, i_l, i_both;
} NAME(Channel);

/* The sums of g and of g (x - t), over the right and over the left tail. */
typedef struct {
    A right0, right1, left0, left1;
} NAME(Sums);

/* The parameters of a whole row of columns: four arrays, each LANES times `words` long. */
typedef struct {
    int64_t words;
    const A *t_r, *a_r, *t_l, *a_l;
} NAME(Columns);

static inline NAME(Channel) NAME(derive)(A t_r, A a_r, A t_l, A a_l)
{
    A i_r = t_r * (1 - a_r), i_l = t_l * (1 - a_l);
    return (NAME(Channel)){t_r, a_r, t_l, a_l, a_l + (a_r - 1), i_r, i_l, i_r + i_l};
}

static inline NAME(Channel) NAME(column)(NAME(Columns) t, int64_t k)
{
    return NAME(derive)(t.t_r[k], t.a_r[k], t.t_l[k], t.a_l[k]);
}

/* One of four by the tails that v lies in. Both inner selections come before the outer one: that
 * compiles to three blends, and nested conditions to masks of masks. */
static inline A NAME(select)(A v, NAME(Channel) c, A neither, A right, A left, A both)
{
    A not_left = v >= c.t_r ? right : neither, in_left = v >= c.t_r ? both : left;
    return v <= c.t_l ? in_left : not_left;
}

static inline A NAME(slope)(A v, NAME(Channel) c)
{
    return NAME(select)(v, c, 1, c.a_r, c.a_l, c.a_both);
}

static inline A NAME(value)(A v, NAME(Channel) c)
{
    A slope = NAME(slope)(v, c), intercept = NAME(select)(v, c, 0, c.i_r, c.i_l, c.i_both);
    A line = slope * v + intercept;
    return slope == 0 ? intercept : line; /* a flat tail is flat at infinity too */
}

static inline NAME(Sums) NAME(terms)(A d, A v, NAME(Channel) c)
{
    return (NAME(Sums)){
        v >= c.t_r ? d : 0,
        v >= c.t_r ? d * (v - c.t_r) : 0,
        v <= c.t_l ? d : 0,
        v <= c.t_l ? d * (v - c.t_l) : 0,
    };
}

static inline NAME(Sums) NAME(plus)(NAME(Sums) a, NAME(Sums) b)
{
    return (NAME(Sums)){a.right0 + b.right0, a.right1 + b.right1, a.left0 + b.left0,
                        a.left1 + b.left1};
}

/* ---- of a word: `low` and `high` are the channels of its lanes ---- */

static inline WORD NAME(word_value)(WORD x, NAME(Channel) low, NAME(Channel) high)
{
    return PACK(NAME(value)(LOW(x), low), NAME(value)(HIGH(x), high));
}

static inline WORD NAME(word_grad)(WORD g, WORD x, NAME(Channel) low, NAME(Channel) high)
{
    return PACK(LOW(g) * NAME(slope)(LOW(x), low), HIGH(g) * NAME(slope)(HIGH(x), high));
}

/* ---- runs ---- */

static void NAME(forward_run)(const WORD *restrict x, WORD *restrict y, int64_t n, NAME(Channel) c)
{
#pragma omp simd
    for (int64_t k = 0; k < n; k++)
        y[k] = NAME(word_value)(x[k], c, c);
}

ALWAYS_INLINE NAME(Sums) NAME(backward_run)(const WORD *restrict g, const WORD *restrict x,
                                            WORD *restrict gx, int64_t n, NAME(Channel) c,
                                            const int need_sums)
{
    A right0 = 0, right1 = 0, left0 = 0, left1 = 0;
#pragma omp simd reduction(+ : right0, right1, left0, left1)
    for (int64_t k = 0; k < n; k++) {
        gx[k] = NAME(word_grad)(g[k], x[k], c, c);
        if (need_sums) {
            NAME(Sums) sums = NAME(terms)(LOW(g[k]), LOW(x[k]), c);
            if (LANES == 2)
                sums = NAME(plus)(sums, NAME(terms)(HIGH(g[k]), HIGH(x[k]), c));
            right0 += sums.right0, right1 += sums.right1;
            left0 += sums.left0, left1 += sums.left1;
        }
    }
    return (NAME(Sums)){right0, right1, left0, left1};
}

/* ---- tiles: the first `n` words of `rows` rows, which is a constant ---- */

ALWAYS_INLINE void NAME(forward_tile)(const WORD *restrict x, WORD *restrict y, int64_t n,
                                      NAME(Columns) t, const int rows)
{
    int64_t to_high = (LANES - 1) * t.words;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        NAME(Channel) low = NAME(column)(t, k), high = NAME(column)(t, k + to_high);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            y[r * t.words + k] = NAME(word_value)(x[r * t.words + k], low, high);
    }
}

/* `sums`: the accumulators of the columns, in the layout of the table. */
ALWAYS_INLINE void NAME(backward_tile)(const WORD *restrict g, const WORD *restrict x,
                                       WORD *restrict gx, int64_t n, NAME(Columns) t,
                                       A *restrict sums, const int rows, const int need_input,
                                       const int need_sums)
{
    int64_t to_high = (LANES - 1) * t.words, width = LANES * t.words;
#pragma omp simd
    for (int64_t k = 0; k < n; k++) {
        NAME(Channel) low = NAME(column)(t, k), high = NAME(column)(t, k + to_high);
        NAME(Sums) lows = {0, 0, 0, 0}, highs = {0, 0, 0, 0};
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            WORD gw = g[r * t.words + k], xw = x[r * t.words + k];
            if (need_input)
                gx[r * t.words + k] = NAME(word_grad)(gw, xw, low, high);
            if (need_sums) {
                lows = NAME(plus)(lows, NAME(terms)(LOW(gw), LOW(xw), low));
                highs = NAME(plus)(highs, NAME(terms)(HIGH(gw), HIGH(xw), high));
            }
        }
        if (need_sums) {
            sums[k] += lows.right0, sums[width + k] += lows.right1;
            sums[2 * width + k] += lows.left0, sums[3 * width + k] += lows.left1;
        }
        if (need_sums && LANES == 2) {
            int64_t h = k + to_high;
            sums[h] += highs.right0, sums[width + h] += highs.right1;
            sums[2 * width + h] += highs.left0, sums[3 * width + h] += highs.left1;
        }
    }
}
