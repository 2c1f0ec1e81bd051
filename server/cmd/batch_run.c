#include "server/cmd/batch_run.h"
#include "base/check.h"
#include "base/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line that is with the server, or waits to be asked again. */
struct batch_job {
    struct inner      inner;
    struct batch_run *run;
    struct list       node;
    struct batch_line line; /* its body lies in text */
    char             *text;
    uint64_t          number, t_ask_us, bytes;
    char             *answer; /* malloc'd by the io thread */
    size_t            n_answer;
    int               status;
};

enum { OUTPUT_TEXT_MAX = 512 << 20, LINES_PER_TURN = 4096, IDLE_US = 2000 };

static void run_fail(struct batch_run *r, int code, const char *why)
{
    if (r->code) return;
    r->code = code;
    snprintf(r->why, sizeof r->why, "%s", why);
}

enum status batch_run_init(struct batch_run *r, struct server *srv, struct batch_book *book, struct batch_read *in,
                           uint32_t lines_max)
{
    memset(r, 0, sizeof *r);
    r->srv = srv;
    r->book = book;
    r->in = in;
    r->lines_max = lines_max;
    r->bytes_max = srv->bodies.bytes_max / 4;
    list_init(&r->later);
    list_init(&r->flying);
    buf_init(&r->text, OUTPUT_TEXT_MAX);
    return ring_init(&r->answers, lines_max + 1);
}

static void job_free(struct batch_job *j)
{
    list_del(&j->node);
    j->run->bytes -= j->bytes;
    buf_free(&j->inner.body);
    free(j->answer);
    free(j->text);
    free(j);
}

/* ---- asking ---- */

/* On an io thread. */
static void batch_job_answer(struct inner *i, int status, const void *body, size_t n)
{
    struct batch_job *j = LIST_ENTRY(i, struct batch_job, inner);
    j->answer = malloc(n + 1);
    j->n_answer = j->answer ? n : 0;
    j->status = j->answer ? status : 503;
    if (j->answer) memcpy(j->answer, body, n);
    CHECK(ring_push(&j->run->answers, j));
}

/* False: not now; the job is in no list. */
static bool ask(struct batch_run *r, struct batch_job *j)
{
    struct server *s = r->srv;
    struct io     *io = &s->io[r->turn++ % s->n_io];
    buf_init(&j->inner.body, j->line.n_body);
    buf_put(&j->inner.body, j->line.body, j->line.n_body);
    j->inner.answer = batch_job_answer;
    j->t_ask_us = clock_us();
    if (j->inner.body.failed || !inner_ask(io, &j->inner)) {
        buf_free(&j->inner.body);
        return false;
    }
    list_add_tail(&r->flying, &j->node);
    r->n_flying++;
    return true;
}

static void ask_later(struct batch_run *r, struct batch_job *j)
{
    list_add_tail(&r->later, &j->node);
    r->n_later++;
}

/* The first of those that were refused. Where nothing flies it is asked alone, once the engine has let go of all that
 * was canceled: a refusal is then its answer. */
static void ask_again(struct batch_run *r)
{
    bool alone = !r->n_flying;
    if (!r->n_later || r->lone || r->n_flying >= r->lines_max || (alone && !r->idle(r->idle_ctx))) return;
    struct batch_job *j = LIST_ENTRY(r->later.next, struct batch_job, node);
    list_del(&j->node);
    r->n_later--;
    if (ask(r, j)) {
        if (alone) r->lone = j;
        return;
    }
    list_add_head(&r->later, &j->node);
    r->n_later++;
}

static void put(struct batch_run *r, uint64_t line, bool good)
{
    if (r->text.failed) {
        run_fail(r, EXIT_SOFTWARE, "out of memory for an answer");
        return;
    }
    int code = batch_book_put(r->book, line, good, &r->text);
    if (code) {
        run_fail(r, code, r->book->why);
        return;
    }
    if (good)
        r->n_good++;
    else
        r->n_failed++;
}

static void refuse(struct batch_run *r, const struct batch_line *l, const struct batch_wrong *w)
{
    buf_clear(&r->text);
    batch_line_refuse(&r->text, r->book->run, r->in->line, l, w);
    put(r, r->in->line, false);
}

/* The route of a url, or NULL with *w. */
static const struct route *route_of(const struct batch_run *r, const struct batch_line *l, struct batch_wrong *w)
{
    const struct routes *t = r->srv->routes;
    struct slice         path = { l->url, strlen(l->url) };
    const struct route  *rt = route_find(t, path);
    char                 shown[200];
    if (rt && rt->flags & ROUTE_JSON && rt->methods & M_POST) return rt;
    const char *hint = route_hint(t, path);
    w->code = "invalid_url";
    w->param = "url";
    size_t n = (size_t)snprintf(w->text, sizeof w->text, "'url': found '%s', ",
                                api_excerpt(shown, sizeof shown, l->url, path.n));
    if (hint && strcmp(hint, l->url) != 0) {
        snprintf(w->text + n, sizeof w->text - n, "did you mean %s?", hint);
        return NULL;
    }
    n += (size_t)snprintf(w->text + n, sizeof w->text - n, "allowed are");
    for (uint32_t i = 0; i < t->n && n < sizeof w->text; i++)
        if (t->row[i].flags & ROUTE_JSON) n += (size_t)snprintf(w->text + n, sizeof w->text - n, " %s", t->row[i].path);
    return NULL;
}

