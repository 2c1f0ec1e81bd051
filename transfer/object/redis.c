/* redis: objects in Redis or Valkey: each is a string, and a sorted set of their names serves LIST. A client has one
 * connection, on which requests are answered in order. If the connection is lost, or the oldest request passes its
 * deadline, all requests sent on it fail; the next request opens a new connection. Nothing waits for the server but
 * run; only the resolver of names does its work in the client's thread.
 * URL: redis://host[:port][/db[/prefix]]. The password comes from REDISCLI_AUTH, as for redis-cli. */
#include "base/check.h"
#include "base/clock.h"
#include "transfer/object/object.h"
#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { PORT = 6379, CONNECT_US = 1000000, DEADLINE_US = 60000000, OBJECT_BYTES = 1 << 20, HOST = 200, PREFIX = 64 };

struct redis {
    struct object_store store; /* first */
    char                host[HOST], prefix[PREFIX];
    int                 port, db;
};
/* What was sent for a request, and how many replies are to come. */
struct redis_client {
    struct object_client client;     /* first */
    redisContext        *c;          /* NULL: there is no connection */
    bool                 unsent;     /* commands wait to be written */
    uint64_t             connect_us; /* the connection is given up if it is not made until then; 0: it is made */
    uint32_t             n_greeting; /* replies to AUTH and SELECT that are still to come, before those of requests */
    struct list          sent, over;
};
/* The replies of the request at the head of `sent`. */
struct reply_state {
    uint32_t n_left; /* replies to come */
    uint32_t n_name, at;
    char (*name)[OBJECT_NAME]; /* LIST: names whose lengths were asked for */
};

static struct redis        *redis_of(struct object_store *s) { return (struct redis *)s; }
static struct redis_client *client_of(struct object_client *c) { return (struct redis_client *)c; }

static void fail(struct redis_client *c, struct object_req *r, enum status st, const char *reason)
{
    r->st = st;
    snprintf(r->why, sizeof r->why, "%.120s: %.60s: %.110s", c->client.store->shown, r->name, reason);
}

static void end(struct redis_client *c, struct object_req *r)
{
    struct reply_state *state = r->call;
    if (state) free(state->name);
    free(state);
    r->call = NULL;
    object_went(c->client.store, r->st, r->op == OBJECT_GET);
    list_del(&r->link);
    list_add_tail(&c->over, &r->link);
}

static void disconnect(struct redis_client *c, enum status st, const char *reason)
{
    char why[OBJECT_WHY];
    snprintf(why, sizeof why, "%s", reason); /* it may be the connection's own */
    if (c->c) redisFree(c->c);
    c->c = NULL;
    c->unsent = false;
    c->connect_us = 0;
    c->n_greeting = 0;
    LIST_EACH(it, &c->sent) {
        struct object_req *r = LIST_ENTRY(it, struct object_req, link);
        if (r->st == ST_AGAIN) fail(c, r, st, why);
        end(c, r);
    }
}

/* ---- the connection */

/* Begins to connect. false: it cannot begin. */
static bool connect_to(struct redis_client *c, char *why, size_t why_bytes)
{
    const struct redis *s = redis_of(c->client.store);
    const char         *password = getenv("REDISCLI_AUTH");
    c->c = redisConnectNonBlock(s->host, s->port);
    if (!c->c || c->c->err) {
        snprintf(why, why_bytes, "%s", c->c ? c->c->errstr : "no memory for a connection");
        if (c->c) redisFree(c->c);
        c->c = NULL;
        return false;
    }
    c->connect_us = clock_us() + CONNECT_US;
    c->n_greeting = 0;
    if (password && *password) {
        redisAppendCommand(c->c, "AUTH %s", password);
        c->n_greeting++;
    }
    if (s->db) {
        redisAppendCommand(c->c, "SELECT %d", s->db);
        c->n_greeting++;
    }
    return true;
}

/* The socket can be written: the connection is made, or has failed. */
static void came_through(struct redis_client *c)
{
    int       e = 0;
    socklen_t n = sizeof e;
    if (getsockopt(c->c->fd, SOL_SOCKET, SO_ERROR, &e, &n)) e = errno;
    if (e) {
        disconnect(c, ST_PEER_LOST, strerror(e));
        return;
    }
    c->connect_us = 0;
    redisEnableKeepAlive(c->c);
}

