#include "api/gate.h"
#include "api/callform.h"
#include "api/calls/calls_row.h"
#include <stdlib.h>
#include <string.h>

enum { KEPT_BYTES_MAX = 1 << 16, KEYS_BYTES_MAX = 1 << 17 };

struct answer_gate {
    struct gate              base;
    const struct gate_model *m;
    struct calls             calls;
    enum gate_kind           kind;
    enum calls_free          what;
    bool                     reasoning;      /* at the beginning */
    uint32_t                 budget, n_left; /* tokens of reasoning */
    enum gate_phase          phase;
    struct buf               opened; /* the marker that ended the free text, and the bytes behind it */
    struct buf               keys;   /* GATE_ARGS: of each tool in order, its name and a bracket */
};
_Static_assert((int)CALLS_LEADS_MAX <= (int)GATE_NEAR, "all leads are markers");

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
    calls_text(&g->calls, (const char *)b.p + taken, b.n - taken);
}

/* ---------------------------------------------------------------- arguments alone */

/* The name of a tool and a bracket, with which the grammar of its arguments begins. */
static const char *key_of(const struct answer_gate *g, const struct calls_tool *tool)
{
    const struct calls_tools *tools = g->calls.cfg.tools;
    size_t                    at = 0;
    for (const struct calls_tool *t = tools->tool; t < tool; t++) at += t->n + 1;
    return g->keys.data + at;
}

static const struct calls_tool *bound_tool(const struct answer_gate *g)
{
    const struct calls_tool *t = calls_args_begin(&g->calls);
    return t && callform_binds(g->m->calls, t) ? t : NULL;
}

static enum gate_phase push_args(struct gate *base, uint32_t token, struct gate_open *open)
{
    struct answer_gate      *g = (struct answer_gate *)base;
    const struct calls_tool *tool = NULL;
    int                      mark = calls_mark_of(g->m->calls, token);
    struct token_bytes       b = { .p = (const unsigned char *)"" }; /* a mark has none */
    uint32_t                 taken = 0;
    if (calls_reasoning(&g->calls) && g->n_left) g->n_left--;
    if (mark >= 0) {
        calls_mark(&g->calls, mark);
        tool = bound_tool(g);
    } else {
        b = bytes_of(g, token);
    }
    bool was_free = g->phase == GATE_FREE;
    while (taken < b.n && !(was_free && tool)) {
        taken += (uint32_t)calls_text_args(&g->calls, (const char *)b.p + taken, b.n - taken);
        tool = bound_tool(g);
    }
    if (!was_free || !tool) return g->phase;
    buf_clear(&g->opened);
    buf_put(&g->opened, key_of(g, tool), tool->n + 1);
    buf_put(&g->opened, b.p + taken, b.n - taken);
    open->bytes = (const unsigned char *)g->opened.data;
    open->n = g->opened.n;
    calls_text(&g->calls, (const char *)b.p + taken, b.n - taken);
    return g->phase = GATE_WATCH;
}

static uint32_t leads(const struct gate *base, struct gate_mark *out)
{
    const struct answer_gate *g = (const struct answer_gate *)base;
    struct calls_lead         lead[CALLS_LEADS_MAX];
    uint32_t                  n = calls_args_leads(&g->calls, lead), n_out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!callform_binds(g->m->calls, lead[i].tool)) continue;
        const char *key = key_of(g, lead[i].tool);
        uint32_t    n_key = (uint32_t)lead[i].tool->n + 1;
        out[n_out++] = (struct gate_mark){ .text = lead[i].text ? lead[i].text : key,
                                           .n = lead[i].text ? lead[i].n : n_key,
                                           .begun = lead[i].begun,
                                           .token = UINT32_MAX,
                                           .open = key,
                                           .n_open = n_key,
                                           .near = true };
    }
    return n_out;
}

/* Harmony's message goes on behind the arguments, up to its end. */
static bool restart_args(struct gate *base)
{
    struct answer_gate *g = (struct answer_gate *)base;
    if (g->calls.opened) return false;
    g->phase = GATE_FREE;
    return true;
}

/* ---------------------------------------------------------------- markers */

