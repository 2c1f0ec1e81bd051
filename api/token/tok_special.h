/* tok_special: the named special tokens of a model folder ("bos_token" -> "<s>"), which its chat template may print.
 * tok_special_load -> tok_special_free.   Thread: load: one; afterwards const.
 * They stand in up to three files, and the first two disagree at times. What counts is what transformers 5 passes to a template:
 *  1. tokenizer_config.json: the seven standard names (bos, eos, unk, sep, pad, cls, mask), any other "*_token", and the object
 *     "extra_special_tokens", whose members are named tokens too.
 *  2. special_tokens_map.json counts only where tokenizer_config.json has no "added_tokens_decoder". Then its standard names win, a
 *     null included, while a "*_token" of the model's own that tokenizer_config.json has as a string stays.
 *  3. A standard name that no file mentions is the tokenizer class's default, if the vocabulary has that token. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_vocab.h"

enum { TOK_NAMES_MAX = 256, TOK_NAME_BYTES_MAX = 64 };
struct tok_special {
    struct tok_name {
        char *name, *text;
    } v[TOK_NAMES_MAX];
    uint32_t n;
    char class[TOK_NAME_BYTES_MAX]; /* as tokenizer_config.json says; "": nothing */
};

/* config, map: the parsed objects, NULL where the folder lacks the file. class: as tok_special_class gives it. vocab:
 * every token's text. ST_CONFIG: said by e_config or e_map. */
enum status tok_special_load(struct tok_special *s, const json_t *config, const json_t *map, const char *class,
                             const struct tok_strs *vocab, const struct tok_err *e_config, const struct tok_err *e_map);
/* The tokenizer class that transformers takes, without "Fast"; "": the one without defaults. Borrowed from its
 * arguments, or a constant. byte_level: the pre-tokenizer ends with ByteLevel. */
const char *tok_special_class(const json_t *config, const json_t *model_config, bool byte_level, char *space,
                              size_t space_bytes);
const char *tok_special_find(const struct tok_special *s, const char *name); /* NULL: not set */
void        tok_special_free(struct tok_special *s);
