/* The kernels of one instruction set (ISA), for every dtype. */

#define T float
#define A float
#define DTYPE float32
#define LOAD(v) (v)
#define STORE(v) (v)
#include "srelu_kernels.h"

#define T double
#define A double
#define DTYPE float64
#define LOAD(v) (v)
#define STORE(v) (v)
#include "srelu_kernels.h"

#define T uint16_t
#define A float
#define DTYPE bfloat16
#define LOAD(v) from_bf16(v)
#define STORE(v) to_bf16(v)
#include "srelu_kernels.h"
