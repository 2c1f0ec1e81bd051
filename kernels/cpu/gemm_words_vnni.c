/* gemm words, vectors of 256 bits with AVX-VNNI: VEX-coded vpdpwssd and vpdpbusd, on processors without AVX-512 */
#if defined(__x86_64__)
#include "kernels/cpu/wide_avx2.h"
enum { ROWS = 6, WIDE = 1 };
/* By hand, as in gemm_vnni.c: gcc 12 copies registers around the intrinsics. "vex", or the assembler takes the
 * instruction of AVX-512. */
#define DOT_WORDS(sum, b, a) __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(b), "x"(a))
#define DOT_BYTES(sum, b, a) __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(b), "x"(a))
#define NAME(what)           gemm_##what##_vnni
#include "kernels/cpu/gemm_words_body.h"
#include "kernels/cpu/gemm_nibbles_body.h"
#else
typedef int gemm_words_vnni_is_empty;
#endif
