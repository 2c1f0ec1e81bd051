/* Blocks in objects: what was written is what is read, by whoever opens the same store; and everything else is a
 * miss. */
#include "base/clock.h"
#include "kvcache/object/pack.h"
#include "kvcache/object/pack_format.h"
#include "transfer/lanes.h"
#include "transfer/object/object.h"
#include "test.h"
#include <poll.h>
#include <pthread.h>

enum { BT = 4, PAYLOAD = 600, RECORD = 8192, OBJECTS = 64, BLOCKS = 40, SLAB = 2 * BLOCKS };

/* ---- a store in memory */

struct thing {
    char           name[OBJECT_NAME];
    unsigned char *data;
    uint64_t       bytes;
};
struct fake {
    struct object_store store; /* first */
    pthread_mutex_t     lock;
    struct thing        thing[OBJECTS];
    uint64_t            bytes, most;
    _Atomic bool        refuses_puts, flips;
};
struct fake_client {
    struct object_client client; /* first */
    struct list          over;
};

static struct thing *thing_of(struct fake *f, const char *name)
{
    for (int i = 0; i < OBJECTS; i++)
        if (f->thing[i].data && !strcmp(f->thing[i].name, name)) return &f->thing[i];
    return NULL;
}

static enum status fake_put(struct fake *f, const struct object_req *r)
{
    struct thing *t = f->thing;
    if (f->refuses_puts) return ST_PEER_LOST;
    while (t->data) t++;
    assert_true(t < f->thing + OBJECTS);
    snprintf(t->name, sizeof t->name, "%s", r->name);
    t->data = malloc(r->bytes);
    memcpy(t->data, r->body, r->bytes);
    t->bytes = r->bytes;
    f->bytes += r->bytes;
    if (f->bytes > f->most) f->most = f->bytes;
    return ST_OK;
}

