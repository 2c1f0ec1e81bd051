/* mxfp4: numbers of 4 bits (sign, 2 bits of exponent, 1 of mantissa) in blocks that share a power of two (OCP
 * Microscaling Formats 1.0, sections 5.3.3 and 5.4.1). Thread: any, no state. */
#pragma once
#include "base/dtype.h"

enum { MXFP4_BLOCK = 32, MXFP4_NAN = 255 }; /* numbers of a block; the scale that is no number */

/* The number of a code below 16 under a scale below MXFP4_NAN. Exact in F32, and in BF16 above 2^-126. */
static inline float mxfp4_to_f32(uint32_t code, uint8_t scale) { return f4e2m1_to_f32(code) * f8e8m0_to_f32(scale); }
