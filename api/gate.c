#include "api/gate.h"
#include "api/calls/calls_row.h"
#include <stdlib.h>
#include <string.h>

enum { KEPT_BYTES_MAX = 1 << 16 };

struct answer_gate {
    struct gate              base;
    const struct gate_model *m;
    struct calls             calls;
    enum gate_kind           kind;
    enum calls_free          what;
    bool                     reasoning;      /* at the beginning */
    uint32_t                 budget, n_left; /* tokens of reasoning */
    enum gate_phase          phase;
    struct buf               opened; /* the marker that ended reasoning, and the bytes behind it */
};

static void nobody(void *ctx, const struct calls_event *ev)
{
    (void)ctx;
    (void)ev;
}

/* ---------------------------------------------------------------- tokens */

/* The bytes of a token as the automaton gets them: a special token counts where it is a part of a marker. */
static struct token_bytes bytes_of(const struct answer_gate *g, uint32_t token)
{
    struct token_bytes b = gr_vocab_token(g->m->vocab, token);
    if (b.n || !tok_is_special(g->m->tok, token)) return b;
    size_t      n = 0;
    const char *s = tok_token(g->m->tok, token, &n);
    if (!s || !calls_part_of_mark(g->m->calls, s, n)) return b;
    return (struct token_bytes){ (const unsigned char *)s, (uint32_t)n };
}

static void open_with(struct answer_gate *g, struct token_bytes b, size_t taken, struct gate_open *open)
{
    const struct calls_model *m = g->m->calls;
    buf_clear(&g->opened);
    buf_put(&g->opened, m->mark[g->calls.left].text, m->mark[g->calls.left].n);
    buf_put(&g->opened, b.p + taken, b.n - taken);
    open->bytes = (const unsigned char *)g->opened.data;
    open->n = g->opened.n;
}

static enum gate_phase push(struct gate *base, uint32_t token, struct gate_open *open)
{
    struct answer_gate *g = (struct answer_gate *)base;
    int                 mark = calls_mark_of(g->m->calls, token);
    struct token_bytes  b = { .n = 0 };
    size_t              taken = 0;
    bool                was_free = g->phase == GATE_FREE, parts = was_free && g->kind != GATE_NONE;
    if (calls_reasoning(&g->calls) && g->n_left) g->n_left--;
    if (mark >= 0) {
        calls_mark(&g->calls, mark);
    } else {
        b = bytes_of(g, token);
        taken = b.n;
        if (parts)
            taken = calls_text_free(&g->calls, g->what, (const char *)b.p, b.n);
        else
            calls_text(&g->calls, (const char *)b.p, b.n);
    }
    if (g->kind == GATE_NONE || (was_free && calls_is_free(&g->calls, g->what))) return GATE_FREE;
    if (was_free && mark < 0) open_with(g, b, taken, open);
    if (g->kind == GATE_CALLS) return g->phase = GATE_WATCH;
    if (calls_reasoning(&g->calls)) return g->phase = GATE_FREE;
    return g->phase = was_free || g->calls.said ? GATE_BOUND : GATE_WATCH;
}

static void restart(struct gate *base)
{
    struct answer_gate *g = (struct answer_gate *)base;
    g->phase = GATE_FREE;
}

static bool forced(const struct gate *base, uint32_t *token_out)
{
    const struct answer_gate *g = (const struct answer_gate *)base;
    uint32_t                  begun;
    if (g->n_left || !calls_reasoning(&g->calls)) return false;
    calls_leaves(&g->calls, CALLS_FREE_REASON, g->m->stop_mark, &begun);
    *token_out = g->m->stop[begun];
    return true;
}

static uint32_t marks(const struct gate *base, struct gate_mark *out)
{
    const struct answer_gate *g = (const struct answer_gate *)base;
    const struct calls_model *m = g->m->calls;
    uint32_t                  n = 0;
    for (uint32_t i = 0; i < m->n_mark && n < GATE_MARKS && g->kind != GATE_NONE; i++) {
        struct gate_mark k = { .text = m->mark[i].text, .n = m->mark[i].n, .token = m->mark[i].id };
        if (!calls_leaves(&g->calls, g->what, i, &k.begun)) continue;
        if (m->mark[i].by_id && k.token != UINT32_MAX) k.n = k.begun = 0;
        out[n++] = k;
    }
    return n;
}

/* ---------------------------------------------------------------- life */

static void drop(struct gate *base)
{
    struct answer_gate *g = (struct answer_gate *)base;
    calls_free(&g->calls);
    buf_free(&g->opened);
    free(g);
}

static struct gate *fork(const struct gate *base)
{
    const struct answer_gate *g = (const struct answer_gate *)base;
    return gate_create(g->m, g->calls.cfg.tools, g->kind, g->reasoning, g->budget);
}