static void take_greeting(struct redis_client *c, const redisReply *reply)
{
    c->n_greeting--;
    if (reply->type == REDIS_REPLY_STATUS) return;
    disconnect(c, ST_PEER_LOST, reply->str ? reply->str : "the server does not take AUTH or SELECT");
}

/* ---- requests */

static void append_put(struct redis_client *c, const struct object_req *r, struct reply_state *state)
{
    const struct redis *s = redis_of(c->client.store);
    redisAppendCommand(c->c, "MULTI");
    redisAppendCommand(c->c, "SET %s:%s %b", s->prefix, r->name, r->body, (size_t)r->bytes);
    redisAppendCommand(c->c, "ZADD %s:index 0 %s", s->prefix, r->name);
    redisAppendCommand(c->c, "EXEC");
    state->n_left = 4;
}

static void append_delete(struct redis_client *c, const struct object_req *r, struct reply_state *state)
{
    const struct redis *s = redis_of(c->client.store);
    redisAppendCommand(c->c, "MULTI");
    redisAppendCommand(c->c, "DEL %s:%s", s->prefix, r->name);
    redisAppendCommand(c->c, "ZREM %s:index %s", s->prefix, r->name);
    redisAppendCommand(c->c, "EXEC");
    state->n_left = 4;
}

static void append_list(struct redis_client *c, const struct object_req *r, struct reply_state *state)
{
    const struct redis *s = redis_of(c->client.store);
    char                from[OBJECT_NAME + 2], to[OBJECT_NAME + 3];
    if (*r->after)
        snprintf(from, sizeof from, "(%s", r->after);
    else
        snprintf(from, sizeof from, "[%s", r->name);
    snprintf(to, sizeof to, "(%s\xff", r->name);
    redisAppendCommand(c->c, "ZRANGEBYLEX %s:index %s %s LIMIT 0 %d", s->prefix, from, to, OBJECT_LIST_MAX);
    state->n_left = 1;
}

static void begin(struct object_client *oc, struct object_req *r)
{
    struct redis_client *c = client_of(oc);
    const struct redis  *s = redis_of(oc->store);
    if (r->op == OBJECT_GET && !r->bytes) { /* a range of nothing has no form */
        r->st = ST_OK;
        list_add_tail(&c->over, &r->link);
        return;
    }
    struct reply_state *state = calloc(1, sizeof *state);
    char                why[OBJECT_WHY] = "no memory for a request";
    if (!r->deadline_us) r->deadline_us = clock_us() + DEADLINE_US;
    list_add_tail(&c->sent, &r->link);
    r->call = state;
    if (!state || (!c->c && !connect_to(c, why, sizeof why))) {
        fail(c, r, ST_PEER_LOST, why);
        end(c, r);
        return;
    }
    c->unsent = true;
    switch (r->op) {
    case OBJECT_GET:
        redisAppendCommand(c->c, "GETRANGE %s:%s %llu %llu", s->prefix, r->name, (unsigned long long)r->off,
                           (unsigned long long)(r->off + r->bytes - 1));
        state->n_left = 1;
        break;
    case OBJECT_PUT: append_put(c, r, state); break;
    case OBJECT_DELETE: append_delete(c, r, state); break;
    case OBJECT_LIST: append_list(c, r, state); break;
    case OBJECT_UPLOAD_BEGIN:
    case OBJECT_UPLOAD_PART:
    case OBJECT_UPLOAD_END:
    case OBJECT_UPLOAD_ABORT:
        fail(c, r, ST_CONFIG, "this store has no uploads in parts");
        end(c, r);
        break;
    }
}

/* The server replies to a canceled request too; those replies are read and dropped. */
static void cancel(struct object_client *oc, struct object_req *r)
{
    (void)oc;
    if (r->st == ST_AGAIN) r->st = ST_CANCELED;
}

/* ---- replies */

static void take_range(struct redis_client *c, struct object_req *r, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_STRING) {
        fail(c, r, ST_INVALID, "the answer is no string");
    } else if (reply->len == 0) {
        fail(c, r, ST_NOT_FOUND, "there is no such object");
    } else if (reply->len != r->bytes) {
        fail(c, r, ST_INVALID, "the answer has another length than what was asked for");
    } else {
        const char *from = reply->str;
        for (uint32_t i = 0; i < r->n_piece; i++) {
            memcpy(r->piece[i].base, from, r->piece[i].bytes);
            from += r->piece[i].bytes;
        }
        r->st = ST_OK;
    }
}

