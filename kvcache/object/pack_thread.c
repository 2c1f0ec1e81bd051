/* pack_thread: the thread of a store of packs. It runs the uploads and removals that the owner posts, and lists the
 * store to find the objects of other servers. Its requests run concurrently, except an upload in parts, which blocks
 * it. */
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "kvcache/object/pack_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LIST_US = 5000000,    /* between lists of what is new */
    WHOLE_US = 600000000, /* between lists of all */
    LAG_MS = 120000,      /* writers' clocks differ, and uploads take time */
    SLEEP_US = 1000000,
    PUT_US = 120000000,
    TABLE_US = 20000000
};
static const uint64_t PART_BYTES = 64 << 20;

/* A list that is under way: one page of it at a time. */
struct pack_list {
    struct object_req req;
    bool              out, whole, under_way, all_seen, told_listed;
    uint32_t          round, n, at; /* at: of the names that were new, those whose tables were asked for */
    uint64_t          next_us, next_whole_us, newest_ms;
    uint32_t          sweep; /* after a whole list: rows of known that were looked at; n_object_max: done */
    struct {
        char           model[PACK_MODEL];
        struct pack_id id;
        uint64_t       bytes;
    } name[OBJECT_LIST_MAX];
};

static void give(struct pack_store *s, struct pack_task *t)
{
    CHECK(ring_push(&s->answer, t));
    xfer_wake(s->cfg.xfer); /* the owner may sleep */
}

/* ---- what is known */

static int32_t known_find(const struct pack_store *s, const char *model, struct pack_id id)
{
    int32_t i = chain_first(&s->by_seq, id.seq);
    while (i != CHAIN_NONE && (s->known[i].id.seq != id.seq || s->known[i].id.time_ms != id.time_ms ||
                               strcmp(s->known[i].model, model) != 0))
        i = chain_next(&s->by_seq, i);
    return i;
}

static bool known_add(struct pack_store *s, const char *model, struct pack_id id, int32_t object)
{
    int32_t i = s->free_known;
    if (i == PACK_NONE) {
        atomic_fetch_add_explicit(&s->n_unread, 1, memory_order_relaxed);
        return false;
    }
    struct pack_known *k = &s->known[i];
    s->free_known = k->next;
    *k = (struct pack_known){ .id = id, .object = object, .round = s->list->round + 1, .used = true };
    memcpy(k->model, model, sizeof k->model);
    chain_add(&s->by_seq, id.seq, i);
    return true;
}

static void known_drop(struct pack_store *s, int32_t i)
{
    if (i == CHAIN_NONE) return;
    chain_remove(&s->by_seq, s->known[i].id.seq, i);
    s->known[i].used = false;
    s->known[i].next = s->free_known;
    s->free_known = i;
}

/* ---- what the owner asks for */

static void name_of(const struct pack_task *t, char out[OBJECT_NAME])
{
    snprintf(out, OBJECT_NAME, "%s/%012llx-%016llx.kv", t->model, (unsigned long long)t->id.time_ms,
             (unsigned long long)t->id.seq);
}

static void put_over(struct pack_store *s, struct pack_task *t, enum status st, const char *why)
{
    t->st = st;
    if (st) {
        LOG_WARN_LIMITED("kv: %s: %u blocks are not kept: %s", s->cfg.where, t->n_row, why);
        known_drop(s, known_find(s, t->model, t->id));
    }
    give(s, t);
}

static void put(struct pack_store *s, struct pack_task *t)
{
    struct pack_buffer *b = &s->buffer[t->buffer];
    uint32_t            n = pack_records(s->record_bytes, t->bytes);
    char                why[OBJECT_WHY] = "";
    CHECK(n > 0);
    pack_table_make(b->bytes + n * s->record_bytes, &s->cfg.key, &s->shape, t->id.seq, n, b->row, t->n_row);
    known_add(s, t->model, t->id, t->object); /* a list may show it before its answer is here */
    memset(&t->req, 0, sizeof t->req);
    name_of(t, t->req.name);
    if (t->bytes > PART_BYTES) {
        if (!s->big && object_client(s->store, &s->big)) s->big = NULL;
        enum status st = ST_NOMEM;
        if (s->big)
            st = object_put(s->big, t->req.name, b->bytes, t->bytes, PART_BYTES, clock_us() + PUT_US, why, sizeof why);
        put_over(s, t, st, why);
        return;
    }
    t->req.op = OBJECT_PUT;
    t->req.body = b->bytes;
    t->req.bytes = t->bytes;
    t->req.deadline_us = clock_us() + PUT_US;
    t->req.owner = t;
    object_begin(s->client, &t->req);
}

static void take(struct pack_store *s, struct pack_task *t)
{
    int32_t i;
    switch (t->kind) {
    case PACK_PUT: put(s, t); break;
    case PACK_REMOVE:
        memset(&t->req, 0, sizeof t->req);
        name_of(t, t->req.name);
        t->req.op = OBJECT_DELETE;
        t->req.owner = t;
        object_begin(s->client, &t->req);
        break;
    case PACK_FOUND: /* back */
        i = known_find(s, t->model, t->id);
        if (i != CHAIN_NONE) s->known[i].object = t->object;
        if (t->object == PACK_NONE) known_drop(s, i); /* it found no place: the next list finds it again */
        t->used = false;
        break;
    case PACK_GONE:
    case PACK_LISTED: t->used = false; break;
    }
}

