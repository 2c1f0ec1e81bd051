/* tok_work: one tok_encode on its way: where ids go, what bounds them, and scratch memory that is reused from piece to
 * piece. Thread: the one that encodes. All memory is of the caller's arena. */
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
    enum status (*encode)(struct tok_work *w, const char *s, size_t n); /* the model: emits the ids of one piece */
    struct tok_scratch norm[2], bpe, stage[TOK_STAGES_MAX];
    struct tok_scratch atoms[TOK_STAGES_MAX + 1]; /* of each stage's pattern; the last one is the normalizer's */
    void              *match_data;                /* of tok_regex, made when the first pattern needs it */
};

/* At least bytes of scratch; what it held is lost when it grows. NULL: the arena is full. */
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

enum status               tok_ids_grow(struct tok_work *w, size_t n_more); /* room for them; ST_TOO_LARGE */
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
