#include "api/token/tok_merge.h"
#include "api/token/tok_unicode.h"
#include "base/heap.h"

/* A sequence is merged window by window, each small enough for the cache, and what comes out is exact all the same:
 *
 *   Tokens t1..tk are what their symbols merge to if and only if that holds for every two neighbours alone. (Merges are
 *   done in the order of (rank, position). Up to the first one that crosses a border, those inside two neighbours are
 *   the same, in the same order, as if the two stood alone; so none ever crosses.)
 *
 * The window's last few tokens may be due to its end; the next window begins at the first of them. If it begins with
 * that same token, then both sides of the cut are neighbours that were seen to hold, and so is the whole. If it does
 * not, or a window holds too few tokens to cut, everything is done again with windows 16 times as long: at last one
 * window is the sequence. */
enum { WINDOW = 1024, WINDOW_GROWTH = 16, TAIL = 4 };

static const uint32_t DEAD = UINT32_MAX;

/* A symbol is a span of cells: id, length and the rank of the pair with its right neighbour stand in its first cell,
 * the length in its
 * last one too, so that both neighbours are found. Cells inside a span are DEAD. heap: rank << 32 | first cell. */
struct window {
    uint32_t *id, *len, *rank;
    uint64_t *heap;
    uint32_t  n;
    size_t    n_heap, heap_cap;
};

static size_t heap_cells(size_t n) { return n + n / 4 + 16; }

static bool window_init(struct window *x, struct tok_work *w, size_t n)
{
    if (n >= UINT32_MAX / 4) return false;
    x->heap_cap = heap_cells(n);
    x->heap = (uint64_t *)(void *)tok_scratch(w, &w->bpe, x->heap_cap * sizeof *x->heap + 3 * n * sizeof *x->id);
    if (!x->heap) return false;
    x->id = (uint32_t *)(void *)(x->heap + x->heap_cap);
    x->len = x->id + n;
    x->rank = x->len + n;
    return true;
}

static bool before(const void *ctx, uint64_t a, uint64_t b)
{
    (void)ctx;
    return a < b;
}
static const struct heap_order by_value = { .before = before };

static bool is_current(const struct window *x, uint64_t entry)
{
    return x->id[(uint32_t)entry] != DEAD && x->rank[(uint32_t)entry] == entry >> 32;
}

/* Entries of pairs that are gone make room: at most as many stay as there are pairs. */
static void drop_stale(struct window *x)
{
    size_t keep = 0;
    for (size_t i = 0; i < x->n_heap; i++)
        if (is_current(x, x->heap[i])) x->heap[keep++] = x->heap[i];
    x->n_heap = keep;
    heap_make(x->heap, x->n_heap, by_value);
}

/* The pair that begins at `at` is a new one. */
static void set_pair(const struct tok_bpe *m, bool guard, struct window *x, uint32_t at)
{
    uint32_t right = at + x->len[at];
    x->rank[at] = right < x->n ? tok_bpe_rank_of(m, guard, x->id[at], x->id[right]) : TOK_NO_RANK;
    if (x->rank[at] != TOK_NO_RANK) heap_push(x->heap, &x->n_heap, (uint64_t)x->rank[at] << 32 | at, by_value);
}

/* x->id[0..n) are symbols; afterwards its first ids are the tokens, with their lengths in x->len. Returns how many. */
static uint32_t merge(const struct tok_bpe *m, bool guard, struct window *x)
{
    x->n_heap = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        x->len[i] = 1;
        x->rank[i] = i + 1 < x->n ? tok_bpe_rank_of(m, guard, x->id[i], x->id[i + 1]) : TOK_NO_RANK;
        if (x->rank[i] != TOK_NO_RANK) x->heap[x->n_heap++] = (uint64_t)x->rank[i] << 32 | i;
    }
    heap_make(x->heap, x->n_heap, by_value);
    while (x->n_heap) {
        uint64_t top = heap_take(x->heap, &x->n_heap, 0, by_value);
        if (!is_current(x, top)) continue;
        uint32_t at = (uint32_t)top, right = at + x->len[at], len = x->len[at] + x->len[right];
        x->id[right] = DEAD;
        x->id[at] = m->merged[top >> 32];
        x->len[at] = x->len[at + len - 1] = len;
        x->rank[at] = TOK_NO_RANK; /* until it is known again: drop_stale must not keep it */
        if (x->n_heap + 2 > x->heap_cap) drop_stale(x);
        set_pair(m, guard, x, at);
        if (at) set_pair(m, guard, x, at - x->len[at - 1]);
    }
    uint32_t n = 0;
    for (uint32_t i = 0, next; i < x->n; i = next) {
        next = i + x->len[i];
        x->id[n] = x->id[i];
        x->len[n++] = next - i;
    }
    return n;
}

/* ---- windows */

/* Up to max symbols from *at on, into id; *at moves behind them. id NULL: only that. */
static uint32_t take(const struct tok_bpe *m, const struct tok_symbols *x, size_t *at, size_t max, uint32_t *id)
{
    uint32_t k = 0;
    while (*at < x->n && k < max) {
        size_t from = *at;
        switch (x->kind) {
        case SYMBOLS_BYTES:
            if (id) id[k] = m->char_of_byte[(unsigned char)x->s[from]];
            ++*at;
            break;
        case SYMBOLS_CHARS: {
            uint32_t cp = tok_next(x->s, at);
            if (id) id[k] = (uint32_t)tok_bpe_char(m, x->s + from, *at - from, cp);
            break;
        }
        case SYMBOLS_IDS:
            if (id) id[k] = x->id[from];
            ++*at;
            break;
        }
        k++;
    }
    return k;
}

/* All of it in windows of size symbols. *again: they were too short, and nothing counts. */
static enum status merge_windows(const struct tok_bpe *m, struct tok_work *w, const struct tok_symbols *x, size_t size,
                                 bool *again)
{
    struct window win;
    bool          guard = tok_bpe_guard(m, w);
    int64_t       first = TOK_NONE; /* what the next window must begin with */
    if (!window_init(&win, w, size)) return ST_TOO_LARGE;
    *again = false;
    for (size_t at = 0; at < x->n;) {
        size_t end = at;
        win.n = take(m, x, &end, size, win.id);
        uint32_t n = merge(m, guard, &win), keep = n;
        if (end < x->n) keep = n > TAIL ? n - TAIL : 0;
        if (!keep || (first >= 0 && win.id[0] != first)) {
            *again = true;
            return ST_OK;
        }
        size_t cells = 0;
        for (uint32_t i = 0; i < keep; i++) {
            enum status st = tok_emit(w, win.id[i]);
            if (st) return st;
            cells += win.len[i];
        }
        if (keep == n) return ST_OK;
        first = win.id[keep];
        take(m, x, &at, cells, NULL);
    }
    return ST_OK;
}

enum status tok_merge_long(const struct tok_bpe *m, struct tok_work *w, const struct tok_symbols *x)
{
    size_t mark = w->out->n;
    bool   again = true;
    for (size_t size = WINDOW; again; size = size < SIZE_MAX / WINDOW_GROWTH ? size * WINDOW_GROWTH : SIZE_MAX) {
        w->out->n = mark;
        enum status st = merge_windows(m, w, x, size < x->n ? size : x->n, &again);
        if (st) return st;
    }
    return ST_OK;
}
