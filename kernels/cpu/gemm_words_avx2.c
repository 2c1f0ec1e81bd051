/* gemm words, vectors of 256 bits: weights of 8 bits and 4 by activations of 16 bits and of 8 */
#if defined(__x86_64__)
#include "kernels/cpu/wide_avx2.h"
enum { ROWS = 6, WIDE = 1 };
#define NAME(what) gemm_##what##_avx2
#include "kernels/cpu/gemm_words_body.h"
#include "kernels/cpu/gemm_nibbles_body.h"
#else
typedef int gemm_words_avx2_is_empty;
#endif
