/* family: how a model speaks of tools and reasoning: which row of api/calls its answers follow, and what its chat
 * template takes. Both are found out once, when the model is loaded, from the template's text, from what it makes of
 * small conversations, and from the tokenizer's tokens.   Thread: family_init: one; afterwards constant and shared. */
#pragma once
#include "api/calls/calls.h"
#include "api/jinja/template.h"

enum { FAMILY_HEADER_MAX = 256 };

struct family {
    struct calls_model calls;
    bool               tools;        /* the template shows tools */
    bool               args_text;    /* it wants the arguments of past calls as JSON text; else as an object */
    bool               null_content; /* it knows what to do with a content that is null */
    bool               one_call;     /* it shows the first call of a message alone */
    char               header[FAMILY_HEADER_MAX]; /* what it puts before an answer, up to a marker of reasoning */
    uint32_t           n_header;                  /* 0: nothing that is known */
};

/* row, think: a name that calls_row_find or calls_think_find knows, "none", or "auto". t: NULL: no template. */
void family_init(struct family *f, const struct tmpl *t, const struct tok *tok, const char *row, const char *think);
/* Whether a name may be given to family_init. */
bool family_row_known(const char *name);
bool family_think_known(const char *name);
/* All names of rows (or of markers of reasoning), with ", " between, into dst; cut to its bytes. Returns dst. */
const char *family_names(bool rows, char *dst, size_t dst_bytes);
/* Whether the rendered prompt leaves reasoning open, so that the answer begins inside it. */
bool family_reasons(const struct family *f, const char *prompt, size_t n);
