#include "api/parts.h"
#include "api/dialect.h"
#include "api/family.h"
#include "base/json.h"
#include <string.h>

enum { TEXT_MAX = 1 << 30 };

/* Of a custom tool's arguments. */
static const struct json_bounds bounds = { .depth_max = CALLS_DEPTH_MAX,
                                           .members_max = 1 << 10,
                                           .tree_bytes_max = 16 << 20 };

struct parts {
    struct calls calls;
    struct detok stops; /* what text goes through behind the automaton */
    struct call *c;
    uint32_t     i, k, told; /* the choice; the token at hand; tokens below it were told with an event */
    struct buf  *out;        /* of the event at hand */
    struct buf   piece;      /* text of one token */
    struct buf   args;       /* of a custom tool, until they are whole */
    bool         custom;
    bool         ends, cut; /* no more text will come; and the arguments of a custom tool were not whole */
};

/* ---------------------------------------------------------------- events */

static void put_text(struct parts *p, const char *s, size_t n, bool last)
{
    struct call        *c = p->c;
    struct call_choice *ch = &c->choice[p->i];
    struct buf         *text = answer_text_buf(c, ch);
    size_t              before = text->n;
    if (last)
        detok_finish(&p->stops, text);
    else
        detok_put(&p->stops, s, n, p->k >= c->s.min_tokens, text);
    if (text->n == before) return;
    const struct answer_piece piece = { text_of(text) + before, text->n - before, p->told, p->k + 1 };
    p->told = p->k + 1;
    writer_of(c)->text(c, p->i, &piece, p->out);
}

static void put_tool(struct parts *p, enum answer_tool_what what, const struct calls_event *ev, const char *s, size_t n)
{
    const struct answer_tool t = { .what = what,
                                   .index = ev->index,
                                   .id = ev->id,
                                   .text = s,
                                   .n = n,
                                   .custom = p->custom,
                                   .cut = p->cut,
                                   .from = p->told,
                                   .to = p->k + 1 };
    /* The end of a call is told by no chunk of a stream: its tokens go with the next one. */
    if (what != ANSWER_TOOL_CLOSE || !p->c->return_token_ids) p->told = p->k + 1;
    writer_of(p->c)->tool(p->c, p->i, &t, p->out);
}

/* Whether text is the beginning of {"input":" and ends within that. */
static bool is_before_input(const char *text, size_t n)
{
    const char *at = "{\"input\":\"";
    for (size_t i = 0; i < n; i++) {
        if (strchr(" \t\r\n", text[i])) continue;
        if (text[i] != *at) return false;
        at++;
    }
    return *at;
}

/* The object that arguments would be if their text ended where they do: without what is left of an escape. NULL: they
 * are no beginning of such an object. */
static json_t *closed(const char *text, size_t n)
{
    enum { ESCAPE_MAX = 12 }; /* both halves of a character */
    struct json_error je;
    struct buf        b;
    json_t           *v = NULL;
    buf_init(&b, CALLS_ARGS_MAX + 16);
    for (size_t cut = 0; !v && cut < ESCAPE_MAX && cut < n; cut++) {
        buf_clear(&b);
        buf_put(&b, text, n - cut);
        buf_puts(&b, "\"}");
        v = json_parse_bounded(text_of(&b), b.n, &bounds, &je);
    }
    buf_free(&b);
    return v;
}

/* {"input":".."} -> what it holds, or as much of it as there is; text that is no such object goes out as it is. */
static void put_input(struct parts *p, const struct calls_event *ev)
{
    struct json_error je;
    struct buf       *args = &p->args;
    size_t            n = args->n;
    json_t           *v = json_parse_bounded(text_of(args), n, &bounds, &je);
    p->cut = !v && p->ends;
    if (p->cut && !is_before_input(text_of(args), n)) v = closed(text_of(args), n);
    const json_t *input = json_object_get(v, "input");
    if (json_is_string(input))
        put_tool(p, ANSWER_TOOL_ARGS, ev, json_string_value(input), json_string_length(input));
    else if (!p->cut || !is_before_input(text_of(args), n))
        put_tool(p, ANSWER_TOOL_ARGS, ev, text_of(args), n);
    json_decref(v);
    buf_clear(args);
}

static void on_event(void *ctx, const struct calls_event *ev)
{
    struct parts       *p = ctx;
    struct call        *c = p->c;
    struct call_choice *ch = &c->choice[p->i];
    if (p->stops.stopped) return;
    if (ev->kind == CALLS_TEXT) {
        put_text(p, ev->text, ev->n, false);
        return;
    }
    put_text(p, "", 0, true); /* the beginning of a stop string that does not go on */
    switch (ev->kind) {
    case CALLS_REASON: {
        const struct answer_piece piece = { ev->text, ev->n, p->told, p->k + 1 };
        if (!c->ask_reasoning) return;
        p->told = p->k + 1;
        writer_of(c)->reason(c, p->i, &piece, p->out);
        break;
    }
    case CALLS_OPEN: {
        const struct calls_tool *tool = calls_tool_find(c->tools, ev->text, ev->n);
        p->custom = tool && tool->custom;
        p->cut = false;
        ch->n_call++;
        put_tool(p, ANSWER_TOOL_OPEN, ev, ev->text, ev->n);
        break;
    }
    case CALLS_ARG:
        if (p->custom)
            buf_put(&p->args, ev->text, ev->n);
        else
            put_tool(p, ANSWER_TOOL_ARGS, ev, ev->text, ev->n);
        break;
    default:
        if (p->custom) put_input(p, ev);
        put_tool(p, ANSWER_TOOL_CLOSE, ev, "", 0);
    }
}