/* The names; then their lengths are asked for, and come as further replies. */
static void take_names(struct redis_client *c, struct object_req *r, struct reply_state *state, const redisReply *reply)
{
    const struct redis *s = redis_of(c->client.store);
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements > OBJECT_LIST_MAX) {
        fail(c, r, ST_INVALID, "the answer is no list");
        return;
    }
    *r->last = 0;
    r->more = reply->elements == OBJECT_LIST_MAX;
    state->name = calloc(reply->elements + 1, sizeof *state->name);
    if (!state->name) {
        fail(c, r, ST_NOMEM, "no memory for a list");
        return;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *e = reply->element[i];
        if (e->type != REDIS_REPLY_STRING || e->len >= OBJECT_NAME || memchr(e->str, 0, e->len)) continue;
        memcpy(state->name[state->n_name], e->str, e->len + 1);
        memcpy(r->last, e->str, e->len + 1);
        redisAppendCommand(c->c, "STRLEN %s:%s", s->prefix, state->name[state->n_name++]);
    }
    state->n_left += state->n_name;
    c->unsent |= state->n_name > 0;
    if (!state->n_name && r->st == ST_AGAIN) r->st = ST_OK;
}

static void take_length(struct object_req *r, struct reply_state *state, const redisReply *reply)
{
    const char *name = state->name[state->at++];
    bool        there = reply->type == REDIS_REPLY_INTEGER && reply->integer > 0; /* else the server has evicted it */
    if (there && r->st == ST_AGAIN) r->each(r->ctx, name, (uint64_t)reply->integer, "");
    if (state->at == state->n_name && r->st == ST_AGAIN) r->st = ST_OK;
}

static void take(struct redis_client *c, struct object_req *r, const redisReply *reply)
{
    struct reply_state *state = r->call;
    state->n_left--;
    if (reply->type == REDIS_REPLY_ERROR && r->st == ST_AGAIN) {
        bool busy = !strncmp(reply->str, "LOADING", 7) || !strncmp(reply->str, "BUSY", 4);
        fail(c, r, busy ? ST_PEER_LOST : ST_CONFIG, reply->str);
    }
    if (r->op == OBJECT_LIST && state->name)
        take_length(r, state, reply);
    else if (r->op == OBJECT_LIST && reply->type != REDIS_REPLY_ERROR)
        take_names(c, r, state, reply);
    else if (r->op == OBJECT_GET && r->st == ST_AGAIN)
        take_range(c, r, reply);
    else if (state->n_left == 0 && r->st == ST_AGAIN) /* of EXEC */
        r->st = ST_OK;
    if (state->n_left == 0) end(c, r);
}

/* Sends what is to be sent, and takes the replies that are there. */
static void work(struct redis_client *c, short events)
{
    int   all = 0;
    void *reply;
    if (c->c && c->connect_us && (events & (POLLOUT | POLLERR | POLLHUP))) came_through(c);
    if (c->c && c->connect_us) return;
    if (c->c && (events & POLLOUT)) {
        if (redisBufferWrite(c->c, &all) != REDIS_OK)
            disconnect(c, ST_PEER_LOST, c->c->errstr);
        else
            c->unsent = !all;
    }
    if (c->c && (events & (POLLIN | POLLHUP)) && redisBufferRead(c->c) != REDIS_OK)
        disconnect(c, ST_PEER_LOST, c->c->errstr);
    while (c->c) {
        if (redisGetReplyFromReader(c->c, &reply) != REDIS_OK) {
            disconnect(c, ST_INVALID, c->c->errstr);
            return;
        }
        if (!reply) return;
        if (c->n_greeting) {
            take_greeting(c, reply);
            freeReplyObject(reply);
            continue;
        }
        if (list_empty(&c->sent)) {
            freeReplyObject(reply);
            disconnect(c, ST_INVALID, "an answer that nobody asked for");
            return;
        }
        take(c, LIST_ENTRY(c->sent.next, struct object_req, link), reply);
        freeReplyObject(reply);
    }
}