static enum status fake_get(struct fake *f, const struct object_req *r)
{
    struct thing *t = thing_of(f, r->name);
    if (!t) return ST_NOT_FOUND;
    if (r->off + r->bytes > t->bytes) return ST_INVALID;
    const unsigned char *from = t->data + r->off;
    for (uint32_t i = 0; i < r->n_piece; i++) {
        memcpy(r->piece[i].base, from, r->piece[i].bytes);
        if (f->flips) r->piece[i].base[r->piece[i].bytes / 2] ^= 1;
        from += r->piece[i].bytes;
    }
    return ST_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static enum status fake_list(struct fake *f, struct object_req *r)
{
    const char *name[OBJECTS];
    uint32_t    n = 0;
    for (int i = 0; i < OBJECTS; i++)
        if (f->thing[i].data && !strncmp(f->thing[i].name, r->name, strlen(r->name)) &&
            strcmp(f->thing[i].name, r->after) > 0)
            name[n++] = f->thing[i].name;
    qsort(name, n, sizeof *name, by_name);
    r->more = n > 3; /* small pages */
    for (uint32_t i = 0; i < n && i < 3; i++) {
        r->each(r->ctx, name[i], thing_of(f, name[i])->bytes, "");
        snprintf(r->last, sizeof r->last, "%s", name[i]);
    }
    return ST_OK;
}

static enum status fake_delete(struct fake *f, const struct object_req *r)
{
    struct thing *t = thing_of(f, r->name);
    if (!t) return ST_NOT_FOUND;
    f->bytes -= t->bytes;
    free(t->data);
    t->data = NULL;
    return ST_OK;
}

static void fake_begin(struct object_client *c, struct object_req *r)
{
    struct fake *f = (struct fake *)c->store;
    pthread_mutex_lock(&f->lock);
    switch (r->op) {
    case OBJECT_PUT: r->st = fake_put(f, r); break;
    case OBJECT_GET: r->st = fake_get(f, r); break;
    case OBJECT_LIST: r->st = fake_list(f, r); break;
    default: r->st = fake_delete(f, r);
    }
    pthread_mutex_unlock(&f->lock);
    list_add_tail(&((struct fake_client *)c)->over, &r->link);
}

static void fake_cancel(struct object_client *c, struct object_req *r)
{
    (void)c;
    (void)r;
}

static uint32_t fake_run(struct object_client *c, int fd, int64_t wait_us, struct object_req **done, uint32_t max)
{
    struct fake_client *fc = (struct fake_client *)c;
    struct pollfd       p = { .fd = fd, .events = POLLIN };
    uint32_t            n = 0;
    if (list_empty(&fc->over) && wait_us) poll(&p, 1, (int)(wait_us / 1000) + 1);
    while (n < max && !list_empty(&fc->over)) {
        done[n] = LIST_ENTRY(fc->over.next, struct object_req, link);
        list_del(&done[n++]->link);
    }
    return n;
}

static enum status fake_client(struct object_store *s, struct object_client **c_out)
{
    struct fake_client *c = calloc(1, sizeof *c);
    c->client.store = s;
    list_init(&c->over);
    *c_out = &c->client;
    return ST_OK;
}
static void                    fake_client_free(struct object_client *c) { free(c); }
static void                    fake_close(struct object_store *s) { (void)s; }
static const struct object_ops fake_ops = { .name = "memory",
                                            .object_bytes = 65536,
                                            .client = fake_client,
                                            .client_free = fake_client_free,
                                            .begin = fake_begin,
                                            .cancel = fake_cancel,
                                            .run = fake_run,
                                            .close = fake_close };

static void fake_open(struct fake *f)
{
    memset((void *)f, 0, sizeof *f);
    f->store.ops = &fake_ops;
    snprintf(f->store.shown, sizeof f->store.shown, "memory://x");
    pthread_mutex_init(&f->lock, NULL);
}
static void fake_free(struct fake *f)
{
    for (int i = 0; i < OBJECTS; i++) free(f->thing[i].data);
}

/* ---- a row over it */

struct world {
    struct fake      *f;
    struct xfer      *x;
    struct kv_below  *b;
    unsigned char    *slab;
    uint32_t          seg;
    struct digest_key key;
};

static const struct kv_key fingerprint = { .b = { 7, 7, 7 } };

static void open_row(struct world *w, struct fake *f, uint64_t bytes, uint64_t seed, bool prove)
{
    char err[300];
    memset(w, 0, sizeof *w);
    w->f = f;
    w->key.seed = seed;
    struct xfer_cfg xc = { .jobs_max = 128, .key = w->key };
    assert_int_equal(xfer_create(&xc, &w->x), ST_OK);
    assert_int_equal(xfer_lane_add(w->x, lane_object_create(&f->store)), ST_OK);
    assert_int_equal(xfer_lane_add(w->x, lane_dev_create_with(0)), ST_OK);
    w->slab = aligned_alloc(4096, SLAB * RECORD);
    memset(w->slab, 0, SLAB * RECORD);
    struct xfer_seg seg = { .kind = XFER_HOST, .base = w->slab, .bytes = SLAB * RECORD };
    assert_int_equal(xfer_seg_add(w->x, &seg, &w->seg), ST_OK);
    assert_int_equal(xfer_start(w->x), ST_OK);
    struct kv_below_cfg c = { .where = "memory://x",
                              .bytes = bytes,
                              .n_below = 1,
                              .payload_bytes = PAYLOAD,
                              .block_tokens = BT,
                              .fingerprint = fingerprint,
                              .key = w->key,
                              .xfer = w->x,
                              .prove = prove,
                              .clock = clock_us,
                              .scan_us = 20000,
                              .objects = &f->store };
    assert_int_equal(kv_objects.open(&c, &w->b, err, sizeof err), ST_OK);
}

static void close_row(struct world *w)
{
    kv_objects.close(w->b);
    xfer_free(w->x);
    free(w->slab);
}

static void turn(struct world *w)
{
    kv_objects.turn(w->b);
    assert_int_equal(kv_objects.check(w->b), ST_OK);
}

static struct kv_key key_of(uint32_t n)
{
    struct kv_key k = { .b = { 1 } };
    memcpy(k.b + 8, &n, sizeof n);
    return k;
}

static enum status completed(struct world *w)
{
    struct xfer_done d;
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; !xfer_poll(w->x, &d, 1); usleep(100))
        assert_true(clock_us() < end);
    return d.st;
}

