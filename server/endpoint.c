#include "server/endpoint.h"
#include "models/embed.h"
#include "server/conn.h"
#include "server/metrics.h"
#include "server/text_task.h"
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
    text_task_respond(c, st, "application/json", b, e);
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

void endpoint_model_card(struct conn *c)
{
    struct buf       b;
    struct api_error e = { 0 };
    size_t           n = 0;
    buf_init(&b, ANSWER_MAX);
    if (!route_decode(c->req.arg, &n)) {
        conn_fail(c, 404, "", "no such route");
        return;
    }
    enum status st = api_model_card(c->io->srv->model, c->req.arg, n, &b, &e);
    respond_json(c, st, &b, &e);
}

/* ---- tokenize and detokenize: large bodies go to a text thread, while the connection waits ---- */

static void run_text(struct conn *c, text_ask_fn *fn)
{
    const struct dialect *d = c->req.route->dialect;
    size_t                bytes = c->body.n;
    if (d) bytes = call_text_bytes(d, c->io->srv->model, c->req.tenant, c->body.data, c->body.n);
    text_task_begin(c, fn, "application/json", bytes);
}

/* What is asked of them is the same for every key. */
#define FOR_ALL(name)                                                                             \
    static enum status name##_ask(const struct text_ask *a, struct buf *out, struct api_error *e) \
    {                                                                                             \
        return name(a->srv->model, a->body, a->n_body, out, e);                                   \
    }
FOR_ALL(api_tokenize)
FOR_ALL(api_detokenize)
FOR_ALL(api_count_tokens)

static enum status input_tokens_ask(const struct text_ask *a, struct buf *out, struct api_error *e)
{
    return api_input_tokens(a->srv->model, a->tenant, a->body, a->n_body, out, e);
}

void endpoint_tokenize(struct conn *c) { run_text(c, api_tokenize_ask); }
void endpoint_detokenize(struct conn *c) { run_text(c, api_detokenize_ask); }
void endpoint_count_tokens(struct conn *c) { run_text(c, api_count_tokens_ask); }
void endpoint_input_tokens(struct conn *c) { run_text(c, input_tokens_ask); }
