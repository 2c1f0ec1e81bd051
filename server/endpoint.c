#include "server/endpoint.h"
#include "base/hex.h"
#include "models/embed.h"
#include "server/conn.h"
#include "server/metrics.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 64 << 20 };

/* A file of the playground, by its name in server/web. */
static void respond_file(struct conn *c, const char *name, size_t n_name)
{
    /* Only files of this server run or style anything, and no text becomes HTML or script; no other site may frame it,
     * and it talks to its own server only. */
    static const char headers[] =
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'\r\n"
        "Referrer-Policy: no-referrer\r\nCache-Control: no-cache\r\n";
    static const struct {
        const char *end, *type;
    } kind[] = {
        { ".html", "text/html; charset=utf-8" },
        { ".css", "text/css; charset=utf-8" },
        { ".js", "text/javascript; charset=utf-8" },
    };
    for (unsigned i = 0; i < embed_web_n; i++) {
        const struct embed_file *f = &embed_web[i];
        const char              *dot = strrchr(f->name, '.');
        if (strlen(f->name) != n_name || memcmp(f->name, name, n_name)) continue;
        for (size_t k = 0; dot && k < sizeof kind / sizeof *kind; k++) {
            if (strcmp(dot, kind[k].end)) continue;
            conn_respond_with(c, 200, kind[k].type, headers, f->data, f->n);
            return;
        }
    }
    conn_fail(c, 404, "", "no such route");
}

void endpoint_page(struct conn *c) { respond_file(c, "index.html", strlen("index.html")); }

void endpoint_page_file(struct conn *c) { respond_file(c, c->req.arg, strlen(c->req.arg)); }

void endpoint_version(struct conn *c)
{
    static const char body[] = "{\"version\":\"" SPILLWAY_VERSION "\"}";
    conn_respond(c, 200, "application/json", body, sizeof body - 1);
}

static void respond_json(struct conn *c, enum status st, struct buf *b, const struct api_error *e)
{
    if (st == ST_OK && !b->failed)
        conn_respond(c, 200, "application/json", b->data, b->n);
    else if (st == ST_OK || !e->http)
        conn_fail(c, 500, "", "internal error");
    else
        conn_error(c, e);
    buf_free(b);
}

void endpoint_models(struct conn *c)
{
    struct buf b;
    buf_init(&b, ANSWER_MAX);
    api_models(c->io->srv->model, &b);
    respond_json(c, ST_OK, &b, NULL);
}

void endpoint_tokenizer_info(struct conn *c)
{
    struct buf b;
    buf_init(&b, ANSWER_MAX);
    api_tokenizer_info(c->io->srv->model, &b);
    respond_json(c, ST_OK, &b, NULL);
}

void endpoint_metrics(struct conn *c)
{
    struct buf b;
    buf_init(&b, 8u << 20);
    metrics_print(c->io->srv, &b);
    conn_respond(c, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.n);
    buf_free(&b);
}

/* A model name may hold '/', sent raw or as %2F; nothing that is decoded here ever names a file. */
static bool decode(char *s, size_t *n_out)
{
    size_t at = 0;
    for (const char *p = s; *p; p++) {
        char ch = *p;
        if (ch == '%') {
            int a = hex_value(p[1]), b = a < 0 ? -1 : hex_value(p[2]);
            if (b < 0) return false;
            ch = (char)(a << 4 | b);
            p += 2;
        }
        if ((unsigned char)ch < 0x20 || ch == 0x7f) return false;
        s[at++] = ch;
    }
    *n_out = at;
    return true;
}

void endpoint_model_card(struct conn *c)
{
    struct buf       b;
    struct api_error e = { 0 };
    size_t           n = 0;
    buf_init(&b, ANSWER_MAX);
    if (!decode(c->req.arg, &n)) {
        conn_fail(c, 404, "", "no such route");
        return;
    }
    enum status st = api_model_card(c->io->srv->model, c->req.arg, n, &b, &e);
    respond_json(c, st, &b, &e);
}

/* ---- tokenize and detokenize: large bodies go to a text thread, while the connection waits ---- */

typedef enum status text_fn(const struct api_model *m, uint64_t tenant, const char *body, size_t n, struct buf *out,
                            struct api_error *e);

struct text_task {
    struct conn_work        work;
    struct text_job         job;
    struct conn            *conn; /* NULL: gone */
    const struct api_model *model;
    uint64_t                tenant;
    text_fn                *fn;
    struct buf              body, out;
    uint64_t                charge; /* of the body, taken from server.bodies */
    struct api_error        e;
    enum status             st;
};

static void task_gone(struct conn_work *w)
{
    ((struct text_task *)(void *)((char *)w - offsetof(struct text_task, work)))->conn = NULL;
}

static void task_run(struct text_job *j)
{
    struct text_task *t = (struct text_task *)(void *)((char *)j - offsetof(struct text_task, job));
    t->st = t->fn(t->model, t->tenant, t->body.data, t->body.n, &t->out, &t->e);
    conn_give_body(j->io->srv, &t->body, t->charge);
    t->charge = 0;
}

static void task_done(struct text_job *j)
{
    struct text_task *t = (struct text_task *)(void *)((char *)j - offsetof(struct text_task, job));
    struct conn      *c = t->conn;
    if (c) {
        c->work = NULL;
        respond_json(c, t->st, &t->out, &t->e);
    }
    buf_free(&t->out);
    free(t);
}

static void run_text(struct conn *c, text_fn *fn)
{
    struct text_task *t = calloc(1, sizeof *t);
    if (!t) {
        conn_fail(c, 503, "", "out of memory");
        return;
    }
    t->work = (struct conn_work){ .gone = task_gone };
    t->conn = c;
    t->model = c->io->srv->model;
    t->tenant = c->req.tenant;
    t->fn = fn;
    t->charge = conn_take_body(c, &t->body);
    t->job =
        (struct text_job){ .io = c->io, .run = task_run, .done = task_done, .who = conn_who(c), .bytes = t->body.n };
    if (c->req.route->dialect)
        t->job.bytes = call_text_bytes(c->req.route->dialect, t->model, t->tenant, t->body.data, t->body.n);
    buf_init(&t->out, ANSWER_MAX);
    if (t->job.bytes < TEXT_INLINE_MAX) {
        task_run(&t->job);
        task_done(&t->job);
        return;
    }
    c->work = &t->work;
    if (text_submit(c->io->srv->text, &t->job)) return;
    c->work = NULL;
    conn_give_body(c->io->srv, &t->body, t->charge);
    free(t);
    conn_fail(c, 429, "", "too many requests are waiting; try again later");
}

/* What is asked of them is the same for every key. */
#define FOR_ALL(name)                                                                                     \
    static enum status name##_for(const struct api_model *m, uint64_t tenant, const char *body, size_t n, \
                                  struct buf *out, struct api_error *e)                                   \
    {                                                                                                     \
        (void)tenant;                                                                                     \
        return name(m, body, n, out, e);                                                                  \
    }
FOR_ALL(api_tokenize)
FOR_ALL(api_detokenize)
FOR_ALL(api_count_tokens)

void endpoint_tokenize(struct conn *c) { run_text(c, api_tokenize_for); }
void endpoint_detokenize(struct conn *c) { run_text(c, api_detokenize_for); }
void endpoint_count_tokens(struct conn *c) { run_text(c, api_count_tokens_for); }
void endpoint_input_tokens(struct conn *c) { run_text(c, api_input_tokens); }
