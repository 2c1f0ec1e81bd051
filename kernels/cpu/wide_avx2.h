/* wide: vectors of 256 bits, 16 registers of them: what gemm_words_body.h and gemm_nibbles_body.h are written in.
 * Private to kernels/cpu/, for files built with AVX2. */
#pragma once
#include "kernels/cpu/scale8.h"
#define V            __m256i
#define VF           __m256
#define SET1         _mm256_set1_epi32
#define LOAD(p)      _mm256_loadu_si256((const void *)(p))
#define STORE(p, x)  _mm256_storeu_si256((void *)(p), x)
#define AND          _mm256_and_si256
#define SHIFT        _mm256_srli_epi16
#define MADD_BYTES   _mm256_maddubs_epi16
#define ADD_WORDS    _mm256_add_epi16
#define MADD         _mm256_madd_epi16
#define ADD          _mm256_add_epi32
#define SUB          _mm256_sub_epi32
#define MUL          _mm256_mullo_epi32
#define TO_INT       _mm256_cvtps_epi32
#define TO_FLOAT     _mm256_cvtepi32_ps
#define LOAD_F16(p)  _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p)))
#define LOAD_E8(p)   e8m0_8(p)
#define LOAD_E4M3(p) e4m3_8(p)
#define TABLE(p)     _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(p)))
#define LOOKUP       _mm256_shuffle_epi8
#define LOAD_F32(p)  _mm256_loadu_ps((const void *)(p))
#define STORE_F32    _mm256_storeu_ps
#define SET1_F32(x)  _mm256_set1_ps(x)
#define TIMES        _mm256_mul_ps
#define FMA          _mm256_fmadd_ps
#define ON_VECTOR(v) "+x"(v)
