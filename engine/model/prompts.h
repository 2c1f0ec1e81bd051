/* prompts: texts that stand before others, each known by a name, as sentence-transformers keeps them in
 * config_sentence_transformers.json. model_prompts_read -> model_prompts_free.   Thread: one while loading; then
 * constant, any. */
#pragma once
#include "engine/model/source.h"
#include <stddef.h>
#include <stdint.h>

enum { PROMPTS_MAX = 256, PROMPT_NAME_MAX = 200 }; /* names; bytes of one */

/* Texts that have a prompt of their own where a request names none. */
enum prompt_role { PROMPT_ANY, PROMPT_QUERY, PROMPT_DOCUMENT, PROMPT_ROLES };

struct model_prompt {
    char  *name, *text;
    size_t n_text; /* 0: nothing stands before a text */
};
struct model_prompts {
    uint32_t             n;
    struct model_prompt *row; /* [n] in the file's order */
    /* What a text of this role gets, one of row; NULL: nothing. ANY: default_prompt_name. QUERY: "query". DOCUMENT:
     * "document", else "passage", else "corpus". As in sentence-transformers, the default is for neither of these. */
    const struct model_prompt *of[PROMPT_ROLES];
};

/* *p_out is empty where the folder has no such file. ST_CONFIG: names no prompt that is a text, or a default that is
 * not among them; ST_IO, ST_NOMEM. err: one line with the file, the key and what was found. */
enum status model_prompts_read(const struct source *src, struct model_prompts *p_out, char *err, size_t err_bytes);
const struct model_prompt *model_prompt_find(const struct model_prompts *p, const char *name, size_t n); /* or NULL */
/* The names in quotes with commas between them, as many as fit. Returns dst. */
const char *model_prompt_names(const struct model_prompts *p, char *dst, size_t bytes);
void        model_prompts_free(struct model_prompts *p); /* and empties it */