/* ---------------------------------------------------------------- tokens */

static bool is_part(const struct call *c, uint32_t id)
{
    size_t      n = 0;
    const char *s = tok_token(c->model->tok, id, &n);
    return s && calls_part_of_mark(&c->model->family->calls, s, n);
}

/* A token that is a marker gives its text whether it is special or not; what the detokenizer says before it is text. */
static void feed(struct parts *p, uint32_t id)
{
    const struct calls_model *m = &p->c->model->family->calls;
    struct detok             *d = &p->c->choice[p->i].detok;
    int                       mark = calls_mark_of(m, id);
    bool                      skip = d->cfg.skip_special;
    if (skip && tok_is_special(p->c->model->tok, id)) d->cfg.skip_special = mark < 0 && !is_part(p->c, id);
    buf_clear(&p->piece);
    detok_push(d, id, false, &p->piece);
    d->cfg.skip_special = skip;
    const char *s = text_of(&p->piece);
    size_t      n = p->piece.n, n_mark = mark >= 0 ? m->mark[mark].n : 0;
    bool        ends = mark >= 0 && n >= n_mark && !memcmp(s + n - n_mark, m->mark[mark].text, n_mark);
    if (!ends) {
        calls_text(&p->calls, s, n);
        return;
    }
    if (n > n_mark) calls_text(&p->calls, s, n - n_mark);
    calls_mark(&p->calls, mark);
}

/* Whether text of the tokens so far may still come out. */
static bool is_pending(const struct parts *p, const struct detok *d)
{
    const struct calls *a = &p->calls;
    return a->n_held || a->holding || a->n_blank || p->stops.held.n || d->n_tail || d->run.n || d->held.n;
}

bool parts_push(struct call *c, uint32_t i, uint32_t k, struct buf *out)
{
    struct call_choice *ch = &c->choice[i];
    struct parts       *p = ch->parts;
    bool                reasons = calls_reasoning(&p->calls);
    p->k = k;
    p->out = out;
    ch->n_said = ch->n_used = k + 1;
    feed(p, ch->eng.id[k]);
    if (!is_pending(p, &ch->detok) && !c->return_token_ids) p->told = k + 1; /* it was markup */
    ch->n_reasoning += reasons || calls_reasoning(&p->calls);
    if (p->stops.stopped) {
        ch->detok.stopped = true;
        ch->detok.stop_index = p->stops.stop_index;
    }
    if (p->calls.done) ch->eng.stop_is_eos = true; /* no token of the request stopped it */
    return parts_over(p);
}

bool parts_over(const struct parts *p) { return p->stops.stopped || p->calls.done; }

void parts_end(struct call *c, uint32_t i, uint32_t *from_out, struct buf *out)
{
    struct call_choice *ch = &c->choice[i];
    struct parts       *p = ch->parts;
    p->out = out;
    p->ends = true;
    if (!p->stops.stopped) {
        buf_clear(&p->piece);
        detok_finish(&ch->detok, &p->piece);
        if (p->piece.n) calls_text(&p->calls, p->piece.data, p->piece.n);
        calls_end(&p->calls);
        put_text(p, "", 0, true);
    }
    *from_out = p->told < ch->n_said ? p->told : ch->n_said;
}

/* ---------------------------------------------------------------- life */

static enum status make(struct call *c, uint32_t i)
{
    struct call_choice    *ch = &c->choice[i];
    struct parts          *p = arena_calloc(&c->arena, 1, sizeof *p);
    const struct calls_cfg cfg = { .model = &c->model->family->calls,
                                   .tools = c->tools,
                                   .one = c->one_call,
                                   .hidden = c->detok.skip_special,
                                   .sink = on_event,
                                   .ctx = p };
    struct detok_cfg       tokens = c->detok;
    if (!p) return ST_NOMEM;
    p->c = c;
    p->i = i;
    buf_init(&p->piece, TEXT_MAX);
    buf_init(&p->args, CALLS_ARGS_MAX + 1);
    tokens.n_stop = 0;
    detok_free(&ch->detok);
    detok_init(&ch->detok, c->model->tok, &tokens);
    detok_init(&p->stops, c->model->tok, &c->detok);
    calls_init(&p->calls, &cfg, c->reasons);
    ch->parts = p;
    return ST_OK;
}

enum status parts_prepare(struct call *c)
{
    const struct family *f = c->model->family;
    const struct writer *w = writer_of(c);
    bool                 reasoning = f && calls_thinks(&f->calls);
    if (!w->tool || c->score_only || (!c->tools && !reasoning)) return ST_OK;
    for (uint32_t i = 0; i < c->n_choice; i++)
        if (make(c, i)) return ST_NOMEM;
    return ST_OK;
}

void parts_free(struct parts *p)
{
    if (!p) return;
    calls_free(&p->calls);
    detok_free(&p->stops);
    buf_free(&p->piece);
    buf_free(&p->args);
}
