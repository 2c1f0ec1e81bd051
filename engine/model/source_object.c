#include "engine/model/source_object.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/model/partial.h"
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILES_MAX = 4096, MODULES_MAX = 64, CLIENTS_MAX = 32, AT_ONCE = 8, READ_S = 300, LIST_S = 60 };
static const uint64_t PART_BYTES = 4 * PARTIAL_PIECE;

struct object_file {
    char     name[OBJECT_NAME], etag[OBJECT_ETAG];
    uint64_t bytes;
    /* lock of the source: */
    bool            tried; /* to open partial */
    struct partial *partial;
};
struct source_object {
    struct source_reader  reader; /* first */
    struct object_store  *store;
    struct object_file   *file;    /* [n_file] */
    uint32_t              n_file;  /* of them: */
    uint32_t              n_own;   /* of the prefix itself */
    uint32_t              n_below; /* configurations of modules, in folders of their own */
    bool                  too_many;
    const char           *keep_dir; /* for partial files; NULL: nothing is kept */
    pthread_mutex_t       lock;     /* the clients, and what files name it for */
    struct object_client *idle[CLIENTS_MAX];
    uint32_t              n_idle;
};

static struct source_object *object_of(const struct source_reader *r)
{
    return (struct source_object *)(uintptr_t)r; /* the reader is its first member, and not const in truth */
}

/* ---- clients: a read has one for itself */

static struct object_client *client_take(struct source_object *o)
{
    struct object_client *c = NULL;
    pthread_mutex_lock(&o->lock);
    if (o->n_idle) c = o->idle[--o->n_idle];
    pthread_mutex_unlock(&o->lock);
    if (!c && object_client(o->store, &c)) return NULL;
    return c;
}

static void client_give(struct source_object *o, struct object_client *c)
{
    bool kept = false;
    pthread_mutex_lock(&o->lock);
    if (o->n_idle < CLIENTS_MAX) {
        o->idle[o->n_idle++] = c;
        kept = true;
    }
    pthread_mutex_unlock(&o->lock);
    if (!kept) object_client_free(c);
}

/* ---- files */

static enum status open_file(const struct source_reader *r, const char *name, struct source_file *f_out)
{
    const struct source_object *o = object_of(r);
    for (uint32_t i = 0; i < o->n_file; i++) {
        const struct object_file *f = &o->file[i];
        if (strcmp(f->name, name) != 0) continue;
        *f_out = (struct source_file){ .fd = -1, .reader = r, .bytes = f->bytes, .far = true };
        memcpy(f_out->name, name, strlen(name) + 1);
        memcpy(f_out->version, f->etag, sizeof f->etag);
        return ST_OK;
    }
    errno = ENOENT;
    return ST_NOT_FOUND;
}

/* One read in parts, several of them on their way. */
struct reading {
    struct object_client     *c;
    const struct source_file *f;
    uint64_t                  offset, n, begun; /* begun: bytes of it that were asked for */
    unsigned char            *dst;
    uint32_t                  n_out;
    struct object_req         req[AT_ONCE];
    struct object_piece       piece[AT_ONCE];
};

static void begin_part(struct reading *g, uint32_t slot)
{
    struct object_req *r = &g->req[slot];
    uint64_t           left = g->n - g->begun, bytes = left < PART_BYTES ? left : PART_BYTES;
    g->piece[slot] = (struct object_piece){ g->dst + g->begun, bytes };
    memset(r, 0, sizeof *r);
    r->op = OBJECT_GET;
    memcpy(r->name, g->f->name, strlen(g->f->name) + 1);
    memcpy(r->etag, g->f->version, sizeof r->etag);
    r->off = g->offset + g->begun;
    r->bytes = bytes;
    r->piece = &g->piece[slot];
    r->n_piece = 1;
    r->deadline_us = clock_us() + READ_S * UINT64_C(1000000);
    g->begun += bytes;
    g->n_out++;
    object_begin(g->c, r);
}

