/* SReLU on the CPU: forward, and a fused backward with deterministic parameter gradients.
 *
 * Tensors arrive as (outer, C, inner) in memory order (ops/layout.py); the definition, with the
 * table of slopes and intercepts, is ops/reference.py. Plain C: no Python, no torch headers.
 * srelu_loops.h and srelu_kernels.h are compiled once for every dtype and instruction set; threads
 * come from the OpenMP runtime that torch has loaded already.
 *
 * Parameter gradients are summed in two stages. The tensor is divided into chunks whose number
 * depends on its shape alone; each chunk sums into its own slot, and the slots are added in order.
 * So the result does not depend on the number or the order of threads.
 */
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the bfloat16 kernels expect the first element in the low half of a word"
#endif

enum {
    MIN_CHUNK = 8192, /* elements: below this a thread costs more than it saves */
    MAX_CHUNKS = 128,
    SLOT_SHARE = 64, /* elements of a chunk for every partial sum that it keeps, at least */
    ALIGNED = 64,    /* elements: chunks begin at a cache line */
    BLOCK = 1024,    /* elements that are summed in A before the sum is added in double */
    SHORT_RUN = 64,  /* below this, runs are treated as columns */
    MIN_WIDTH = 128, /* columns: narrower rows are repeated to lengthen the vector loop */
    TILE = 4,        /* rows that share one load of the parameters */
    FEW_TILES = 8,
    FLUSH = 256,     /* rows that are summed in A before the sum is added in double */
    CACHED = 24 << 20, /* bytes: a larger tensor and its result fit in no cache */
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* ---- bfloat16: two adjacent elements in a word ---- */

typedef uint32_t bf16_pair __attribute__((aligned(2), may_alias));

static inline float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* The upper half is f in bfloat16, rounded to nearest even; the lower half is to be dropped. A NaN
 * must end with 16 zeros, else the carry could turn it into another number. */
static inline uint32_t rounded_to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits + 0x7fff + ((bits >> 16) & 1);
}

static inline int64_t min_i64(int64_t value, int64_t limit) { return value < limit ? value : limit; }
static inline int64_t max_i64(int64_t value, int64_t limit) { return value > limit ? value : limit; }

/* ---- threads ---- */

/* An OpenMP pool does not survive fork: a parallel region in the child would hang. */
int srelu_forked; /* key_statistics.c reads it too */
static void after_fork_in_child(void) { srelu_forked = 1; }

__attribute__((constructor)) static void register_fork_handler(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* The number of chunks of n elements, where each keeps `sums` partial sums. */
static int64_t count_chunks(int64_t n, int64_t sums)
{
    return max_i64(1, min_i64(min_i64(MAX_CHUNKS, n / MIN_CHUNK), n / (SLOT_SHARE * sums)));
}

static int usable_threads(int requested, int64_t chunks)
{
    return srelu_forked ? 1 : (int)max_i64(1, min_i64(requested, chunks));
}

/* Where chunk j of n elements begins: at a multiple of `unit`, or at the end. */
static inline int64_t chunk_start(int64_t n, int64_t unit, int64_t j, int64_t chunks)
{
    return j == chunks ? n : n / unit * j / chunks * unit;
}

/* Chunks begin at multiples of this: a tile, or a row where tiles would leave threads idle. */
static inline int64_t row_alignment(int64_t n, int64_t width)
{
    return n < FEW_TILES * TILE * width ? width : TILE * width;
}

/* ---- memory ---- */

/* Populates the pages of a part of a result at once. A large result is memory that the process has
 * never touched, and page faults one by one take longer than the computation. If the last page is
 * resident, all are assumed to be. Only a hint: without system support it does nothing. */
static void prefault(void *start, int64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if (!start || bytes <= 0)
        return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)start / page * page;
    uintptr_t last = ((uintptr_t)start + bytes - 1) / page * page;
    unsigned char present = 1;
    if (mincore((void *)last, page, &present) == 0 && !(present & 1))
        madvise((void *)first, last + page - first, MADV_POPULATE_WRITE);
#endif
}

/* Zeros aligned to a cache line, so that no vector of a table straddles two; NULL: no memory. */
static void *aligned_zeros(int64_t bytes)
{
    void *start = NULL;
    return posix_memalign(&start, 64, bytes) ? NULL : memset(start, 0, bytes);
}

/* Prefetches what comes next into the second-level cache. It pays in two cases: a tile reads several
 * rows at once, more streams than the hardware prefetcher follows; and that prefetcher stops at
 * every page and page fault, which matters for tensors that fit in no cache. */
static inline void prefetch(const void *start, int64_t bytes)
{
    for (int64_t k = 0; k < bytes; k += 64)
        __builtin_prefetch((const char *)start + k, 0, 2);
}

/* ---- the kernels, once for every instruction set ---- */

#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

#define ISA portable
#include "srelu_dtypes.h"
#undef ISA

#if HAVE_X86
#define ISA avx2
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif
#include "srelu_dtypes.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ISA

#define ISA avx512
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
#endif
#include "srelu_dtypes.h"
#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#undef ISA
#endif

/* ---- what Python calls (cpu_backend.py) ---- */

typedef int forward_fn(const void *, void *, const void *const *, int64_t, int64_t, int64_t, int);
typedef int backward_fn(const void *, const void *, void *, const void *const *, void *, int64_t,
                        int64_t, int64_t, int);

#define ROW(kind, isa) { kind##_##isa##_float32, kind##_##isa##_float64, kind##_##isa##_bfloat16 }
#if HAVE_X86
#define TABLE_OF(kind) { ROW(kind, portable), ROW(kind, avx2), ROW(kind, avx512) }
#else
#define TABLE_OF(kind) { ROW(kind, portable) }
#endif
static forward_fn *const forward_table[][3] = TABLE_OF(forward);
static backward_fn *const backward_table[][3] = TABLE_OF(backward);

/* Changes with the functions below: a library of another version is not called. */
int srelu_abi(void) { return 3; }

/* The best instruction set of this machine: 0 portable, 1 AVX2, 2 AVX-512. */
int srelu_best_isa(void)
{
#if HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return 2;
    if (__builtin_cpu_supports("avx2"))
        return 1;
#endif
    return 0;
}

/* dtype: 0 float32, 1 float64, 2 bfloat16. params: t_r, a_r, t_l, a_l, each C long, in the dtype of
 * the arithmetic. Both return 0, or 1 if scratch memory could not be allocated. */
int srelu_forward(int isa, int dtype, int threads, const void *x, void *y, const void *const *params,
                  int64_t outer, int64_t channels, int64_t inner)
{
    return forward_table[isa][dtype](x, y, params, outer, channels, inner, threads);
}

/* grad_params: (4, C). It or grad_x may be NULL: then they are not computed. */
int srelu_backward(int isa, int dtype, int threads, const void *grad, const void *x, void *grad_x,
                   const void *const *params, void *grad_params, int64_t outer,
                   int64_t channels, int64_t inner)
{
    return backward_table[isa][dtype](grad, x, grad_x, params, grad_params, outer, channels, inner,
                                      threads);
}
