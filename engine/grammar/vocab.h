/* vocab: the tokens of a model as grammars see them: their bytes, and the tree of all of them. Made once for each
 * tokenizer.
 * Thread: any once it is made. */
#pragma once
#include "engine/grammar/trie.h"

struct gr_vocab;

/* bytes: [n_token] the bytes that each token appends in the middle of a text; n = 0 for tokens that no text may
 * contain (special ones). They are copied. ST_NOMEM, ST_TOO_LARGE (2^24 tokens or nodes). */
enum status gr_vocab_create(const struct token_bytes *bytes, uint32_t n_token, struct gr_vocab **v_out);
void        gr_vocab_free(struct gr_vocab *v);
uint32_t    gr_vocab_n(const struct gr_vocab *v);
/* The bytes of a token; n = 0: no text contains it, or there is no such token. They belong to v. */
struct token_bytes gr_vocab_token(const struct gr_vocab *v, uint32_t token);
/* Clears the bits of the tokens that begin with these n > 0 bytes; bits: [gr_words] or more. */
void   gr_vocab_forbid(const struct gr_vocab *v, const void *bytes, size_t n, uint32_t *bits);
size_t gr_vocab_bytes(const struct gr_vocab *v);
/* Words of 32 bits in a mask. */
static inline uint32_t gr_words(uint32_t n_token) { return (n_token + 31) / 32; }