/* ---- lists */

static void each_name(void *ctx, const char *name, uint64_t bytes, const char *etag)
{
    struct pack_store *s = ctx;
    struct pack_list  *l = s->list;
    char               model[PACK_MODEL];
    struct pack_id     id;
    (void)etag;
    if (!pack_name_parse(name, model, &id)) return; /* somebody else's: it is left as it is */
    int32_t i = known_find(s, model, id);
    if (i != CHAIN_NONE) {
        if (s->known[i].round < l->round) s->known[i].round = l->round;
        return;
    }
    if (l->n == OBJECT_LIST_MAX) return;
    if (!strcmp(model, s->model) && id.time_ms > l->newest_ms) l->newest_ms = id.time_ms;
    memcpy(l->name[l->n].model, model, sizeof model);
    l->name[l->n].id = id;
    l->name[l->n++].bytes = bytes;
}

static void list_page(struct pack_store *s, const char *after)
{
    struct pack_list *l = s->list;
    char              from[OBJECT_NAME];
    snprintf(from, sizeof from, "%s", after); /* it may be req.last */
    memset(&l->req, 0, sizeof l->req);
    l->req.op = OBJECT_LIST;
    if (!l->whole) snprintf(l->req.name, sizeof l->req.name, "%s/", s->model);
    memcpy(l->req.after, from, sizeof from);
    l->req.each = each_name;
    l->req.ctx = s;
    l->req.deadline_us = clock_us() + TABLE_US;
    l->n = l->at = 0;
    l->out = true;
    object_begin(s->client, &l->req);
}

static void list_begin(struct pack_store *s, uint64_t now_us)
{
    struct pack_list *l = s->list;
    char              after[OBJECT_NAME] = "";
    l->whole = now_us >= l->next_whole_us;
    l->under_way = true;
    if (l->whole)
        l->round++;
    else if (l->newest_ms > LAG_MS)
        snprintf(after, sizeof after, "%s/%012llx", s->model, (unsigned long long)(l->newest_ms - LAG_MS));
    list_page(s, after);
}

static void list_end(struct pack_store *s, bool ok)
{
    struct pack_list *l = s->list;
    uint64_t          now = clock_us();
    uint64_t          every = s->scan_us;
    l->under_way = false;
    l->next_us = now + every + hash_u64(now) % (every / 4 + 1);
    if (!ok || !l->whole) return;
    l->next_whole_us = now + WHOLE_US;
    l->sweep = 0;
    l->all_seen = true;
}

static void page_came(struct pack_store *s)
{
    struct pack_list *l = s->list;
    l->out = false;
    if (l->req.st) {
        l->n = 0;
        LOG_WARN_LIMITED("kv: %s cannot be listed: %s", s->cfg.where, l->req.why);
        list_end(s, false);
    }
}

static void ask_table(struct pack_store *s, struct pack_task *t, uint64_t table_bytes)
{
    memset(&t->req, 0, sizeof t->req);
    name_of(t, t->req.name);
    t->piece = (struct object_piece){ t->table, table_bytes };
    t->req.op = OBJECT_GET;
    t->req.off = t->bytes - table_bytes;
    t->req.bytes = table_bytes;
    t->req.piece = &t->piece;
    t->req.n_piece = 1;
    t->req.deadline_us = clock_us() + TABLE_US;
    t->req.owner = t;
    object_begin(s->client, &t->req);
}

/* A name that is new: of our model, its table is read; else it only takes room. */
static void look_at(struct pack_store *s, struct pack_task *t, uint32_t k)
{
    struct pack_list *l = s->list;
    *t = (struct pack_task){ .kind = PACK_FOUND, .object = PACK_NONE, .used = true, .table = t->table };
    memcpy(t->model, l->name[k].model, sizeof t->model);
    t->id = l->name[k].id;
    t->bytes = l->name[k].bytes;
    if (!known_add(s, t->model, t->id, PACK_NONE)) {
        t->used = false;
        return;
    }
    uint32_t n = strcmp(t->model, s->model) ? 0 : pack_records(s->record_bytes, t->bytes);
    if (n)
        ask_table(s, t, pack_table_bytes(n));
    else
        give(s, t);
}

static void table_came(struct pack_store *s, struct pack_task *t)
{
    uint32_t n = pack_records(s->record_bytes, t->bytes);
    if (t->req.st && t->req.st != ST_INVALID) { /* it was removed meanwhile, or cannot be read now */
        known_drop(s, known_find(s, t->model, t->id));
        t->used = false;
        return;
    }
    if (!t->req.st) t->row = pack_table_open(t->table, &s->cfg.key, &s->shape, t->id.seq, n, &t->n_row);
    if (!t->req.st && !t->row && s->cfg.old_key) {
        t->row = pack_table_open(t->table, s->cfg.old_key, &s->shape, t->id.seq, n, &t->n_row);
        t->old_key = t->row != NULL;
    }
    give(s, t);
}

