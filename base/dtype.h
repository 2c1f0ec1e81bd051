/* dtype: element types and their conversions, scalar.   Thread: any. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum dtype { DT_F32 = 0, DT_BF16, DT_F16, DT_F8E4M3, DT_I4, DT_COUNT };

typedef uint16_t bf16; /* the upper half of an IEEE float32 */
typedef uint16_t f16;  /* IEEE binary16 */

const char *dtype_name(enum dtype t);

static inline size_t dtype_bytes(enum dtype t) { return t == DT_F32 ? 4 : (t == DT_BF16 || t == DT_F16) ? 2 : 1; }

static inline float bf16_to_f32(bf16 x)
{
    uint32_t u = (uint32_t)x << 16;
    float    f;
    memcpy(&f, &u, 4);
    return f;
}
/* round to nearest even; NaN stays NaN (quiet) */
static inline bf16 f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (bf16)((u >> 16) | 0x40u);
    return (bf16)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
float f16_to_f32(f16 x);   /* exact */
f16   f32_to_f16(float f); /* round to nearest even */
