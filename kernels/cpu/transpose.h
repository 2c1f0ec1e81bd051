/* transpose: 16 registers of 16 words: 4x4 within the 128-bit quarters, then the quarters.   Private to kernels/cpu/,
 * for files built with AVX-512. */
#pragma once
#include <immintrin.h>

/* a[i] word j becomes a[j] word i, in place. */
static inline __attribute__((always_inline)) void transpose16(__m512 *a)
{
    __m512 b[16];
    _Pragma("GCC unroll 4") for (int i = 0; i < 16; i += 4)
    {
        __m512 l0 = _mm512_unpacklo_ps(a[i], a[i + 1]), h0 = _mm512_unpackhi_ps(a[i], a[i + 1]);
        __m512 l1 = _mm512_unpacklo_ps(a[i + 2], a[i + 3]), h1 = _mm512_unpackhi_ps(a[i + 2], a[i + 3]);
        b[i] = _mm512_shuffle_ps(l0, l1, 0x44);
        b[i + 1] = _mm512_shuffle_ps(l0, l1, 0xee);
        b[i + 2] = _mm512_shuffle_ps(h0, h1, 0x44);
        b[i + 3] = _mm512_shuffle_ps(h0, h1, 0xee);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)
    {
        __m512 l0 = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88), h0 = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xdd);
        __m512 l1 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88),
               h1 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xdd);
        a[i] = _mm512_shuffle_f32x4(l0, l1, 0x88);
        a[i + 8] = _mm512_shuffle_f32x4(l0, l1, 0xdd);
        a[i + 4] = _mm512_shuffle_f32x4(h0, h1, 0x88);
        a[i + 12] = _mm512_shuffle_f32x4(h0, h1, 0xdd);
    }
}