/* false: not now. */
static bool write_block(struct world *w, uint32_t n)
{
    unsigned char  *page = w->slab;
    struct kv_key   key = key_of(n), parent = n % 5 ? key_of(n - 1) : (struct kv_key){ { 0 } };
    uint32_t        ids[BT] = { n, n, n, n };
    struct kv_place place;
    memset(page + KV_RECORD_HEAD, 0, RECORD - KV_RECORD_HEAD);
    for (uint32_t i = 0; i < PAYLOAD; i++) page[KV_RECORD_HEAD + i] = (unsigned char)(n * 31 + i);
    struct kv_record_facts facts = { .fingerprint = &fingerprint,
                                     .key = &key,
                                     .parent = &parent,
                                     .ids = ids,
                                     .block_tokens = BT,
                                     .payload_bytes = PAYLOAD,
                                     .payload = digest_of(&w->key, page + KV_RECORD_HEAD, PAYLOAD) };
    kv_record_make(page, &w->key, &facts);
    struct kv_write wr = { .key = &key, .host_seg = w->seg, .page = page };
    if (kv_objects.write(w->b, &wr, &place)) return false;
    assert_true(kv_objects.has(w->b, &key));
    kv_objects.write_done(w->b, place, completed(w));
    turn(w);
    return true;
}

static void write_blocks(struct world *w, uint32_t from, uint32_t to)
{
    uint64_t end = clock_us() + PATIENCE_S * 1000000u;
    for (uint32_t n = from; n < to;) {
        assert_true(clock_us() < end);
        if (write_block(w, n))
            n++;
        else
            usleep(100);
        turn(w);
    }
}

/* The record as the tiers would check it. ST_NOT_FOUND: not there, or not believed. */
static enum status read_block(struct world *w, uint32_t n)
{
    unsigned char  *page = w->slab + (uint64_t)RECORD * BLOCKS;
    struct kv_key   key = key_of(n);
    uint32_t        ids[BT] = { n, n, n, n };
    struct kv_place place;
    uint64_t        ticket;
    memset(page, 0xee, RECORD);
    if (!kv_objects.find(w->b, &key, &place)) return ST_NOT_FOUND;
    struct kv_read r = { .key = &key, .host_seg = w->seg, .host_off = (uint64_t)RECORD * BLOCKS };
    enum status    st = kv_objects.read(w->b, &r, &place, &ticket);
    if (st) return st;
    st = completed(w);
    bool sure = !st && !kv_record_check(page, &w->key, &fingerprint, &key, ids, BT, PAYLOAD, place.seq);
    kv_objects.read_done(w->b, place, !sure);
    turn(w);
    for (uint32_t i = 0; sure && i < PAYLOAD; i++)
        assert_int_equal(page[KV_RECORD_HEAD + i], (unsigned char)(n * 31 + i));
    if (st) return st;
    return sure ? ST_OK : ST_INVALID;
}

static uint64_t blocks(struct world *w)
{
    struct kv_below_stats s;
    kv_objects.stats(w->b, &s);
    return s.n_block;
}

static void wait_blocks(struct world *w, uint64_t n)
{
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; blocks(w) < n; usleep(1000)) {
        assert_true(clock_us() < end);
        turn(w);
    }
}

