/* family: the form of a model's tool calls and reasoning: the row of api/calls/calls_row.h for its answers, and the
 * abilities of its chat template. Both are determined once, when the model is loaded, from the template's text, from
 * its output for small conversations, and from the tokenizer's tokens.   Thread: family_init: one; afterwards constant
 * and shared. */
#pragma once
#include "api/calls/calls.h"
#include "api/jinja/template.h"

enum { FAMILY_HEADER_MAX = 256 };
enum { FAMILY_TEXT = 1, FAMILY_PARTS = 2 }; /* forms of a content: a string, a list of parts */
enum family_role { FAMILY_USER, FAMILY_SYSTEM, FAMILY_ASSISTANT, FAMILY_ROLES };

struct family {
    struct calls_model calls;
    bool               tools;      /* the template shows tools */
    uint8_t content[FAMILY_ROLES]; /* bits: forms of content that it shows in messages of this role; 0: not known */
    bool    args_text;             /* the template takes arguments of past calls as JSON text; false: as an object */
    bool    null_content;          /* the template accepts a content that is null */
    bool    one_call;              /* the template shows only the first call of a message */
    /* The template takes a text or reasoning in a message with calls, and refuses both. */
    bool     text_or_thought;
    char     header[FAMILY_HEADER_MAX]; /* its text before an answer, up to a marker of reasoning */
    uint32_t n_header;                  /* bytes of header; 0: not known */
};

/* row, think: a name that calls_row_find or calls_think_find knows, "none", or "auto". t NULL: the model has no
 * template.
 * f keeps pointers to constant tables only. */
void family_init(struct family *f, const struct tmpl *t, const struct tok *tok, const char *row, const char *think);
/* Whether family_init accepts a name for its row, or for its markers of reasoning. */
bool family_row_known(const char *name);
bool family_think_known(const char *name);
/* Writes all names of rows (false: of markers of reasoning), separated by ", ", to dst, cut to its size. Returns dst.
 * */
const char *family_names(bool rows, char *dst, size_t dst_bytes);
/* Where the rendered prompt leaves the answer. */
enum family_thinking {
    FAMILY_NO_THOUGHT, /* before it: the model may begin with reasoning, if it does so at all */
    FAMILY_THINKS,     /* inside reasoning */
    FAMILY_THOUGHT,    /* behind reasoning that the prompt has closed */
};
enum family_thinking family_thinking(const struct family *f, const char *prompt, size_t n);
