/* tok_decompose: what a code point becomes in a normal form or in lower case, as the `tokenizers` library has it.
 * tok_decompose_init first (tok_unicode_init does it); then const and any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOK_DECOMPOSED_MAX = 32 }; /* code points that one becomes */

bool tok_decompose_init(void); /* false: no memory */

/* The whole decomposition of cp into to[TOK_DECOMPOSED_MAX]; returns how many, 1 for one that stays. */
size_t tok_decompose(uint32_t cp, bool compatible, uint32_t *to);
size_t tok_lower_case(uint32_t cp, uint32_t *to); /* the same for lower case */

uint32_t tok_compose_pair(uint32_t first, uint32_t second); /* 0: they do not compose */

/* Order of the combining classes; 0: no mark. */
extern unsigned char        tok_mark[0x110000];
static inline unsigned char tok_mark_rank(uint32_t cp) { return tok_mark[cp]; }
