/* rx_void: a search for a text that an expression matches, among its derivatives. */
#include "engine/grammar/rx_impl.h"
#include <stdlib.h>
#include <string.h>

/* An expression that follows the first one. */
struct found {
    uint32_t a, from; /* from: the place of what it is a derivative of */
    bool     done;    /* its own derivatives have been looked at */
};
struct search {
    struct found *found; /* [n] as they were met */
    uint32_t     *heap;  /* [n_heap] places in found[]: the nearest first, of those the one that was met last */
    uint32_t      n, n_heap, room, oldest; /* those before oldest are done */
    uint8_t      *seen;                    /* a bit for each expression */
    size_t        seen_bytes;
};

/* ---------------------------------------------------------------- the nearest first */

static bool is_before(const struct rx *x, const struct search *s, uint32_t p, uint32_t q)
{
    uint32_t a = x->node[s->found[p].a].need, b = x->node[s->found[q].a].need;
    return a != b ? a < b : p > q;
}

static void heap_put(const struct rx *x, struct search *s, uint32_t place)
{
    uint32_t at = s->n_heap++;
    for (; at > 0 && is_before(x, s, place, s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = place;
}

static uint32_t heap_take(const struct rx *x, struct search *s)
{
    uint32_t top = s->heap[0], place = s->heap[--s->n_heap], at = 0;
    for (uint32_t kid = 1; kid < s->n_heap; kid = 2 * at + 1) {
        if (kid + 1 < s->n_heap && is_before(x, s, s->heap[kid + 1], s->heap[kid])) kid++;
        if (!is_before(x, s, s->heap[kid], place)) break;
        s->heap[at] = s->heap[kid];
        at = kid;
    }
    s->heap[at] = place;
    return top;
}

/* ---------------------------------------------------------------- what has been met */

static bool search_grow(struct search *s)
{
    if (s->n < s->room) return true;
    uint32_t      want = s->room ? 2 * s->room : 64;
    struct found *found = realloc(s->found, want * sizeof *found);
    if (found) s->found = found;
    uint32_t *heap = realloc(s->heap, want * sizeof *heap);
    if (heap) s->heap = heap;
    if (!found || !heap) return false;
    s->room = want;
    return true;
}

static bool search_add(const struct rx *x, struct search *s, uint32_t a, uint32_t from)
{
    if (a / 8 >= s->seen_bytes) {
        size_t   bytes = (size_t)a / 4 + 64;
        uint8_t *p = realloc(s->seen, bytes);
        if (!p) return false;
        memset(p + s->seen_bytes, 0, bytes - s->seen_bytes);
        s->seen = p;
        s->seen_bytes = bytes;
    }
    if (s->seen[a / 8] >> (a % 8) & 1) return true;
    s->seen[a / 8] = (uint8_t)(s->seen[a / 8] | 1u << (a % 8));
    if (!search_grow(s)) return false;
    s->found[s->n] = (struct found){ a, from, false };
    heap_put(x, s, s->n++);
    return true;
}

/* Where to go on: by turns at the one that needs the fewest bytes, by which the end of a long text is found in about as
 * many steps, and at the one that was met first, because that measure may mislead. false: all are done. */
static bool search_next(const struct rx *x, struct search *s, bool nearest, uint32_t *place_out)
{
    while (s->oldest < s->n && s->found[s->oldest].done) s->oldest++;
    if (s->oldest == s->n) return false;
    *place_out = s->oldest;
    while (nearest && s->n_heap > 0) {
        *place_out = heap_take(x, s);
        nearest = s->found[*place_out].done;
    }
    s->found[*place_out].done = true;
    return true;
}

/* Of a place from which a text is found: all before it have one too. */
static void search_mark(struct rx *x, const struct search *s, uint32_t place)
{
    for (; place > 0; place = s->found[place].from) x->node[s->found[place].a].is_void = RX_VOID_NO;
}

/* Does one of what follows a match the empty text? */
static enum rx_void search(struct rx *x, uint32_t a, struct search *s)
{
    uint32_t at;
    if (!search_add(x, s, a, 0)) goto nomem;
    for (bool nearest = true; search_next(x, s, nearest, &at); nearest = !nearest) {
        for (uint32_t k = 0; k < x->n_kind; k++) {
            uint32_t d = rx_derive(x, s->found[at].a, (uint8_t)k);
            if (x->st) return RX_VOID_UNKNOWN;
            if (x->node[d].is_void == RX_VOID_NO) {
                search_mark(x, s, at);
                return RX_VOID_NO;
            }
            if (x->node[d].is_void == RX_VOID_UNKNOWN && !search_add(x, s, d, at)) goto nomem;
        }
    }
    for (uint32_t i = 0; i < s->n; i++) x->node[s->found[i].a].is_void = RX_VOID_YES;
    return RX_VOID_YES;
nomem:
    x->st = ST_NOMEM;
    return RX_VOID_UNKNOWN;
}

bool rx_is_void(struct rx *x, uint32_t a)
{
    if (x->node[a].is_void == RX_VOID_UNKNOWN) {
        struct search s = { .n = 0 };
        x->node[a].is_void = (uint8_t)search(x, a, &s);
        free(s.found);
        free(s.heap);
        free(s.seen);
    }
    return x->node[a].is_void == RX_VOID_YES;
}
