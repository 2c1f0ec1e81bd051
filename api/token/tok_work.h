/* tok_work: the state of one tok_encode call: the ids so far, their bound, and scratch memory that all pieces reuse.
 * Memory comes from the caller's arena, except match_data.   Thread: the one that encodes. */
#pragma once
#include "api/token/tokenizer.h"

enum { TOK_STAGES_MAX = 16 };

struct tok_scratch {
    char  *p;
    size_t cap;
};
struct tok_work {
    const struct tok *t;
    struct arena     *a;
    struct tok_ids   *out;
    size_t            ids_max;
    unsigned          flags;
    enum status (*encode)(struct tok_work *w, const char *s, size_t n); /* of the model; emits the ids of one piece */
    struct tok_scratch norm[2], bpe, stage[TOK_STAGES_MAX];
    struct tok_scratch atoms[TOK_STAGES_MAX + 1]; /* one for each stage's pattern, the last for the normalizer's */
    void              *match_data;                /* of tok_regex: made for the first match; tok_regex_done frees it */
};

/* Returns scratch of at least `bytes`. Its content is lost when it grows. NULL: the arena is full. */
static inline char *tok_scratch(struct tok_work *w, struct tok_scratch *s, size_t bytes)
{
    if (bytes <= s->cap) return s->p;
    size_t cap = bytes < 1024 ? 1024 : bytes + bytes / 4;
    char  *p = arena_alloc(w->a, cap);
    if (!p && cap > bytes) p = arena_alloc(w->a, cap = bytes);
    if (p) {
        s->p = p;
        s->cap = cap;
    }
    return p;
}

/* Makes room for n_more ids. ST_TOO_LARGE: more than ids_max in all, or the arena is full. */
enum status               tok_ids_grow(struct tok_work *w, size_t n_more);
static inline enum status tok_emit(struct tok_work *w, uint32_t id)
{
    struct tok_ids *out = w->out;
    if (out->n == out->cap || out->n >= w->ids_max) {
        enum status st = tok_ids_grow(w, 1);
        if (st) return st;
    }
    out->id[out->n++] = id;
    return ST_OK;
}
