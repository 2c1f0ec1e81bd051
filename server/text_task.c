#include "server/text_task.h"
#include "server/conn.h"
#include "server/text.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 64 << 20 };

struct text_task {
    struct conn_work work;
    struct text_job  job;
    struct conn     *conn; /* NULL: gone */
    struct text_ask  ask;
    text_ask_fn     *fn;
    const char      *type;
    char            *arg; /* malloc'd, or NULL */
    struct buf       body, out;
    uint64_t         charge; /* of the body, taken from server.bodies */
    struct api_error e;
    enum status      st;
};

void text_task_respond(struct conn *c, enum status st, const char *type, struct buf *out, const struct api_error *e)
{
    if (st == ST_OK && !out->failed)
        conn_respond(c, 200, type, out->data, out->n);
    else if (st == ST_OK || !e->http)
        conn_fail(c, 500, "", "internal error");
    else
        conn_error(c, e);
    buf_free(out);
}

static struct text_task *of_job(struct text_job *j)
{
    return (struct text_task *)(void *)((char *)j - offsetof(struct text_task, job));
}

static void task_free(struct text_task *t)
{
    buf_free(&t->out);
    free(t->arg);
    free(t);
}

static void task_gone(struct conn_work *w)
{
    ((struct text_task *)(void *)((char *)w - offsetof(struct text_task, work)))->conn = NULL;
}

static void task_run(struct text_job *j)
{
    struct text_task *t = of_job(j);
    t->st = t->fn(&t->ask, &t->out, &t->e);
    conn_give_body(j->io->srv, &t->body, t->charge);
    t->charge = 0;
}

static void task_done(struct text_job *j)
{
    struct text_task *t = of_job(j);
    struct conn      *c = t->conn;
    if (c) {
        c->work = NULL;
        text_task_respond(c, t->st, t->type, &t->out, &t->e);
    }
    task_free(t);
}

void text_task_begin(struct conn *c, text_ask_fn *fn, const char *type, size_t bytes)
{
    struct text_task *t = calloc(1, sizeof *t);
    if (t && c->req.arg) t->arg = strdup(c->req.arg);
    if (!t || (c->req.arg && !t->arg)) {
        free(t);
        conn_fail(c, 503, "", "out of memory");
        return;
    }
    t->work = (struct conn_work){ .gone = task_gone };
    t->conn = c;
    t->fn = fn;
    t->type = type;
    t->charge = conn_take_body(c, &t->body);
    t->ask = (struct text_ask){ c->io->srv, c->req.tenant, t->body.data, t->body.n, t->arg };
    t->job = (struct text_job){ .io = c->io, .run = task_run, .done = task_done, .who = conn_who(c), .bytes = bytes };
    buf_init(&t->out, ANSWER_MAX);
    c->work = &t->work;
    if (bytes < TEXT_INLINE_MAX) {
        task_run(&t->job);
        task_done(&t->job);
        return;
    }
    if (text_submit(c->io->srv->text, &t->job)) return;
    c->work = NULL;
    conn_give_body(c->io->srv, &t->body, t->charge);
    task_free(t);
    conn_fail(c, 429, "", "too many requests are waiting; try again later");
}
