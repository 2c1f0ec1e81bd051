/* tok_bpe_load: builds a tok_bpe from the "model" object of tokenizer.json.   Thread: one.
 * tok_bpe_load reads its parts; tok_bpe_index, when the added tokens and the pre-tokenizer are known too, makes the
 * tables. */
#pragma once
#include "api/token/tok_bpe.h"
#include "api/token/tok_model.h"

/* text: filled with the vocabulary (empty before). merges: [n_merge] (left, right) ids, malloc'd, for tok_bpe_index. */
struct tok_merges {
    uint32_t *pair;
    uint32_t  n, cap;
};
enum status tok_bpe_load(struct tok_bpe *m, struct tok_strs *text, struct tok_merges *merges,
                         const struct tok_model_parts *p, const struct tok_err *e);
/* byte_level: pieces come as raw bytes that byte-level texts stand for. flags: [text->n_id]. */
enum status tok_bpe_index(struct tok_bpe *m, const struct tok_strs *text, const unsigned char *flags,
                          const struct tok_merges *merges, bool byte_level, const struct tok_err *e);
void        tok_bpe_free(struct tok_bpe *m);
