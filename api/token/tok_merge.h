/* tok_merge: merges one long sequence of symbols, in n log n time and bounded memory, which is scratch of the tok_work.
 * Thread: any. */
#pragma once
#include "api/token/tok_bpe.h"

/* The form of the symbols: bytes of a byte-level piece, characters that are all tokens, or ids. */
enum tok_symbol_kind { SYMBOLS_BYTES, SYMBOLS_CHARS, SYMBOLS_IDS };
struct tok_symbols {
    enum tok_symbol_kind kind;
    const char          *s;
    const uint32_t      *id;
    size_t               n; /* bytes of s, or ids */
};

/* Emits the ids that the symbols merge to. ST_TOO_LARGE: the arena is full, or there are too many ids. */
enum status tok_merge_long(const struct tok_bpe *m, struct tok_work *w, const struct tok_symbols *x);
