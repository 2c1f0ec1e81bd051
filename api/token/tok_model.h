/* tok_model: the part of loading that all models of tokenizer.json share.   Thread: one.
 * tok_model_split finds the parts of the "model" object, tok_model_kind says which model it is, and the model's own
 * file reads the parts. Errors: ST_CONFIG, and e has the reason. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_vocab.h"

enum { TOK_TOKEN_BYTES_MAX = 1 << 16 };
/* Flags of an id: a token of the model; an added token; a special one; one whose struct tok_added_token has
 * `normed`. */
enum tok_flag { TOK_F_MODEL = 1, TOK_F_ADDED = 2, TOK_F_SPECIAL = 4, TOK_F_NORMED = 8 };
enum tok_kind { TOK_BPE, TOK_UNIGRAM, TOK_WORDPIECE };

struct tok_model_parts {
    struct tok_span vocab, merges; /* JSON, borrowed from the text; p NULL: absent */
    json_t         *rest;          /* the other members; the caller frees it, after an error too */
};
enum status tok_model_split(struct tok_model_parts *p, struct tok_json *j,
                            const struct tok_err *e); /* j moves past the object */
/* The model's kind by its "type"; where that is missing, by the form of its vocabulary and by its merges. ST_CONFIG
 * for another type. */
enum status tok_model_kind(const struct tok_model_parts *p, enum tok_kind *kind_out, const struct tok_err *e);

enum status tok_vocab_load(struct tok_strs *text, struct tok_span span,
                           const struct tok_err *e); /* span: {token: id}; text: empty before */

/* Writes the ids of the model's tokens <0x00>..<0xFF>, TOK_NONE for each missing one. True: none is missing. */
bool tok_byte_tokens(const struct tok_strs *text, const unsigned char *flags, int64_t byte_id[256]);
