/* tok_merge: merges of one long sequence of symbols, in n log n and in bounded memory.   Thread: any; scratch of the
 * tok_work. */
#pragma once
#include "api/token/tok_bpe.h"

/* Where symbols come from: bytes of a byte-level piece, characters that are all tokens, or ids. */
enum tok_symbol_kind { SYMBOLS_BYTES, SYMBOLS_CHARS, SYMBOLS_IDS };
struct tok_symbols {
    enum tok_symbol_kind kind;
    const char          *s;
    const uint32_t      *id;
    size_t               n; /* bytes of s, or ids */
};

/* Emits what they merge to. */
enum status tok_merge_long(const struct tok_bpe *m, struct tok_work *w, const struct tok_symbols *x);