/* As partial_fetch; come: may be NULL. */
static enum status fetch(void *ctx, uint64_t offset, void *dst, size_t n, partial_come *come, void *told)
{
    const struct source_file *f = ctx;
    struct source_object     *o = object_of(f->reader);
    struct reading            g = { .f = f, .offset = offset, .n = n, .dst = dst };
    struct object_req        *done[AT_ONCE];
    enum status               st = ST_OK;
    if (!n) return ST_OK;
    g.c = client_take(o);
    if (!g.c) {
        errno = ENOMEM;
        return ST_NOMEM;
    }
    for (uint32_t i = 0; i < AT_ONCE && g.begun < g.n; i++) begin_part(&g, i);
    while (g.n_out) {
        uint32_t k = object_run(g.c, -1, 1000000, done, AT_ONCE);
        for (uint32_t i = 0; i < k; i++) {
            g.n_out--;
            if (done[i]->st && !st) {
                st = done[i]->st;
                LOG_WARN("model: %s", done[i]->why);
            }
            if (!st && come) come(told, done[i]->off, done[i]->bytes);
            if (!st && g.begun < g.n) begin_part(&g, (uint32_t)(done[i] - g.req));
        }
    }
    client_give(o, g.c);
    if (!st) return ST_OK;
    switch (st) {
    case ST_INVALID: errno = ESTALE; break;
    case ST_TIMEOUT: errno = ETIMEDOUT; break;
    case ST_CONFIG: errno = EACCES; break;
    default: errno = EIO;
    }
    return ST_IO;
}

/* ---- what a start that is killed leaves for the next one */

static struct partial_of partial_of(const struct source_object *o, const struct object_file *f)
{
    return (struct partial_of){ .where = o->store->shown, .name = f->name, .version = f->etag, .bytes = f->bytes };
}

static bool is_weights(const struct object_file *f)
{
    static const char end[] = ".safetensors";
    size_t            n = strlen(f->name), m = sizeof end - 1;
    return n > m && !strcmp(f->name + n - m, end);
}

/* The partial file of f, opened by the first who asks; NULL: nothing is kept of it. */
static struct partial *partial_for(struct source_object *o, const struct source_file *f)
{
    struct partial *p = NULL;
    if (!f->keep || !o->keep_dir) return NULL;
    pthread_mutex_lock(&o->lock);
    for (uint32_t i = 0; i < o->n_file; i++) {
        struct object_file *of = &o->file[i];
        if (strcmp(of->name, f->name) != 0) continue;
        struct partial_of what = partial_of(o, of);
        if (!of->tried && *of->etag && is_weights(of)) of->partial = partial_open(o->keep_dir, &what);
        of->tried = true;
        p = of->partial;
    }
    pthread_mutex_unlock(&o->lock);
    return p;
}

static enum status read_file(const struct source_file *f, uint64_t offset, void *dst, size_t n)
{
    struct partial *p = partial_for(object_of(f->reader), f);
    /* const apart from this cast: fetch only reads it */
    void *ctx = (void *)(uintptr_t)f;
    return p ? partial_read(p, offset, dst, n, fetch, ctx) : fetch(ctx, offset, dst, n, NULL, NULL);
}

void source_object_keep(struct source_object *o, const char *dir, uint64_t bytes_max)
{
    uint64_t total = 0, room = partial_room(dir);
    for (uint32_t i = 0; i < o->n_file; i++)
        if (is_weights(&o->file[i])) total += o->file[i].bytes;
    if (total <= bytes_max && room / 2 >= total) {
        o->keep_dir = dir;
        return;
    }
    LOG_INFO("model: the %" PRIu64 " MiB of weights are not kept in %s while they are fetched (allowed are %" PRIu64
             " MiB, and twice the weights must be free, which are %" PRIu64 "): a start that is killed begins anew",
             total >> 20, dir, bytes_max >> 20, room >> 20);
}

