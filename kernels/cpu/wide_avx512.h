/* wide: vectors of 512 bits, 32 registers of them: what gemm_words_body.h and gemm_nibbles_body.h are written in.
 * Private to kernels/cpu/, for files built with AVX-512. */
#pragma once
#include "kernels/cpu/scale8.h"
#define V            __m512i
#define VF           __m512
#define SET1         _mm512_set1_epi32
#define LOAD(p)      _mm512_loadu_si512((const void *)(p))
#define STORE(p, x)  _mm512_storeu_si512((void *)(p), x)
#define AND          _mm512_and_si512
#define SHIFT        _mm512_srli_epi16
#define MADD_BYTES   _mm512_maddubs_epi16
#define ADD_WORDS    _mm512_add_epi16
#define MADD         _mm512_madd_epi16
#define ADD          _mm512_add_epi32
#define SUB          _mm512_sub_epi32
#define MUL          _mm512_mullo_epi32
#define TO_INT       _mm512_cvtps_epi32
#define TO_FLOAT     _mm512_cvtepi32_ps
#define LOAD_F16(p)  _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p)))
#define LOAD_E8(p)   e8m0_16(p)
#define LOAD_E4M3(p) e4m3_16(p)
#define TABLE(p)     _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(p)))
#define LOOKUP       _mm512_shuffle_epi8
#define LOAD_F32(p)  _mm512_loadu_ps((const void *)(p))
#define STORE_F32    _mm512_storeu_ps
#define SET1_F32(x)  _mm512_set1_ps(x)
#define TIMES        _mm512_mul_ps
#define FMA          _mm512_fmadd_ps
#define ON_VECTOR(v) "+v"(v)