/* After a complete list: known objects that the list does not name are gone. */
static void sweep(struct pack_store *s)
{
    struct pack_list *l = s->list;
    for (; l->sweep < s->n_object_max && !s->told.used; l->sweep++) {
        const struct pack_known *k = &s->known[l->sweep];
        if (!k->used || k->round >= l->round || k->object == PACK_NONE) continue;
        s->told = (struct pack_task){ .kind = PACK_GONE, .object = k->object, .id = k->id, .used = true };
        memcpy(s->told.model, k->model, sizeof s->told.model);
        known_drop(s, (int32_t)l->sweep);
        give(s, &s->told);
    }
    bool idle = !s->told.used;
    for (int i = 0; i < PACK_TABLES; i++) idle = idle && !s->found[i].used;
    if (l->all_seen && !l->told_listed && idle && l->sweep == s->n_object_max) {
        l->told_listed = true;
        s->told = (struct pack_task){ .kind = PACK_LISTED, .used = true };
        give(s, &s->told);
    }
}

static void list_turn(struct pack_store *s, uint64_t now_us)
{
    struct pack_list *l = s->list;
    for (int i = 0; i < PACK_TABLES && l->at < l->n && !l->out; i++)
        if (!s->found[i].used) look_at(s, &s->found[i], l->at++);
    if (l->sweep < s->n_object_max || !l->told_listed) sweep(s);
    if (l->out || l->at < l->n) return;
    if (!l->under_way) {
        if (now_us >= l->next_us && !object_is_down(s->store, now_us)) list_begin(s, now_us);
    } else if (l->req.more && strcmp(l->req.last, l->req.after) > 0) {
        list_page(s, l->req.last);
    } else {
        list_end(s, true);
    }
}

/* ---- the thread */

static void done(struct pack_store *s, struct object_req *r)
{
    struct pack_task *t = r->owner;
    if (r == &s->list->req) {
        page_came(s);
    } else if (t->kind == PACK_PUT) {
        put_over(s, t, r->st, r->why);
    } else if (t->kind == PACK_REMOVE) {
        t->st = r->st == ST_NOT_FOUND ? ST_OK : r->st;
        if (!t->st) known_drop(s, known_find(s, t->model, t->id));
        give(s, t);
    } else {
        table_came(s, t);
    }
}

void *pack_main(void *arg)
{
    struct pack_store *s = arg;
    struct object_req *over[16];
    while (!atomic_load(&s->stop)) {
        for (struct pack_task *t; (t = ring_pop(&s->todo));) take(s, t);
        list_turn(s, clock_us());
        bool     sleeps = ring_arm(&s->todo);
        int64_t  us = s->scan_us < SLEEP_US ? (int64_t)s->scan_us : SLEEP_US;
        uint32_t n = object_run(s->client, ring_fd(&s->todo), sleeps ? us : 0, over, 16);
        if (sleeps) ring_ack(&s->todo);
        for (uint32_t i = 0; i < n; i++) done(s, over[i]);
    }
    return NULL;
}

enum status pack_thread_open(struct pack_store *s)
{
    s->scan_us = s->cfg.scan_us ? s->cfg.scan_us : LIST_US;
    s->known = calloc(s->n_object_max, sizeof *s->known);
    s->list = calloc(1, sizeof *s->list);
    bool ok = s->known && s->list && !chain_init(&s->by_seq, s->n_object_max, &s->known[0].next, sizeof *s->known);
    for (int i = 0; i < PACK_TABLES; i++) {
        s->found[i].table = aligned_alloc(PACK_PAGE, pack_table_bytes(PACK_RECORDS_MAX));
        ok = ok && s->found[i].table;
    }
    ok = ok && !ring_init(&s->todo, PACK_TASKS) && !ring_init(&s->answer, PACK_TASKS);
    if (!ok) return ST_NOMEM;
    s->list->sweep = s->n_object_max;
    s->free_known = PACK_NONE;
    for (uint32_t i = s->n_object_max; i-- > 0;) {
        s->known[i].next = s->free_known;
        s->free_known = (int32_t)i;
    }
    enum status st = object_client(s->store, &s->client);
    if (!st) st = thread_start(&s->thread, THREAD_ANY, "kv-objects", pack_main, s);
    s->started = !st;
    return st;
}

void pack_thread_close(struct pack_store *s)
{
    if (s->started) {
        atomic_store(&s->stop, true);
        ring_wake(&s->todo);
        pthread_join(s->thread, NULL);
    }
    object_client_free(s->client);
    object_client_free(s->big);
    if (s->todo.fd >= 0) ring_free(&s->todo);
    if (s->answer.fd >= 0) ring_free(&s->answer);
    for (int i = 0; i < PACK_TABLES; i++) free(s->found[i].table);
    if (s->by_seq.bucket) chain_free(&s->by_seq);
    free(s->known);
    free(s->list);
}
