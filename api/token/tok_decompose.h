/* tok_decompose: decomposition, composition and lower case of code points, as the `tokenizers` library defines them.
 * tok_decompose_init comes first (tok_unicode_init calls it).   Thread: one for the init; then const and shared. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOK_DECOMPOSED_MAX = 32 }; /* most code points of one decomposition */

bool tok_decompose_init(void); /* false: no memory */

/* Writes the full decomposition of cp into to[TOK_DECOMPOSED_MAX] and returns its length: 1 if cp does not change.
 * compatible: that of NFKD, else of NFD. */
size_t tok_decompose(uint32_t cp, bool compatible, uint32_t *to);
size_t tok_lower_case(uint32_t cp, uint32_t *to); /* the same for lower case */

uint32_t tok_compose_pair(uint32_t first, uint32_t second); /* their composition; 0: they do not compose */

/* [cp] rank of the code point's combining class; 0: the code point is no combining mark. */
extern unsigned char        tok_mark[0x110000];
static inline unsigned char tok_mark_rank(uint32_t cp) { return tok_mark[cp]; }
