/* embed_prompt: which of a model's prompts stands before a text of a request for vectors or scores.   Thread: the call's
 * owner. */
#pragma once
#include "api/dialect.h"
#include "engine/model/prompts.h"

/* param.check of prompt_name: sets c->prompt_named. ST_INVALID with *e: the model has no prompt of this name. */
enum status check_prompt_name(struct call *c, const struct param *p, const json_t *v, struct api_error *e);
/* What stands before a text of this role: the named prompt, else the model's own. NULL: nothing. */
const struct model_prompt *embed_prompt_of(const struct call *c, enum prompt_role role);
/* Sets p->before of the prompts that are texts. ST_INVALID with *e: a prompt is named, and one of p is token ids. */
enum status embed_prompt_place(struct call *c, struct call_prompt *p, uint32_t n, enum prompt_role role,
                               struct api_error *e);

/* Tokens of a prompt: its own, and those that sentence-transformers leaves out of a vector where a model's pooling says
 * so: with what the tokenizer puts before them. */
struct embed_before {
    const struct model_prompt *of; /* whose tokens were counted last; NULL: none were */
    uint32_t                   own, skipped;
};
/* Counts those of p->before, unless they are counted already. Neither is needed: both are 0. ST_INVALID with *e. */
enum status embed_prompt_count(struct call *c, const struct call_prompt *p, struct embed_before *b,
                               struct api_error *e);
/* The text that is tokenized: p->before and p->text. It lies in c->rendered, or is p->text; until the next one is made.
 * NULL: no memory. */
const char *embed_prompt_text(struct call *c, const struct call_prompt *p, size_t *n_out);
