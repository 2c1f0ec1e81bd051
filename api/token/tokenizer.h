/* tokenizer: text -> ids by tokenizer.json, exactly as the Hugging Face `tokenizers` library does it.
 * tok_load -> tok_encode* -> tok_free.   Thread: one while it loads; afterwards const and shared by all.
 * Any text takes linear or n log n time and constant stack. */
#pragma once
#include "base/arena.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tok;

/* The texts of a model folder's files, borrowed during the call. tokenizer.json is required; the others may be NULL. */
struct tok_texts {
    /* tokenizer.json, tokenizer_config.json, special_tokens_map.json, config.json */
    const char *json, *config, *map, *model;
    size_t      n_json, n_config, n_map, n_model;
};
/* ST_CONFIG: err has one line that names the file and the field. */
enum status tok_load_texts(const struct tok_texts *x, struct tok **tok_out, char *err, size_t err_bytes);
/* The same without special_tokens_map.json and config.json. */
enum status tok_load(const char *json, size_t n_json, const char *config, size_t n_config, struct tok **tok_out,
                     char *err, size_t err_bytes);
void        tok_free(struct tok *t);

enum tok_flags {
    TOK_ADD_SPECIAL = 1,      /* run the post-processor (BOS, EOS) */
    TOK_NO_SPECIAL_PARSE = 2, /* special tokens in the text are plain text: it never gets their ids */
};
struct tok_ids {
    uint32_t *id; /* [cap], in the arena of tok_encode */
    size_t    n, cap;
};
/* Appends the ids of text to out, which grows in a. ST_TOO_LARGE: more than ids_max ids in all, the arena is full, or a
 * pattern exceeded its match limit. ST_INVALID: text is not UTF-8. */
enum status tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags, size_t ids_max, struct arena *a,
                       struct tok_ids *out);

struct tok_two {
    const char *first, *second;
    size_t      n_first, n_second;
};
/* *second_out: how many ids are of the first text's type, as the post-processor has it; NULL: nobody asks.
 * The ids of two texts, with TOK_ADD_SPECIAL and the ids that the post-processor puts around and between two. The rest
 * as tok_encode. */
enum status tok_encode_pair(const struct tok *t, const struct tok_two *x, unsigned flags, size_t ids_max,
                            struct arena *a, struct tok_ids *out, uint32_t *second_out);
bool        tok_pairs(const struct tok *t);      /* whether the post-processor has a form for two texts */
uint32_t    tok_vocab_size(const struct tok *t); /* highest id + 1 */
/* Whether the id is one of an added token that is marked special; of any added token. */
bool tok_is_special(const struct tok *t, uint32_t id);
bool tok_is_added(const struct tok *t, uint32_t id);
/* The token's own text as in tokenizer.json (byte-level or ▁ form); NULL: no such id. Borrowed. */
const char *tok_token(const struct tok *t, uint32_t id, size_t *n_out);
bool        tok_id_of(const struct tok *t, const char *token, size_t n, uint32_t *id_out);
/* The text of a named special token (tok_special.h): "bos_token", "eos_token", ...; NULL: not set. Borrowed. */
const char *tok_special_name(const struct tok *t, const char *name);
/* The named special token number i, from 0, in no order; false: there are no more. Borrowed. */
bool tok_special_at(const struct tok *t, uint32_t i, const char **name_out, const char **text_out);
/* tokenizer_class of tokenizer_config.json, else "PreTrainedTokenizerFast" */
const char *tok_class_name(const struct tok *t);
bool        tok_bos(const struct tok *t, uint32_t *id_out);
/* Most bytes of text that one id stands for; SIZE_MAX: no bound. It bounds the ids of a text from below by its
 * bytes. */
size_t tok_longest_bytes(const struct tok *t);