struct gate *gate_create(const struct gate_model *m, const struct calls_tools *tools, enum gate_kind kind,
                         bool reasoning, uint32_t budget)
{
    static const struct gate_ops ops = { push, restart, forced, marks, fork, drop };
    const struct calls_cfg       cfg = { .model = m->calls, .tools = tools, .hidden = true, .sink = nobody };
    struct answer_gate          *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->base = (struct gate){ .ops = &ops,
                             .first = kind == GATE_BEFORE ? GATE_WATCH : GATE_FREE,
                             .again = kind == GATE_CALLS || kind == GATE_NONE,
                             .odd = m->odd,
                             .n_odd = kind == GATE_NONE ? 0 : m->n_odd };
    g->kind = kind;
    g->what = kind == GATE_CALLS ? CALLS_FREE_TEXT : CALLS_FREE_REASON;
    g->m = m;
    g->reasoning = reasoning;
    g->budget = g->n_left = budget;
    g->phase = g->base.first;
    calls_init(&g->calls, &cfg, reasoning);
    buf_init(&g->opened, KEPT_BYTES_MAX);
    /* memory that a step would else allocate */
    bool room = buf_reserve(&g->opened, CALLS_MARK_BYTES + 256) && buf_reserve(&g->calls.run, 256);
    if (room) return &g->base;
    drop(&g->base);
    return NULL;
}

/* ---------------------------------------------------------------- tokens that no free text may hold */

static bool ends_inside(const struct calls_model *m, struct token_bytes b)
{
    for (uint32_t i = 0; i < m->n_step; i++) {
        const struct calls_step *x = &m->step[i];
        bool                     thought = x->from == CS_REASON && x->to != CS_REASON;
        bool                     call = x->from == CS_TEXT && x->to != CS_TEXT && x->to != CS_REASON;
        if ((!thought && !call) || x->act & (CA_REDO | CA_DROP) || x->mark >= m->n_mark) continue;
        const char          *text = m->mark[x->mark].text;
        uint32_t             n = m->mark[x->mark].n;
        const unsigned char *at = b.n ? memmem(b.p, b.n, text, n) : NULL;
        if (at && at + n < b.p + b.n) return true;
    }
    return false;
}

/* ---------------------------------------------------------------- the marker that ends reasoning */

/* By the longest tokens, wherever it has begun. */
static void stop_by_longest(struct gate_model *m, const char *text, uint32_t n)
{
    uint32_t most[CALLS_MARK_BYTES] = { 0 };
    for (uint32_t t = 0; t < gr_vocab_n(m->vocab); t++) {
        struct token_bytes b = gr_vocab_token(m->vocab, t);
        for (uint32_t i = 0; b.n && i + b.n <= n; i++) {
            if (b.n <= most[i] || memcmp(b.p, text + i, b.n) != 0) continue;
            most[i] = b.n;
            m->stop[i] = t;
        }
    }
}

/* From its beginning on by the tokens that the tokenizer makes of it, if their bytes are the marker's. */
static enum status stop_by_tokenizer(struct gate_model *m, const char *text, uint32_t n)
{
    struct arena   a;
    struct tok_ids ids = { .n = 0 };
    uint32_t       at = 0;
    arena_init(&a, 1 << 20);
    enum status st = tok_encode(m->tok, text, n, TOK_NO_SPECIAL_PARSE, CALLS_MARK_BYTES, &a, &ids);
    for (size_t i = 0; !st && i < ids.n; i++) {
        struct token_bytes b = gr_vocab_token(m->vocab, ids.id[i]);
        if (!b.n || at + b.n > n || memcmp(b.p, text + at, b.n) != 0) break;
        m->stop[at] = ids.id[i];
        at += b.n;
    }
    arena_free(&a);
    return st == ST_NOMEM ? st : ST_OK;
}

static enum status scan_stop(struct gate_model *m)
{
    const struct calls_model *c = m->calls;
    for (uint32_t i = 0; i < CALLS_MARK_BYTES; i++) m->stop[i] = UINT32_MAX;
    m->stop_mark = UINT32_MAX;
    for (uint32_t i = 0; c->think && i < c->n_mark; i++)
        if (!strcmp(c->mark[i].text, c->think->stop)) m->stop_mark = i;
    if (m->stop_mark == UINT32_MAX) return ST_OK;
    const char *text = c->mark[m->stop_mark].text;
    uint32_t    n = c->mark[m->stop_mark].n;
    if (c->mark[m->stop_mark].id != UINT32_MAX) {
        for (uint32_t i = 0; i < n; i++) m->stop[i] = c->mark[m->stop_mark].id;
        return ST_OK;
    }
    stop_by_longest(m, text, n);
    return stop_by_tokenizer(m, text, n);
}

bool gate_model_stops(const struct gate_model *m)
{
    bool any = m->stop_mark != UINT32_MAX;
    for (uint32_t i = 0; any && i < m->calls->mark[m->stop_mark].n; i++) any = m->stop[i] != UINT32_MAX;
    return any;
}

enum status gate_model_scan(struct gate_model *m)
{
    uint32_t  n = gr_vocab_n(m->vocab), n_odd = 0, room = 0;
    uint32_t *odd = NULL;
    for (uint32_t t = 0; t < n; t++) {
        if (!ends_inside(m->calls, gr_vocab_token(m->vocab, t))) continue;
        if (n_odd == room) {
            room = room ? 2 * room : 16;
            uint32_t *more = realloc(odd, room * sizeof *odd);
            if (!more) {
                free(odd);
                return ST_NOMEM;
            }
            odd = more;
        }
        odd[n_odd++] = t;
    }
    m->odd = odd;
    m->n_odd = n_odd;
    return scan_stop(m);
}