static void partials_close(struct source_object *o)
{
    for (uint32_t i = 0; i < o->n_file; i++) {
        partial_close(o->file[i].partial);
        o->file[i].partial = NULL;
    }
}

void source_object_loaded(struct source_object *o)
{
    partials_close(o);
    for (uint32_t i = 0; o->keep_dir && i < o->n_file; i++) {
        struct partial_of what = partial_of(o, &o->file[i]);
        if (is_weights(&o->file[i])) partial_remove(o->keep_dir, &what);
    }
    o->keep_dir = NULL;
}

/* ---- the list */

/* What lies below the prefix has a '/' in its name. Of that only a module's config.json is the model's. */
static bool is_of_model(const char *name)
{
    const char *slash = strchr(name, '/');
    return *name && (!slash || (slash != name && !strcmp(slash, "/config.json")));
}

static void each_file(void *ctx, const char *name, uint64_t bytes, const char *etag)
{
    struct source_object *o = ctx;
    if (!is_of_model(name) || strlen(name) >= sizeof((struct source_file *)0)->name) return;
    bool below = strchr(name, '/') != NULL;
    if (below && o->n_below == MODULES_MAX) return; /* so many are folders of other models */
    if (!below && o->n_own == FILES_MAX) {
        o->too_many = true;
        return;
    }
    *(below ? &o->n_below : &o->n_own) += 1;
    struct object_file *f = &o->file[o->n_file++];
    memcpy(f->name, name, strlen(name) + 1);
    memcpy(f->etag, etag, strlen(etag) + 1);
    f->bytes = bytes;
}

static enum status list_files(struct source_object *o, char *err, size_t err_bytes)
{
    struct object_client *c = client_take(o);
    struct object_req     r = { .op = OBJECT_LIST, .each = each_file, .ctx = o };
    enum status           st = c ? ST_OK : ST_NOMEM;
    bool                  more = true;
    if (st) snprintf(err, err_bytes, "no memory for a client of %s", o->store->shown);
    while (!st && more) {
        r.deadline_us = clock_us() + LIST_S * UINT64_C(1000000);
        st = object_do(c, &r);
        if (st) snprintf(err, err_bytes, "%s", r.why);
        more = r.more && strcmp(r.last, r.after) > 0;
        memcpy(r.after, r.last, sizeof r.after);
    }
    if (c) client_give(o, c);
    if (!st && o->too_many) {
        snprintf(err, err_bytes, "%s holds more than %d files, which is no model", o->store->shown, FILES_MAX);
        return ST_CONFIG;
    }
    if (!st && !o->n_own) {
        snprintf(err, err_bytes, "nothing lies in %s", o->store->shown);
        return ST_NOT_FOUND;
    }
    return st;
}

enum status source_object_open(const struct object_cfg *cfg, struct source_object **o_out, char *err, size_t err_bytes)
{
    struct source_object *o = calloc(1, sizeof *o);
    if (o) o->file = calloc(FILES_MAX + MODULES_MAX, sizeof *o->file);
    if (!o || !o->file) {
        free(o);
        snprintf(err, err_bytes, "no memory for a list of files");
        return ST_NOMEM;
    }
    pthread_mutex_init(&o->lock, NULL);
    enum status st = object_open(cfg, &o->store, err, err_bytes);
    if (!st) {
        o->reader = (struct source_reader){ .open = open_file, .read = read_file, .shown = o->store->shown };
        st = list_files(o, err, err_bytes);
    }
    if (st) {
        source_object_close(o);
        return st;
    }
    *o_out = o;
    return ST_OK;
}

void source_object_close(struct source_object *o)
{
    if (!o) return;
    partials_close(o);
    while (o->n_idle) object_client_free(o->idle[--o->n_idle]);
    if (o->store) object_close(o->store);
    pthread_mutex_destroy(&o->lock);
    free(o->file);
    free(o);
}

const struct source_reader *source_object_reader(const struct source_object *o) { return &o->reader; }
