/* gemm words, vectors of 512 bits: weights of 8 bits and 4 by activations of 16 bits and of 8 */
#if defined(__x86_64__)
#include "kernels/cpu/wide_avx512.h"
enum { ROWS = 6, WIDE = 6 };
#define NAME(what) gemm_##what##_avx512
#include "kernels/cpu/gemm_words_body.h"
#include "kernels/cpu/gemm_nibbles_body.h"
#else
typedef int gemm_words_avx512_is_empty;
#endif
