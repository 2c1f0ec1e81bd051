#include "api/lang/form_cache.h"
#include "base/hash.h"
#include "base/list.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024 };

struct entry {
    struct list     recent; /* in form_cache.recent, the latest first */
    struct entry   *next;   /* of its bucket */
    uint64_t        hash;
    char           *key;
    size_t          n_key, bytes;
    struct grammar *g;
    enum status     st;
    char           *err; /* of a failure that is remembered */
    char            ignored[SCHEMA_IGNORED];
    bool            making;
};

struct form_cache {
    pthread_mutex_t          lock; /* of all */
    pthread_cond_t           made;
    struct entry            *bucket[BUCKETS];
    struct list              recent;
    struct form_cache_counts count;
    size_t                   bytes_max;
    uint64_t                 seed;
};

struct form_cache *form_cache_create(size_t bytes_max)
{
    struct form_cache *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->bytes_max = bytes_max;
    c->seed = hash_seed();
    list_init(&c->recent);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->made, NULL);
    return c;
}

static void entry_free(struct entry *e)
{
    gr_free(e->g);
    free(e->key);
    free(e->err);
    free(e);
}

void form_cache_free(struct form_cache *c)
{
    if (!c) return;
    LIST_EACH(it, &c->recent) entry_free(LIST_ENTRY(it, struct entry, recent));
    pthread_cond_destroy(&c->made);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

/* ---------------------------------------------------------------- keys */

bool form_key_json(const json_t *v, struct buf *key)
{
    char *text = v ? json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (text) buf_put(key, text, strlen(text));
    buf_putc(key, 0);
    free(text);
    return (text || !v) && !key->failed;
}

bool form_key(const struct form *f, struct buf *key)
{
    buf_printf(key, "%d %d %d %d %d ", (int)f->kind, f->schema.compact, f->schema.closed, f->schema.open,
               f->schema.ignored != NULL);
    if (f->schema.space) buf_printf(key, "%zu %s ", strlen(f->schema.space), f->schema.space);
    if (!form_key_json(f->schema.big, key)) return false;
    return form_key_json(f->kind == FORM_OBJECT ? NULL : f->value, key);
}

/* ---------------------------------------------------------------- entries, under the lock */

static struct entry **place(struct form_cache *c, const struct buf *key, uint64_t hash)
{
    struct entry **at = &c->bucket[hash % BUCKETS];
    while (*at && ((*at)->hash != hash || (*at)->n_key != key->n || memcmp((*at)->key, key->data, key->n) != 0))
        at = &(*at)->next;
    return at;
}

/* A grammar grows with the texts that go through it. */
static void weigh(struct form_cache *c, struct entry *e)
{
    size_t bytes = sizeof *e + e->n_key + (e->err ? strlen(e->err) : 0) + (e->g ? gr_bytes(e->g) : 0);
    c->count.bytes += bytes - e->bytes;
    e->bytes = bytes;
}

static void drop(struct form_cache *c, struct entry *e)
{
    struct entry **at = &c->bucket[e->hash % BUCKETS];
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    list_del(&e->recent);
    c->count.bytes -= e->bytes;
    c->count.n_entry--;
    entry_free(e);
}

/* Entries go, the longest unused first, until the rest is within the bound. Those in use would free nothing. */
static void trim(struct form_cache *c)
{
    struct list *it = c->recent.prev;
    while (it != &c->recent && c->count.bytes > c->bytes_max) {
        struct entry *e = LIST_ENTRY(it, struct entry, recent);
        it = it->prev;
        if (e->making || (e->g && gr_in_use(e->g))) continue;
        drop(c, e);
        c->count.n_evicted++;
    }
}

static struct entry *add(struct form_cache *c, const struct buf *key, uint64_t hash)
{
    struct entry *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->key = malloc(key->n + 1);
    if (!e->key) {
        free(e);
        return NULL;
    }
    memcpy(e->key, key->data, key->n);
    e->n_key = key->n;
    e->hash = hash;
    e->making = true;
    e->next = c->bucket[hash % BUCKETS];
    c->bucket[hash % BUCKETS] = e;
    list_add_head(&c->recent, &e->recent);
    c->count.n_entry++;
    weigh(c, e);
    return e;
}

static enum status take(struct form_cache *c, struct entry *e, struct grammar **g_out, char *ignored, char *err)
{
    list_del(&e->recent);
    list_add_head(&c->recent, &e->recent);
    if (e->st) {
        memcpy(err, e->err, strlen(e->err) + 1);
        return e->st;
    }
    *g_out = gr_keep(e->g);
    if (ignored) memcpy(ignored, e->ignored, sizeof e->ignored);
    return ST_OK;
}

/* ---------------------------------------------------------------- get */

/* Under the lock, which is given up while the grammar is made. */
static enum status make_entry(struct form_cache *c, const struct buf *key, uint64_t hash, form_make *make, void *arg,
                              struct entry **e_out, char *err)
{
    trim(c);
    if (c->count.bytes > c->bytes_max) return ST_AGAIN;
    struct entry *e = add(c, key, hash);
    if (!e) return ST_NOMEM;
    pthread_mutex_unlock(&c->lock);
    enum status st = make(arg, &e->g, e->ignored, err);
    pthread_mutex_lock(&c->lock);
    c->count.n_made++;
    e->making = false;
    e->st = st;
    if (st && st != ST_NOMEM && *err) e->err = strdup(err);
    pthread_cond_broadcast(&c->made);
    if (st && !e->err) { /* it may go better the next time */
        drop(c, e);
        return st;
    }
    weigh(c, e);
    *e_out = e;
    return ST_OK;
}

enum status form_cache_get(struct form_cache *c, const struct buf *key, form_make *make, void *arg,
                           struct grammar **g_out, char *ignored, char err[FORM_ERR])
{
    uint64_t      hash = hash_bytes(key->data, key->n, c->seed);
    enum status   st = ST_OK;
    struct entry *e;
    *err = 0;
    pthread_mutex_lock(&c->lock);
    while ((e = *place(c, key, hash)) && e->making) pthread_cond_wait(&c->made, &c->lock);
    if (e && e->g && gr_is_worn(e->g)) { /* what the texts of others have used up is no concern of this one */
        drop(c, e);
        e = NULL;
    }
    if (e) {
        c->count.n_hit += e->st == ST_OK;
        c->count.n_refused += e->st != ST_OK;
        weigh(c, e);
    } else {
        st = make_entry(c, key, hash, make, arg, &e, err);
    }
    if (!st) st = take(c, e, g_out, ignored, err);
    if (!list_empty(&c->recent)) { /* those that grow while nobody asks for them are weighed in turn */
        struct entry *last = LIST_ENTRY(c->recent.prev, struct entry, recent);
        if (!last->making) weigh(c, last);
    }
    trim(c);
    pthread_mutex_unlock(&c->lock);
    return st;
}

void form_cache_count(struct form_cache *c, struct form_cache_counts *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->count;
    pthread_mutex_unlock(&c->lock);
}
