/* tok_norm: the normalizer: a list of steps over one piece of text.
 * load -> run* -> free.   Thread: const after load. The output lies in the tok_work's scratch until the next run. */
#pragma once
#include "api/token/tok_pattern.h"
#include "api/token/tok_unicode.h"

enum { NORM_STEPS_MAX = 32 };
enum tok_form { FORM_C, FORM_D, FORM_KC, FORM_KD };
enum tok_norm_kind {
    NORM_FORM,
    NORM_LOWER,
    NORM_STRIP,
    NORM_STRIP_ACCENTS,
    NORM_PREPEND,
    NORM_REPLACE,
    NORM_BYTE_LEVEL,
    NORM_NMT,
    NORM_BERT_CLEAN,
    NORM_BERT_HAN,
    NORM_CHARSMAP,
};
struct tok_step {
    enum tok_norm_kind   kind;
    enum tok_form        form;
    enum tok_trait_bit   trait;       /* NORM_STRIP_ACCENTS: the characters that it removes */
    bool                 left, right; /* NORM_STRIP */
    struct tok_charsmap *charsmap;    /* NORM_CHARSMAP */
    struct tok_pattern   pattern;     /* NORM_REPLACE */
    char                *text;        /* NORM_PREPEND: the prefix; NORM_REPLACE: the replacement */
    size_t               n_text;
};
struct tok_norm {
    struct tok_step step[NORM_STEPS_MAX];
    uint32_t        n;
    size_t          shrink; /* most bytes of input per byte of output; 0: no bound */
};

/* Reads the "normalizer" of tokenizer.json; component NULL or null: no step. ST_CONFIG or ST_NOMEM, and e has the
 * reason. */
enum status tok_norm_load(struct tok_norm *x, const json_t *component, const struct tok_err *e);
void        tok_norm_free(struct tok_norm *x);
struct tok_text {
    const char *p;
    size_t      n;
    bool        at_start; /* it begins at the beginning of the whole text */
};
/* Replaces *t by its normalized form. ST_TOO_LARGE: the arena is full, or a pattern exceeded its limit. */
enum status tok_norm_run(const struct tok_norm *x, struct tok_work *w, struct tok_text *t);

/* tok_form.c: writes a Unicode normal form of t into w->norm[to] and points t at it; leaves t alone if no character
 * changes. Linear time, also for long runs of combining marks. */
enum status tok_form_run(enum tok_form form, struct tok_work *w, int to, struct tok_text *t);

/* A growing byte string in a scratch. */
struct tok_out {
    struct tok_work    *w;
    struct tok_scratch *at;
    size_t              n;
};
/* Returns where `more` further bytes can be written. The bytes so far are kept. NULL: the arena is full. */
static inline char *tok_out_room(struct tok_out *o, size_t more)
{
    if (more > SIZE_MAX / 4 - o->n) return NULL;
    if (o->n + more >= o->at->cap) { /* >=: with more == 0 the result is not NULL either */
        char *old = o->at->p;
        o->at->cap = 0;
        if (!tok_scratch(o->w, o->at, (o->n + more + 1) * 3 / 2)) return NULL;
        for (size_t i = 0; i < o->n; i++) o->at->p[i] = old[i];
    }
    return o->at->p + o->n;
}
