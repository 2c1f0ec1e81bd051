#include "server/trace.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/ring.h"
#include "base/thread.h"
#include "server/config.h"
#include "transfer/object/fetch.h"
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    JSON_MAX = 1 << 20,
    WAIT_US = 1000000, /* for a batch to fill */
    AGAIN_US = 1000000,
    AGAIN_MAX_US = 30000000,
    TRIES = 3,
    HEADERS_MAX = 3,
    CLOSE_S = 1
};

struct trace {
    char                  url[1024], header[HEADERS_MAX][400];
    struct trace_resource resource;
    char                  host[256];
    double                ratio;
    struct ring           ring; /* struct trace_request * */
    pthread_t             thread;
    sem_t                 ended;
    _Atomic bool          stop;
    _Atomic uint64_t      n_sent, n_dropped, n_failed;
    /* the thread's */
    struct trace_request *batch[TRACE_BATCH];
    uint32_t              n_batch, n_try;
    uint64_t first_us, again_us, pause_us; /* of the batch; not to be tried before; after the next failure */
};

/* ---- trace context ---- */

/* Of lower case alone, as the header's specification wants it. */
static int hex_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Lower-case hex, not all of it zero. */
static bool take_hex(const char *p, unsigned char *out, size_t n, bool may_be_zero)
{
    unsigned any = 0;
    for (size_t i = 0; i < n; i++) {
        int high = hex_of(p[2 * i]), low = hex_of(p[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        out[i] = (unsigned char)(high << 4 | low);
        any |= out[i];
    }
    return any || may_be_zero;
}

/* version "-" trace-id "-" parent-id "-" flags (W3C Trace Context, 3.2); later versions may have more behind a '-'. */
bool trace_parse(const char *p, size_t n, struct trace_context *c)
{
    unsigned char version, flags;
    if (n < 55 || p[2] != '-' || p[35] != '-' || p[52] != '-') return false;
    if (!take_hex(p, &version, 1, true) || version == 0xff || !take_hex(p + 53, &flags, 1, true)) return false;
    if (n > 55 && (version == 0 || p[55] != '-')) return false;
    c->on = flags & 1;
    return take_hex(p + 3, c->id, sizeof c->id, false) && take_hex(p + 36, c->parent, sizeof c->parent, false);
}

struct trace_context trace_context(const struct trace *t, const char *traceparent, size_t n, uint32_t n_header)
{
    struct trace_context c = { .on = false };
    uint64_t             random;
    if (!t) return c;
    if (n_header == 1 && trace_parse(traceparent, n, &c)) return c; /* whoever began it has chosen */
    memset(&c, 0, sizeof c);
    for (size_t i = 0; i < sizeof c.id; i += sizeof random) {
        random = hash_seed();
        memcpy(c.id + i, &random, sizeof random);
    }
    memcpy(&random, c.id + 8, sizeof random);
    c.on = (double)(random >> 11) * 0x1p-53 < t->ratio;
    return c;
}

/* ---- any thread ---- */

void trace_request_free(struct trace_request *r)
{
    if (!r) return;
    free(r->state);
    free(r);
}

static void add(_Atomic uint64_t *c, uint64_t n) { atomic_fetch_add_explicit(c, n, memory_order_relaxed); }

void trace_end(struct trace *t, struct trace_request *r)
{
    uint64_t span = hash_seed();
    memcpy(r->span, &span, sizeof span);
    if (ring_push(&t->ring, r)) return;
    add(&t->n_dropped, 1);
    trace_request_free(r);
}

struct trace_counts trace_counts(const struct trace *t)
{
    if (!t) return (struct trace_counts){ .n_sent = 0 };
    return (struct trace_counts){ .n_sent = atomic_load_explicit(&t->n_sent, memory_order_relaxed),
                                  .n_dropped = atomic_load_explicit(&t->n_dropped, memory_order_relaxed),
                                  .n_failed = atomic_load_explicit(&t->n_failed, memory_order_relaxed) };
}

/* ---- the thread ---- */

static int64_t wall_less_mono_us(void)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000 - (int64_t)clock_us();
}

static void drop_batch(struct trace *t, _Atomic uint64_t *as)
{
    add(as, t->n_batch);
    for (uint32_t i = 0; i < t->n_batch; i++) trace_request_free(t->batch[i]);
    t->n_batch = t->n_try = 0;
}

/* One POST. True: it was taken; else *again_out: it may be later. */
static bool post(struct trace *t, bool *again_out)
{
    struct buf   json, answer = { 0 };
    struct fetch f = { .method = "POST", .url = t->url, .header = { "Content-Type: application/json" } };
    char         err[300] = "";
    long         code = 0;
    for (uint32_t i = 0; i < HEADERS_MAX && *t->header[i]; i++) f.header[i + 1] = t->header[i];
    buf_init(&json, JSON_MAX);
    trace_json(&json, &t->resource, t->batch, t->n_batch, wall_less_mono_us());
    f.body = buf_cstr(&json);
    enum status st = json.failed ? ST_TOO_LARGE : fetch(&f, &answer, &code, err, sizeof err);
    buf_free(&json);
    buf_free(&answer);
    if (!st && code >= 200 && code < 300) return true;
    /* OTLP 1.x, "Retryable Response Codes" */
    *again_out = st == ST_PEER_LOST || code == 429 || (code >= 502 && code <= 504);
    if (st)
        LOG_WARN_LIMITED("trace: the collector does not answer (%s), spans are kept for a while and then dropped",
                         *err ? err : status_name(st));
    else
        LOG_WARN_LIMITED("trace: the collector answers %ld, spans %s", code,
                         *again_out ? "are kept for a while" : "are dropped");
    return false;
}

static void send_batch(struct trace *t)
{
    bool again = false;
    if (post(t, &again)) {
        drop_batch(t, &t->n_sent);
        t->pause_us = AGAIN_US;
        return;
    }
    if (!again || ++t->n_try == TRIES) drop_batch(t, &t->n_failed);
    t->again_us = clock_us() + t->pause_us;
    t->pause_us = 2 * t->pause_us < AGAIN_MAX_US ? 2 * t->pause_us : AGAIN_MAX_US;
}

/* Fills the batch from the ring. */
static void gather(struct trace *t)
{
    struct trace_request *r;
    while (t->n_batch < TRACE_BATCH && (r = ring_pop(&t->ring))) {
        if (!t->n_batch) t->first_us = clock_us();
        t->batch[t->n_batch++] = r;
    }
}

/* So long nothing is to be done unless something comes; 0: a batch is due. */
static int64_t wait_us(const struct trace *t, uint64_t now)
{
    if (!t->n_batch) return -1;
    uint64_t due = t->n_batch == TRACE_BATCH ? 0 : t->first_us + WAIT_US;
    if (due < t->again_us) due = t->again_us;
    return due > now ? (int64_t)(due - now) : 0;
}

static void *run(void *arg)
{
    struct trace *t = arg;
    while (!atomic_load(&t->stop)) {
        gather(t);
        int64_t us = wait_us(t, clock_us());
        if (!us)
            send_batch(t);
        else if (t->n_batch == TRACE_BATCH) /* the ring is left alone, and fills */
            nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        else
            ring_wait(&t->ring, us);
    }
    for (gather(t); t->n_batch; gather(t)) { /* once each: nobody waits for a collector now */
        t->n_try = TRIES - 1;
        uint64_t failed = atomic_load(&t->n_failed);
        send_batch(t);
        if (atomic_load(&t->n_failed) != failed) break;
    }
    sem_post(&t->ended);
    return NULL;
}

/* ---- life ---- */

/* "name=value,name=value" of OTEL_EXPORTER_OTLP_HEADERS; what holds a control byte is left out. */
static void take_headers(struct trace *t, const char *text)
{
    uint32_t n = 0;
    while (text && *text && n < HEADERS_MAX) {
        size_t len = strcspn(text, ","), k = strcspn(text, "=");
        bool   clean = k && k < len && len < sizeof t->header[0] - 4;
        for (size_t i = 0; i < len; i++) clean = clean && (unsigned char)text[i] >= ' ';
        if (clean)
            snprintf(t->header[n++], sizeof t->header[0], "%.*s: %.*s", (int)k, text, (int)(len - k - 1), text + k + 1);
        text += len + (text[len] == ',');
    }
}

static const char *env_or(const char *name, const char *other)
{
    const char *v = getenv(name);
    return v && *v ? v : other;
}

enum status trace_open(const struct config *cfg, const char *host, uint16_t port, struct trace **t_out, char *err,
                       size_t err_bytes)
{
    struct trace *t = calloc(1, sizeof *t);
    if (!t || ring_init(&t->ring, TRACE_QUEUE)) {
        free(t);
        snprintf(err, err_bytes, "no memory for traces");
        return ST_NOMEM;
    }
    const char *url = cfg->otlp_endpoint, *path = strchr(strstr(url, "://") + 3, '/');
    size_t      n = strlen(url) - (path && !path[1]);
    snprintf(t->url, sizeof t->url, "%.*s%s", (int)n, url, path && path[1] ? "" : "/v1/traces");
    snprintf(t->host, sizeof t->host, "%s", host);
    t->resource = (struct trace_resource){ .service = env_or("OTEL_SERVICE_NAME", "spillway"),
                                           .attributes = env_or("OTEL_RESOURCE_ATTRIBUTES", NULL),
                                           .host = t->host,
                                           .port = port };
    take_headers(t, env_or("OTEL_EXPORTER_OTLP_HEADERS", NULL));
    t->ratio = cfg->otlp_ratio;
    t->pause_us = AGAIN_US;
    sem_init(&t->ended, 0, 0);
    fetch_init();
    if (thread_start(&t->thread, THREAD_ANY, "trace", run, t)) {
        ring_free(&t->ring);
        sem_destroy(&t->ended);
        free(t);
        snprintf(err, err_bytes, "no thread for traces");
        return ST_NOMEM;
    }
    *t_out = t;
    return ST_OK;
}

void trace_close(struct trace *t)
{
    struct timespec until;
    if (!t) return;
    atomic_store(&t->stop, true);
    ring_wake(&t->ring);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += CLOSE_S;
    if (sem_timedwait(&t->ended,
                      &until)) { /* a collector hangs: the process ends without it, and t stays the thread's */
        pthread_detach(t->thread);
        return;
    }
    pthread_join(t->thread, NULL);
    for (struct trace_request *r; (r = ring_pop(&t->ring));) trace_request_free(r);
    for (uint32_t i = 0; i < t->n_batch; i++) trace_request_free(t->batch[i]);
    ring_free(&t->ring);
    sem_destroy(&t->ended);
    free(t);
}
