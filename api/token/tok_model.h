/* tok_model: what the models of tokenizer.json have in common when they are loaded.   Thread: one.
 * tok_model_split finds the parts of the "model" object, tok_model_kind says which model it is; the model's own file
 * reads them. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_vocab.h"

enum { TOK_TOKEN_BYTES_MAX = 1 << 16 };
enum tok_flag { TOK_F_MODEL = 1, TOK_F_ADDED = 2, TOK_F_SPECIAL = 4, TOK_F_NORMED = 8 }; /* of an id */
enum tok_kind { TOK_BPE, TOK_UNIGRAM, TOK_WORDPIECE };

struct tok_model_parts {
    struct tok_span vocab, merges;
    json_t         *rest; /* of the caller to free */
};
enum status tok_model_split(struct tok_model_parts *p, struct tok_json *j,
                            const struct tok_err *e); /* j at the object, then behind it */
enum status tok_model_kind(const struct tok_model_parts *p, enum tok_kind *kind_out, const struct tok_err *e);

enum status tok_vocab_load(struct tok_strs *text, struct tok_span span,
                           const struct tok_err *e); /* {token: id} into an empty text */

/* Ids of <0x00>..<0xFF> among the tokens of the model, or TOK_NONE; true: they are all there. */
bool tok_byte_tokens(const struct tok_strs *text, const unsigned char *flags, int64_t byte_id[256]);
