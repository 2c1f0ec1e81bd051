/* tokenizer: text -> ids by tokenizer.json, exactly as the Hugging Face `tokenizers` library does it.
 * tok_load -> tok_encode* -> tok_free.   Thread: load: one; afterwards const and shared by all.
 * Linear (or n log n) time in the text whatever it holds; constant stack; no recursion on input. */
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok;

/* The texts of a model folder's files, borrowed during the call. Only tokenizer.json must be there; another may be
 * NULL. */
struct tok_texts {
    const char *json, *config, *map,
        *model; /* tokenizer.json, tokenizer_config.json, special_tokens_map.json, config.json */
    size_t n_json, n_config, n_map, n_model;
};
/* err: one line naming file and field. ST_CONFIG. */
enum status tok_load_texts(const struct tok_texts *x, struct tok **tok_out, char *err, size_t err_bytes);
/* The same without the last two files. */
enum status tok_load(const char *json, size_t n_json, const char *config, size_t n_config, struct tok **tok_out,
                     char *err, size_t err_bytes);
void        tok_free(struct tok *t);

enum tok_flags {
    TOK_ADD_SPECIAL = 1,      /* run the post-processor (BOS, EOS)                                               */
    TOK_NO_SPECIAL_PARSE = 2, /* special added tokens in the text are plain text, never their ids            */
};
struct tok_ids {
    uint32_t *id;
    size_t    n, cap;
}; /* grown inside the arena given */
/* Appends. ST_TOO_LARGE: more than ids_max ids in all, or the arena is full. ST_INVALID: text is not UTF-8. */
enum status tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags, size_t ids_max, struct arena *a,
                       struct tok_ids *out);

uint32_t tok_vocab_size(const struct tok *t); /* highest id + 1 */
bool     tok_is_special(const struct tok *t, uint32_t id);
bool     tok_is_added(const struct tok *t, uint32_t id);
/* The token's own text as in tokenizer.json (byte-level or ▁ form); NULL: no such id. Borrowed. */
const char *tok_token(const struct tok *t, uint32_t id, size_t *n_out);
bool        tok_id_of(const struct tok *t, const char *token, size_t n, uint32_t *id_out);
/* Named special tokens (tok_special.h): "bos_token", "eos_token", ... -> its text; NULL: not set. */
const char *tok_special_name(const struct tok *t, const char *name);
/* Number i of them, from 0, in no order; false: there are no more. Borrowed. */
bool tok_special_at(const struct tok *t, uint32_t i, const char **name_out, const char **text_out);
/* tokenizer_class of tokenizer_config.json, else "PreTrainedTokenizerFast" */
const char *tok_class_name(const struct tok *t);
bool        tok_bos(const struct tok *t, uint32_t *id_out);
/* longest token in bytes of text (bound: prompt bytes -> too many tokens) */
size_t tok_longest_bytes(const struct tok *t);