/* The custom_ids of all lines are noted, those of answered ones too. False: this line is refused, or the run fails. */
static bool is_first(struct batch_run *r, const struct batch_line *l, struct batch_wrong *w)
{
    uint32_t first;
    char     shown[200];
    if (batch_seen_id(&r->book->seen, l->custom_id, l->n_custom_id, (uint32_t)r->in->line, &first)) {
        run_fail(r, EXIT_SOFTWARE, "out of memory for the custom_ids");
        return false;
    }
    if (!first) return true;
    w->code = "duplicate_custom_id";
    w->param = "custom_id";
    snprintf(w->text, sizeof w->text, "'custom_id': found '%s', which line %" PRIu32 " has already",
             api_excerpt(shown, sizeof shown, l->custom_id, l->n_custom_id), first);
    return false;
}

static void take_line(struct batch_run *r, const char *text, size_t n)
{
    struct batch_line   l;
    struct batch_wrong  w = { 0 }, twice = { 0 };
    enum status         st = batch_line_read(text, n, &l, &w);
    const struct route *rt = NULL;
    bool                first = !l.n_custom_id || is_first(r, &l, &twice);
    if (r->code || batch_seen_done(&r->book->seen, r->in->line)) return;
    if (!st && !first) w = twice;
    if (!st && first) rt = route_of(r, &l, &w);
    if (!rt) {
        refuse(r, &l, &w);
        return;
    }
    struct batch_job *j = calloc(1, sizeof *j);
    char             *copy = j ? malloc(l.n_body) : NULL;
    if (!copy) {
        free(j);
        run_fail(r, EXIT_SOFTWARE, "out of memory for a line");
        return;
    }
    memcpy(copy, l.body, l.n_body);
    j->run = r;
    j->text = copy;
    j->line = l;
    j->line.body = copy;
    j->number = r->in->line;
    j->bytes = l.n_body;
    r->bytes += j->bytes;
    j->inner.route = rt;
    list_init(&j->node);
    if (!ask(r, j)) ask_later(r, j);
}

static void too_long(struct batch_run *r, size_t n)
{
    struct batch_line  l = { .n_custom_id = 0 };
    struct batch_wrong w = { .code = "line_too_long" };
    if (batch_seen_done(&r->book->seen, r->in->line)) return;
    snprintf(w.text, sizeof w.text, "found %zu bytes, allowed are %zu (--max-body-mib)", n, r->in->bytes_max);
    refuse(r, &l, &w);
}

static bool blank(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == ' ' || p[i] == '\t')) i++;
    return i == n;
}

/* False: no line now. */
static bool read_one(struct batch_run *r)
{
    const char *text;
    char        why[200];
    size_t      n;
    switch (batch_read_next(r->in, &text, &n)) {
    case BATCH_READ_LATER: return false;
    case BATCH_READ_END: r->ended = true; return false;
    case BATCH_READ_FAILED:
        snprintf(why, sizeof why, "--input: cannot be read: %s", strerror(r->in->error));
        run_fail(r, EXIT_IO, why);
        return false;
    case BATCH_READ_LONG: too_long(r, n); break;
    case BATCH_READ_LINE:
        if (r->in->line > BATCH_LINES_MAX)
            run_fail(r, EXIT_CONFIG, "--input: has more lines than 67108864; split it");
        else if (!blank(text, n))
            take_line(r, text, n);
        break;
    }
    return true;
}

/* ---- answers ---- */

/* The server was full when it refused, and will not be forever. */
static bool may_come_later(const struct batch_run *r, const struct batch_job *j)
{
    uint64_t timeout_us = (uint64_t)r->srv->cfg->request_timeout_s * 1000000u;
    if (j->status != 429 && j->status != 503) return false;
    return j != r->lone && !(timeout_us && clock_us() - j->t_ask_us >= timeout_us);
}

static void take_answer(struct batch_run *r, struct batch_job *j)
{
    list_del(&j->node);
    list_init(&j->node);
    r->n_flying--;
    bool full = j->status == 429 || j->status == 503;
    bool dead = full && !r->srv->eng.alive(r->srv->eng.ctx, clock_us());
    if (r->code || dead || (r->cut && full)) { /* it failed with the run; the next one asks for it */
        job_free(j);
        return;
    }
    bool later = may_come_later(r, j);
    if (j == r->lone) r->lone = NULL;
    if (later) {
        free(j->answer);
        j->answer = NULL;
        ask_later(r, j);
        return;
    }
    buf_clear(&r->text);
    batch_line_answer(&r->text, r->book->run, j->number, &j->line, j->status, j->inner.conn.req.id,
                      j->answer ? j->answer : "null", j->answer ? j->n_answer : 4);
    put(r, j->number, j->status == 200);
    job_free(j);
    if (!r->stops) ask_again(r);
}

bool batch_run_wants(const struct batch_run *r)
{
    if (r->n_later || r->lone) return false;
    return !r->ended && !r->stops && !r->code && r->n_flying < r->lines_max && r->bytes <= r->bytes_max;
}

void batch_run_turn(struct batch_run *r)
{
    for (struct batch_job *j; (j = ring_pop(&r->answers));) take_answer(r, j);
    if (r->stops || r->code) return;
    if (!r->n_flying) ask_again(r);
    uint32_t n = 0;
    while (batch_run_wants(r) && n < LINES_PER_TURN && read_one(r)) n++;
    r->more = n == LINES_PER_TURN;
}

bool batch_run_over(const struct batch_run *r)
{
    if (r->code || r->cut) return true;
    if (r->stops) return !r->n_flying;
    return r->ended && !r->n_flying && !r->n_later;
}

void batch_run_wait(struct batch_run *r, int fd, int64_t timeout_us)
{
    ring_wait_with(&r->answers, fd, r->more ? 0 : timeout_us);
}

void batch_run_free(struct batch_run *r)
{
    LIST_EACH(it, &r->later) job_free(LIST_ENTRY(it, struct batch_job, node));
    LIST_EACH(it, &r->flying) job_free(LIST_ENTRY(it, struct batch_job, node));
    buf_free(&r->text);
    ring_free(&r->answers);
}
