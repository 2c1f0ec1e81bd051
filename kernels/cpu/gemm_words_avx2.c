/* gemm words, vectors of 256 bits: 16 registers */
#if defined(__x86_64__)
#include <immintrin.h>
#define V           __m256i
#define VF          __m256
#define SET1        _mm256_set1_epi32
#define LOAD(p)     _mm256_loadu_si256((const void *)(p))
#define AND         _mm256_and_si256
#define SHIFT       _mm256_srli_epi16
#define MADD        _mm256_madd_epi16
#define ADD         _mm256_add_epi32
#define SUB         _mm256_sub_epi32
#define MUL         _mm256_mullo_epi32
#define TO_INT      _mm256_cvtps_epi32
#define TO_FLOAT    _mm256_cvtepi32_ps
#define LOAD_F16(p) _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p)))
#define LOAD_F32(p) _mm256_loadu_ps((const void *)(p))
#define STORE_F32   _mm256_storeu_ps
#define SET1_F32(x) _mm256_set1_ps(x)
#define TIMES       _mm256_mul_ps
#define FMA         _mm256_fmadd_ps
enum { ROWS = 4, WIDE = 1 };
#define NAME gemm_words_avx2
#include "kernels/cpu/gemm_words_body.h"
#else
typedef int gemm_words_avx2_is_empty;
#endif
