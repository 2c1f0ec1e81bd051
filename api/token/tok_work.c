#include "api/token/tok_work.h"
#include <string.h>

enum status tok_ids_grow(struct tok_work *w, size_t n_more)
{
    struct tok_ids *out = w->out;
    if (n_more > w->ids_max || out->n > w->ids_max - n_more) return ST_TOO_LARGE;
    if (out->n + n_more <= out->cap) return ST_OK;
    size_t cap = out->cap + out->cap / 2 + 64;
    if (cap > w->ids_max) cap = w->ids_max;
    if (cap < out->n + n_more) cap = out->n + n_more;
    if (cap > SIZE_MAX / sizeof *out->id) return ST_TOO_LARGE;
    uint32_t *id = arena_alloc(w->a, cap * sizeof *id);
    if (!id) return ST_TOO_LARGE;
    if (out->n) memcpy(id, out->id, out->n * sizeof *id);
    out->id = id;
    out->cap = cap;
    return ST_OK;
}