static enum gate_phase push(struct gate *base, uint32_t token, struct gate_open *open)
{
    struct answer_gate *g = (struct answer_gate *)base;
    int                 mark = calls_mark_of(g->m->calls, token);
    struct token_bytes  b = { .p = (const unsigned char *)"" };
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

static bool restart(struct gate *base)
{
    struct answer_gate *g = (struct answer_gate *)base;
    g->phase = GATE_FREE;
    return true;
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
        k.near = k.begun > 0;
        k.n_whole = g->m->whole_first[i + 1] - g->m->whole_first[i];
        if (k.n_whole) k.whole = g->m->whole + g->m->whole_first[i];
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
    buf_free(&g->keys);
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
    static const struct gate_ops args_ops = { push_args, restart_args, forced, leads, fork, drop };
    const struct calls_cfg       cfg = { .model = m->calls, .tools = tools, .hidden = true, .sink = nobody };
    struct answer_gate          *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->base = (struct gate){ .ops = kind == GATE_ARGS ? &args_ops : &ops,
                             .first = kind == GATE_BEFORE ? GATE_WATCH : GATE_FREE,
                             .again = kind == GATE_CALLS || kind == GATE_ARGS || kind == GATE_NONE,
                             .late = kind == GATE_ARGS,
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
    bool room = buf_reserve(&g->opened, CALLS_NAME_MAX + 256) && buf_reserve(&g->calls.run, 256);
    buf_init(&g->keys, KEYS_BYTES_MAX);
    for (uint32_t i = 0; kind == GATE_ARGS && i < tools->n; i++) {
        buf_put(&g->keys, tools->tool[i].name, tools->tool[i].n);
        buf_putc(&g->keys, '(');
    }
    if (room && !g->keys.failed) return &g->base;
    drop(&g->base);
    return NULL;
}

/* ---------------------------------------------------------------- tokens that no free text may hold */

/* Does a step lead out of a free text, behind all bytes of its marker? */
static bool leads_out(const struct calls_model *m, const struct calls_step *x)
{
    bool thought = x->from == CS_REASON && x->to != CS_REASON;
    bool call = x->from == CS_TEXT && x->to != CS_TEXT && x->to != CS_REASON;
    return (thought || call) && !(x->act & (CA_REDO | CA_DROP)) && x->mark < m->n_mark;
}

static bool ends_inside(const struct calls_model *m, struct token_bytes b)
{
    for (uint32_t i = 0; i < m->n_step; i++) {
        const struct calls_step *x = &m->step[i];
        if (!leads_out(m, x)) continue;
        const char          *text = m->mark[x->mark].text;
        uint32_t             n = m->mark[x->mark].n;
        const unsigned char *at = b.n ? memmem(b.p, b.n, text, n) : NULL;
        if (at && at + n < b.p + b.n) return true;
    }
    return calls_passes_lead(m, (const char *)b.p, b.n);
}

/* Does a marker that leads out of a free text by its bytes stand at the end of a token? */
static bool ends_with(const struct calls_model *m, uint32_t mark, struct token_bytes b)
{
    uint32_t n = m->mark[mark].n;
    if (b.n < n || memcmp(b.p + b.n - n, m->mark[mark].text, n) != 0) return false;
    for (uint32_t i = 0; i < m->n_step; i++)
        if (m->step[i].mark == mark && leads_out(m, &m->step[i])) return true;
    return false;
}

/* A growing list of tokens. */
struct tokens {
    uint32_t *at, n, room;
};

static bool tokens_add(struct tokens *t, uint32_t token)
{
    if (t->n == t->room) {
        uint32_t  room = t->room ? 2 * t->room : 16;
        uint32_t *more = realloc(t->at, room * sizeof *more);
        if (!more) return false;
        t->at = more;
        t->room = room;
    }
    t->at[t->n++] = token;
    return true;
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
    const struct calls_model *c = m->calls;
    struct tokens             all = { .n = 0 };
    uint32_t                  n = gr_vocab_n(m->vocab);
    bool                      good = true;
    for (uint32_t t = 0; t < n && good; t++)
        if (ends_inside(c, gr_vocab_token(m->vocab, t))) good = tokens_add(&all, t);
    m->n_odd = all.n;
    for (uint32_t i = 0; i < c->n_mark; i++) {
        bool by_bytes = !c->mark[i].by_id || c->mark[i].id == UINT32_MAX;
        m->whole_first[i] = all.n - m->n_odd;
        for (uint32_t t = 0; t < n && good && by_bytes; t++)
            if (ends_with(c, i, gr_vocab_token(m->vocab, t))) good = tokens_add(&all, t);
    }
    for (uint32_t i = c->n_mark; i <= CALLS_MARKS_MAX; i++) m->whole_first[i] = all.n - m->n_odd;
    if (!good) {
        free(all.at);
        return ST_NOMEM;
    }
    m->odd = all.at;
    m->whole = all.at ? all.at + m->n_odd : NULL;
    return scan_stop(m);
}
