/* pair: a query and a document as one prompt, for models that judge them together.
 * Either a template gets both as messages of the roles "query" and "document", as sentence-transformers and vLLM do it,
 * or the tokenizer puts its tokens around and between them.   Thread: forms are constant; prompts: the call's owner. */
#pragma once
#include "api/call.h"

struct pair_form {
    const struct tmpl *tmpl; /* NULL: the tokenizer joins both */
    const json_t      *vars; /* more variables of the template, an object; or NULL */
    const char *
        instruction; /* of requests that have none and name no prompt: a message of the role "system"; NULL: the template's */
};

extern const char pair_qwen3_reranker[]; /* the template of Qwen3-Reranker, as its model card has it */

/* Whether the template shows what messages of both roles hold, with vars as above. */
bool pair_takes_roles(const struct tmpl *t, const struct tok *tok, const json_t *vars);
/* Tokenizes prompt p from its text, a document, and that of query. The document is cut to c->ask.doc_tokens, and so
 * that the pair has c->ask.truncate. ST_INVALID with *e, ST_NOMEM. */
enum status pair_prompt(struct call *c, const struct call_prompt *query, struct call_prompt *p, struct api_error *e);