static uint32_t run(struct object_client *oc, int fd, int64_t wait_us, struct object_req **done, uint32_t max)
{
    struct redis_client *c = client_of(oc);
    uint32_t             n = 0;
    if (c->c && c->unsent && !c->connect_us) work(c, POLLOUT); /* most often there is room for all of it */
    if (c->c && c->connect_us) {
        int64_t left = (int64_t)(c->connect_us - clock_us());
        if (left <= 0) disconnect(c, ST_TIMEOUT, "no connection in time");
        if (left > 0 && left < wait_us) wait_us = left;
    }
    if (!list_empty(&c->sent)) {
        const struct object_req *oldest = LIST_ENTRY(c->sent.next, struct object_req, link);
        int64_t                  left = (int64_t)(oldest->deadline_us - clock_us());
        if (left <= 0) disconnect(c, ST_TIMEOUT, "no answer in time");
        if (left > 0 && left < wait_us) wait_us = left;
    }
    struct pollfd p[2] = { { .fd = c->c ? c->c->fd : -1, .events = (short)(POLLIN | (c->unsent ? POLLOUT : 0)) },
                           { .fd = fd, .events = POLLIN } };
    int           ms = list_empty(&c->over) && wait_us > 0 ? (int)(wait_us / 1000 + 1) : 0;
    if (poll(p, 2, ms) > 0 && p[0].revents) work(c, p[0].revents);
    if (c->c && c->unsent && !c->connect_us) work(c, POLLOUT); /* a list goes on with lengths */
    while (n < max && !list_empty(&c->over)) {
        struct object_req *r = LIST_ENTRY(c->over.next, struct object_req, link);
        list_del(&r->link);
        done[n++] = r;
    }
    return n;
}

/* ---- life */

static enum status client_open(struct object_store *s, struct object_client **c_out)
{
    struct redis_client *c = calloc(1, sizeof *c);
    if (!c) return ST_NOMEM;
    c->client.store = s;
    list_init(&c->sent);
    list_init(&c->over);
    *c_out = &c->client;
    return ST_OK;
}

static void client_free(struct object_client *oc)
{
    struct redis_client *c = client_of(oc);
    disconnect(c, ST_CANCELED, "the client ends");
    free(c);
}

static void close_store(struct object_store *s) { free(redis_of(s)); }

static const struct object_ops redis_ops = { .name = "Redis",
                                             .object_bytes = OBJECT_BYTES,
                                             .client = client_open,
                                             .client_free = client_free,
                                             .begin = begin,
                                             .cancel = cancel,
                                             .run = run,
                                             .close = close_store };

static bool take_number(const char **p, long max, int *out)
{
    char *end;
    long  v = strtol(*p, &end, 10);
    if (end == *p || **p < '0' || **p > '9' || v > max) return false;
    *out = (int)v;
    *p = end;
    return true;
}

/* host[:port][/db[/prefix]] */
static bool parse(const char *url, struct redis *s)
{
    const char *p = url + strlen("redis://");
    size_t      n = strcspn(p, ":/");
    if (!n || n >= sizeof s->host || strchr(p, '@')) return false;
    memcpy(s->host, p, n);
    p += n;
    s->port = PORT;
    snprintf(s->prefix, sizeof s->prefix, "spillway");
    if (*p == ':') {
        p++;
        if (!take_number(&p, 65535, &s->port) || !s->port) return false;
    }
    if (*p == '/' && p[1]) {
        p++;
        if (!take_number(&p, 65535, &s->db)) return false;
    }
    if (*p == '/' && p[1]) {
        n = strlen(++p);
        if (n >= sizeof s->prefix ||
            strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:") != n)
            return false;
        memcpy(s->prefix, p, n + 1);
        p += n;
    }
    return !*p || !strcmp(p, "/");
}

enum status redis_open(const struct object_cfg *cfg, struct object_store **s_out, char *err, size_t err_bytes)
{
    struct redis *s = calloc(1, sizeof *s);
    if (!s) {
        snprintf(err, err_bytes, "no memory for a client of Redis");
        return ST_NOMEM;
    }
    s->store.ops = &redis_ops;
    if (!parse(cfg->url, s)) {
        snprintf(err, err_bytes,
                 "'%.200s' is not redis://HOST[:PORT][/DB[/PREFIX]]; a password belongs into REDISCLI_AUTH", cfg->url);
        free(s);
        return ST_CONFIG;
    }
    snprintf(s->store.shown, sizeof s->store.shown, "redis://%s:%d/%d/%s", s->host, s->port, s->db, s->prefix);
    *s_out = &s->store;
    return ST_OK;
}