static void what_one_wrote_another_reads_and_so_does_the_next_start(void **state)
{
    (void)state;
    struct fake  f;
    struct world a, b;
    fake_open(&f);
    open_row(&a, &f, 1 << 20, 5, false);
    open_row(&b, &f, 1 << 20, 5, false);
    write_blocks(&a, 0, BLOCKS);
    for (uint32_t n = 0; n < BLOCKS; n++) assert_int_equal(read_block(&a, n), ST_OK); /* some still in their buffers */
    wait_blocks(&b, BLOCKS / 7 * 7);
    for (uint32_t n = 0; n < BLOCKS / 7 * 7; n++) assert_int_equal(read_block(&b, n), ST_OK);
    close_row(&a); /* what was not full goes up as well */
    wait_blocks(&b, BLOCKS);
    close_row(&b);
    open_row(&b, &f, 1 << 20, 5, false);
    wait_blocks(&b, BLOCKS);
    for (uint32_t n = 0; n < BLOCKS; n++) assert_int_equal(read_block(&b, n), ST_OK);
    assert_int_equal(read_block(&b, BLOCKS), ST_NOT_FOUND);
    close_row(&b);
    fake_free(&f);
}

static void flipped_bytes_are_misses_and_are_forgotten(void **state)
{
    (void)state;
    struct fake  f;
    struct world a;
    fake_open(&f);
    open_row(&a, &f, 1 << 20, 5, false);
    write_blocks(&a, 0, 14);
    close_row(&a);
    open_row(&a, &f, 1 << 20, 5, false);
    wait_blocks(&a, 14);
    f.flips = true;
    assert_int_equal(read_block(&a, 3), ST_INVALID);
    assert_int_equal(read_block(&a, 4), ST_INVALID);
    f.flips = false;
    assert_int_equal(read_block(&a, 3), ST_NOT_FOUND);
    assert_int_equal(read_block(&a, 5), ST_NOT_FOUND); /* two of an object: nothing of it is believed */
    assert_int_equal(blocks(&a), 7);
    close_row(&a);
    fake_free(&f);
}

/* A table that was changed, of another key or of another object says nothing. */
static void tables_of_others_are_not_believed(void **state)
{
    (void)state;
    struct fake  f;
    struct world a;
    fake_open(&f);
    open_row(&a, &f, 1 << 20, 5, false);
    write_blocks(&a, 0, 21);
    close_row(&a);
    open_row(&a, &f, 1 << 20, 6, false); /* another key */
    struct kv_below_stats s = { 0 };
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; s.counts.n_damaged < 3; usleep(1000)) {
        assert_true(clock_us() < end);
        turn(&a);
        kv_objects.stats(a.b, &s);
    }
    assert_int_equal(s.n_block, 0);
    assert_true(s.used_bytes > 0); /* it takes room all the same */
    close_row(&a);
    fake_free(&f);
}

static void every_byte_of_a_table_counts(void **state)
{
    (void)state;
    enum { N = 3 };
    unsigned char          *table = aligned_alloc(4096, pack_table_bytes(N));
    struct digest_key       key = { .seed = 9 };
    const struct pack_shape shape = { fingerprint, PAYLOAD, BT };
    struct pack_row         row[N] = { { .key = key_of(1) }, { .key = key_of(2), .index = 2, .begins = 1 } };
    uint32_t                n;
    struct pack_id          id = { 0x123456789abc, 0xfedcba9876543210 }, again;
    char                    name[PACK_NAME], model[PACK_MODEL], mine[PACK_MODEL];
    pack_table_make(table, &key, &shape, 42, N, row, 2);
    assert_memory_equal(pack_table_open(table, &key, &shape, 42, N, &n), row, 2 * sizeof *row);
    assert_int_equal(n, 2);
    assert_null(pack_table_open(table, &key, &shape, 43, N, &n));
    for (uint64_t i = 0; i < pack_table_bytes(N); i++) {
        table[i] ^= 1;
        assert_null(pack_table_open(table, &key, &shape, 42, N, &n));
        table[i] ^= 1;
    }
    free(table);
    for (uint32_t k = 1; k <= PACK_RECORDS_MAX; k += 97)
        assert_int_equal(pack_records(RECORD, pack_bytes(RECORD, k)), k);
    assert_int_equal(pack_records(RECORD, pack_bytes(RECORD, 5) + 1), 0);
    pack_name(&fingerprint, id, name);
    pack_model(&fingerprint, mine);
    assert_true(pack_name_parse(name, model, &again));
    assert_string_equal(model, mine);
    assert_true(again.time_ms == id.time_ms && again.seq == id.seq);
    name[40] = 'x';
    assert_false(pack_name_parse(name, model, &again));
    assert_false(pack_name_parse("notes.txt", model, &again));
}

