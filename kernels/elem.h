/* elem: one element of a typed array as a float, and back (round to nearest even); any alignment.   Private to
 * kernels/. */
#pragma once
#include "base/check.h"
#include "base/dtype.h"
#include <stdbool.h>

/* Number i of an array of this type, as a float. */
static inline float elem_load(const void *p, enum dtype t, size_t i)
{
    if (t == DT_F32) {
        float f;
        memcpy(&f, (const char *)p + i * 4, 4);
        return f;
    }
    uint16_t h;
    memcpy(&h, (const char *)p + i * 2, 2);
    return t == DT_BF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

/* Rounds to nearest even. */
static inline void elem_store(void *p, enum dtype t, size_t i, float f)
{
    if (t == DT_F32) {
        memcpy((char *)p + i * 4, &f, 4);
        return;
    }
    uint16_t h = t == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
    memcpy((char *)p + i * 2, &h, 2);
}

/* True for the types of the KV cache. */
static inline bool elem_is_kv(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16 || t == DT_F8E4M3; }
/* True for the types of floats; the others are codes. */
static inline bool elem_is_float(enum dtype t) { return t == DT_F32 || t == DT_BF16 || t == DT_F16; }
