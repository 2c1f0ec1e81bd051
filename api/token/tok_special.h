/* tok_special: the named special tokens of a model folder ("bos_token" -> "<s>"), which its chat template may print.
 * tok_special_load -> tok_special_free.   Thread: load: one; afterwards const.
 * Two files and the tokenizer class define them, and the files disagree at times. The result is what transformers 5
 * passes to a template:
 *  1. tokenizer_config.json defines the seven standard names (bos, eos, unk, sep, pad, cls, mask), any other "*_token",
 *     and the object "extra_special_tokens", whose members are named tokens too.
 *  2. special_tokens_map.json counts only if tokenizer_config.json has no "added_tokens_decoder". Then its standard
 *     names win, even a null; another "*_token" that tokenizer_config.json has as a string stays.
 *  3. A standard name that no file mentions has the tokenizer class's default, if the vocabulary has that token. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_vocab.h"

enum { TOK_NAMES_MAX = 256, TOK_NAME_BYTES_MAX = 64 };
struct tok_special {
    struct tok_name {
        char *name, *text;
    } v[TOK_NAMES_MAX];
    uint32_t n;
    char class[TOK_NAME_BYTES_MAX]; /* tokenizer_class of tokenizer_config.json; "": not set */
};

/* config, map: the parsed files; NULL: the folder lacks the file. class: the result of tok_special_class. vocab: the
 * text of every token. ST_CONFIG: e_config or e_map has the reason. */
enum status tok_special_load(struct tok_special *s, const json_t *config, const json_t *map, const char *class,
                             const struct tok_strs *vocab, const struct tok_err *e_config, const struct tok_err *e_map);
/* The tokenizer class that transformers takes, without "Fast"; "": the class without defaults. The result is a
 * constant, or borrowed from an argument. byte_level: the pre-tokenizer ends with ByteLevel. space: memory for the
 * name. */
const char *tok_special_class(const json_t *config, const json_t *model_config, bool byte_level, char *space,
                              size_t space_bytes);
const char *tok_special_find(const struct tok_special *s, const char *name); /* NULL: not set */
void        tok_special_free(struct tok_special *s);