static void the_budget_is_never_exceeded_and_the_oldest_go(void **state)
{
    (void)state;
    struct fake  f;
    struct world a;
    fake_open(&f);
    open_row(&a, &f, 5 * 65536, 5, false);
    write_blocks(&a, 0, 120);
    struct kv_below_stats s;
    kv_objects.stats(a.b, &s);
    assert_true(s.n_evicted >= 70);
    assert_true(f.most <= 5 * 65536);
    assert_int_equal(read_block(&a, 0), ST_NOT_FOUND);
    assert_int_equal(read_block(&a, 119), ST_OK);
    close_row(&a);
    assert_true(f.most <= 5 * 65536);
    fake_free(&f);
}

static void a_store_that_refuses_loses_blocks_and_nothing_else(void **state)
{
    (void)state;
    struct fake  f;
    struct world a;
    fake_open(&f);
    f.refuses_puts = true;
    open_row(&a, &f, 1 << 20, 5, false);
    write_blocks(&a, 0, 60); /* four buffers hold 28 of them */
    struct kv_below_stats s;
    kv_objects.stats(a.b, &s);
    assert_true(s.counts.n_pauses > 0);
    f.refuses_puts = false;
    write_blocks(&a, 100, 114);
    close_row(&a);
    assert_true(f.bytes > 0);
    fake_free(&f);
}

static void what_was_found_is_hidden_until_it_is_proven(void **state)
{
    (void)state;
    struct fake   f;
    struct world  a;
    struct kv_key key;
    fake_open(&f);
    open_row(&a, &f, 1 << 20, 5, true);
    write_blocks(&a, 0, 14);
    assert_int_equal(read_block(&a, 1), ST_OK); /* its own needs no proof */
    close_row(&a);
    open_row(&a, &f, 1 << 20, 5, true);
    wait_blocks(&a, 14);
    const struct kv_below_proof *p = kv_objects.proof;
    assert_int_equal(read_block(&a, 1), ST_NOT_FOUND);
    assert_true(p->unproven(a.b));
    assert_true(p->canary(a.b, &key));
    uint32_t n;
    memcpy(&n, key.b + 8, sizeof n);
    assert_int_equal(n % 5, 0); /* the first block of a prompt */
    p->believe(a.b);
    assert_false(p->unproven(a.b));
    assert_int_equal(read_block(&a, 1), ST_OK);
    assert_int_equal(kv_objects.purge(a.b), 14);
    turn(&a);
    assert_int_equal(read_block(&a, 1), ST_NOT_FOUND);
    close_row(&a);
    fake_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_one_wrote_another_reads_and_so_does_the_next_start),
        cmocka_unit_test(flipped_bytes_are_misses_and_are_forgotten),
        cmocka_unit_test(tables_of_others_are_not_believed),
        cmocka_unit_test(every_byte_of_a_table_counts),
        cmocka_unit_test(the_budget_is_never_exceeded_and_the_oldest_go),
        cmocka_unit_test(a_store_that_refuses_loses_blocks_and_nothing_else),
        cmocka_unit_test(what_was_found_is_hidden_until_it_is_proven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
