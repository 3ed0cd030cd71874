/* One launch of a compiled GPU kernel: what is known before, and the driver's cuLaunchKernel.
 *
 * A chained kernel may get ready while the one before it still runs; it waits by itself for what
 * that one writes. cuLaunchKernelEx launches it.
 *
 * No CUDA headers: the driver's functions come as addresses (ops/triton_launch.py).
 */
#pragma once
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "a number of 32 bits is read from the first half of its 64"
#endif

enum { MOST_PARAMETERS = 64, MOST_TENSORS = 16, ALIGNMENT = 16 /* bytes */, NOT_ALIGNED = -1 };

typedef int (*cu_launch_kernel)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned,
                                unsigned, unsigned shared, void *stream, void **params, void **);

typedef struct { /* CUlaunchAttribute */
    int id, padding;
    union {
        int allowed;
        uint64_t bytes[8];
    } value;
} Attribute;

typedef struct { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared;
    void *stream;
    const Attribute *attributes;
    unsigned count;
} Config;

typedef int (*cu_launch_kernel_ex)(const Config *, void *function, void **params, void **);

typedef struct {
    cu_launch_kernel launch;
    cu_launch_kernel_ex launch_chained; /* 0: it is not chained */
    void *function;
    unsigned grid[3], threads, shared;
    int aligned; /* the first so many tensors must be aligned, as the kernel's code expects */
    int count;
    int places[MOST_PARAMETERS]; /* which tensor it is that a parameter points to; -1: a number */
    uint64_t values[MOST_PARAMETERS];
} Plan;

/* 0: launched; NOT_ALIGNED: nothing was done; else the driver's error. */
static inline int plan_launch(const Plan *plan, void *stream, const uint64_t *tensors)
{
    uint64_t values[MOST_PARAMETERS];
    void *params[MOST_PARAMETERS];
    for (int i = 0; i < plan->count; i++) {
        int place = plan->places[i];
        values[i] = place < 0 ? plan->values[i] : tensors[place];
        if (place >= 0 && place < plan->aligned && values[i] % ALIGNMENT)
            return NOT_ALIGNED;
        params[i] = &values[i];
    }
    if (plan->launch_chained) {
        /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, which is allowed */
        const Attribute chained = {6, 0, {1}};
        const Config config = {{plan->grid[0], plan->grid[1], plan->grid[2]},
                               {plan->threads, 1, 1}, plan->shared, stream, &chained, 1};
        return plan->launch_chained(&config, plan->function, params, 0);
    }
    return plan->launch(plan->function, plan->grid[0], plan->grid[1], plan->grid[2], plan->threads,
                        1, 1, plan->shared, stream, params, 0);
}
