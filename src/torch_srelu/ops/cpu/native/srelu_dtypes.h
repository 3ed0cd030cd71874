/* The kernels of one instruction set (ISA), for every dtype: T is the type of the tensor, A
 * that of the arithmetic, WORD what is loaded and stored at once: LANES elements, unpacked by LOW
 * and HIGH and packed by PACK. With one lane, HIGH is unused. PAD(v) is a word that holds v alone. */

#define T float
#define A float
#define DTYPE float32
#define WORD float
#define LANES 1
#define LOW(word) (word)
#define HIGH(word) (word)
#define PACK(low, high) (low)
#define PAD(v) (v)
#include "srelu_loops.h"
#include "srelu_kernels.h"

#define T double
#define A double
#define DTYPE float64
#define WORD double
#define LANES 1
#define LOW(word) (word)
#define HIGH(word) (word)
#define PACK(low, high) (low)
#define PAD(v) (v)
#include "srelu_loops.h"
#include "srelu_kernels.h"

/* Two adjacent elements are a 32-bit word, and a shift or a mask turns each into a float: unlike
 * widening, that needs no shuffle between the lanes of a vector. */
#define T uint16_t
#define A float
#define DTYPE bfloat16
#define WORD bf16_pair
#define LANES 2
#define LOW(word) float_of((word) << 16)
#define HIGH(word) float_of((word) & 0xffff0000u)
#define PACK(low, high) ((rounded_to_bf16(low) >> 16) | (rounded_to_bf16(high) & 0xffff0000u))
#define PAD(v) ((v) | 0x7fc00000u) /* NaN lies in no tail, so it adds to no sum */
#include "srelu_loops.h"
#include "srelu_kernels.h"
