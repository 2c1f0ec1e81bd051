/* tok_bpe_load: builds a tok_bpe from the "model" object of tokenizer.json.   Thread: one.
 * tok_bpe_load reads the parts of the object. tok_bpe_index makes the tables; it needs the added tokens and the
 * pre-tokenizer, which are loaded in between. */
#pragma once
#include "api/token/tok_bpe.h"
#include "api/token/tok_model.h"

/* The merges in order of rank, for tok_bpe_index. */
struct tok_merges {
    uint32_t *pair; /* [n][2] ids: left, right; the caller frees it, after an error too */
    uint32_t  n, cap;
};
/* text: empty before; tok_bpe_load fills it with the vocabulary. ST_CONFIG: e has the reason. */
enum status tok_bpe_load(struct tok_bpe *m, struct tok_strs *text, struct tok_merges *merges,
                         const struct tok_model_parts *p, const struct tok_err *e);
/* byte_level: pieces are raw bytes, and the vocabulary spells them as byte-level characters. flags: [text->n_id],
 * borrowed like text. */
enum status tok_bpe_index(struct tok_bpe *m, const struct tok_strs *text, const unsigned char *flags,
                          const struct tok_merges *merges, bool byte_level, const struct tok_err *e);
void        tok_bpe_free(struct tok_bpe *m);
