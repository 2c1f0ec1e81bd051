#include "transfer/object/s3.h"
#include "base/check.h"
#include "base/clock.h"
#include "transfer/object/fetch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 32, DEADLINE_US = 60000000, OBJECT_BYTES = 16 << 20 };

/* Belongs to one thread. Requests wait in `line` until a call is free. */
struct s3_client {
    struct object_client client; /* first */
    CURLM               *multi;
    struct s3_call       call[CALLS];
    uint32_t             n_out; /* calls that have a request */
    struct list          line, over;
};

static struct s3        *s3_of(struct object_store *s) { return (struct s3 *)s; }
static struct s3_client *client_of(struct object_client *c) { return (struct s3_client *)c; }

static void client_free(struct object_client *oc)
{
    struct s3_client *c = client_of(oc);
    for (int i = 0; i < CALLS; i++) {
        struct s3_call *k = &c->call[i];
        if (k->running) curl_multi_remove_handle(c->multi, k->h);
        if (k->h) curl_easy_cleanup(k->h);
        curl_slist_free_all(k->headers);
        buf_free(&k->answer);
    }
    if (c->multi) curl_multi_cleanup(c->multi);
    free(c);
}

static enum status client_open(struct object_store *s, struct object_client **c_out)
{
    struct s3_client *c = calloc(1, sizeof *c);
    if (!c) return ST_NOMEM;
    c->client.store = s;
    list_init(&c->line);
    list_init(&c->over);
    c->multi = curl_multi_init();
    bool ok = c->multi != NULL;
    for (int i = 0; i < CALLS; i++) {
        c->call[i].h = curl_easy_init();
        buf_init(&c->call[i].answer, S3_ANSWER_MAX);
        ok = ok && c->call[i].h;
    }
    if (!ok) {
        client_free(&c->client);
        return ST_NOMEM;
    }
    curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)CALLS);
    *c_out = &c->client;
    return ST_OK;
}

static void begin(struct object_client *oc, struct object_req *r)
{
    if (!r->deadline_us) r->deadline_us = clock_us() + DEADLINE_US;
    struct s3_client *c = client_of(oc);
    bool              nothing = r->op == OBJECT_GET && !r->bytes; /* a range of nothing has no form */
    if (nothing) r->st = ST_OK;
    list_add_tail(nothing ? &c->over : &c->line, &r->link);
}

static void stop(struct s3_client *c, struct s3_call *k)
{
    if (k->running) curl_multi_remove_handle(c->multi, k->h);
    k->running = false;
}

/* The request is done; its call is free. */
static void end(struct s3_client *c, struct s3_call *k)
{
    struct object_req *r = k->req;
    stop(c, k);
    object_went(c->client.store, r->st, r->op == OBJECT_GET);
    r->call = NULL;
    list_add_tail(&c->over, &r->link);
    k->req = NULL;
    c->n_out--;
}

static void cancel(struct object_client *oc, struct object_req *r)
{
    struct s3_client *c = client_of(oc);
    if (r->st != ST_AGAIN) return; /* it is over already */
    r->st = ST_CANCELED;
    if (r->call) {
        end(c, r->call);
        return;
    }
    list_del(&r->link);
    list_add_tail(&c->over, &r->link);
}

static void attempt(struct s3_client *c, struct s3_call *k, uint64_t now_us)
{
    struct s3 *s = s3_of(c->client.store);
    if (k->req->deadline_us <= now_us) {
        s3_call_fail(s, k, ST_TIMEOUT, "it was too late before it began");
        end(c, k);
        return;
    }
    if (s3_call_begin(s, k, now_us)) {
        end(c, k);
        return;
    }
    k->running = true;
    CHECK(curl_multi_add_handle(c->multi, k->h) == CURLM_OK);
}

/* Gives waiting requests free calls, and starts the attempts whose pause is over. Returns the time at which the next
 * pause ends; 0: no attempt waits. */
static uint64_t start(struct s3_client *c, uint64_t now_us)
{
    uint64_t next_us = 0;
    for (int i = 0; i < CALLS; i++) {
        struct s3_call *k = &c->call[i];
        if (!k->req && !list_empty(&c->line)) {
            struct object_req *r = LIST_ENTRY(c->line.next, struct object_req, link);
            list_del(&r->link);
            k->req = r;
            r->call = k;
            k->n_try = 0;
            k->again_us = 0;
            k->refused = false;
            *k->sha256 = 0;
            c->n_out++;
        }
        if (k->req && !k->running && k->again_us <= now_us) attempt(c, k, now_us);
        if (k->req && !k->running && (!next_us || k->again_us < next_us)) next_us = k->again_us;
    }
    return next_us;
}

static void harvest(struct s3_client *c)
{
    int      left;
    CURLMsg *m;
    while ((m = curl_multi_info_read(c->multi, &left))) {
        if (m->msg != CURLMSG_DONE) continue;
        struct s3_call *k = NULL;
        CURLcode        code = m->data.result; /* m does not outlive the handle's removal */
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &k);
        stop(c, k);
        if (s3_call_judge(s3_of(c->client.store), k, code, clock_us()) == S3_DONE) end(c, k);
    }
}

static uint32_t run(struct object_client *oc, int fd, int64_t wait_us, struct object_req **done, uint32_t max)
{
    struct s3_client *c = client_of(oc);
    uint64_t          now_us = clock_us(), next_us;
    uint32_t          n = 0;
    int               running;
    next_us = start(c, now_us);
    curl_multi_perform(c->multi, &running);
    harvest(c);
    if (wait_us > 0 && list_empty(&c->over)) {
        struct curl_waitfd extra = { .fd = fd, .events = CURL_WAIT_POLLIN };
        if (next_us && (int64_t)(next_us - now_us) < wait_us) wait_us = (int64_t)(next_us - now_us);
        curl_multi_poll(c->multi, &extra, fd >= 0 ? 1 : 0, (int)(wait_us / 1000 + 1), NULL);
        start(c, clock_us());
        curl_multi_perform(c->multi, &running);
        harvest(c);
    }
    while (n < max && !list_empty(&c->over)) {
        struct object_req *r = LIST_ENTRY(c->over.next, struct object_req, link);
        list_del(&r->link);
        done[n++] = r;
    }
    return n;
}

static void close_store(struct object_store *store)
{
    struct s3 *s = s3_of(store);
    creds_close(s->creds);
    free(s);
}

static const struct object_ops s3_ops = { .name = "S3",
                                          .object_bytes = OBJECT_BYTES,
                                          .parts = true,
                                          .client = client_open,
                                          .client_free = client_free,
                                          .begin = begin,
                                          .cancel = cancel,
                                          .run = run,
                                          .close = close_store };

enum status s3_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes)
{
    struct creds_cfg cc;
    struct s3       *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(err, err_bytes, "no memory for a client of S3");
        return ST_NOMEM;
    }
    fetch_init();
    s->store.ops = &s3_ops;
    enum status st = s3_where(cfg, s, err, err_bytes);
    creds_environment(&cc);
    cc.region = s->region;
    if (!st) st = creds_open(&cc, &s->creds, err, err_bytes);
    if (st) {
        free(s);
        return st;
    }
    *s_out = &s->store;
    return ST_OK;
}
