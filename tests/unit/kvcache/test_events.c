/* KV events: the bytes of a batch, and that one who reads the queue always knows which blocks there are. Over 500 lines: one
 * mirror of the queue, and what it is asked of. */
#include "base/rng.h"
#include "kvcache/device/block.h"
#include "kvcache/events/events_impl.h"
#include "kvcache/host.h"
#include "test.h"
#include <stdlib.h>

enum { BT = 4, N = 64, IDS = 40 };

/* ---- the bytes */

static struct event *event_of(enum event_kind kind, enum kv_medium medium, unsigned char hash)
{
    struct event *v = calloc(1, sizeof *v + BT * sizeof *v->ids);
    v->kind = (uint8_t)kind;
    v->medium = (uint8_t)medium;
    v->key.b[31] = hash;
    return v;
}

static void tokens_of(struct event *v, unsigned char parent, uint32_t first)
{
    v->has_tokens = true;
    v->first = !parent;
    v->parent.b[31] = parent;
    for (uint32_t i = 0; i < BT; i++) v->ids[i] = first + i;
}

static void batch_is(const struct event_form *f, struct event *const *v, uint32_t n, const char *want, size_t bytes)
{
    unsigned char out[4096];
    assert_true(events_encoded_max(n, BT) <= sizeof out);
    size_t got = events_encode(f, (const struct event *const *)v, n, out, events_encoded_max(n, BT));
    assert_int_equal(got, bytes);
    assert_memory_equal(out, want, bytes);
    for (size_t room = 0; room < bytes; room++) /* too little room is told */
        assert_int_equal(events_encode(f, (const struct event *const *)v, n, out, room), 0);
}

static void a_batch_has_the_bytes_of_both_forms(void **state)
{
    (void)state;
    struct event     *v[] = { event_of(EVENT_CLEARED, KV_MEDIUM_GPU, 0), event_of(EVENT_STORED, KV_MEDIUM_GPU, 1),
                              event_of(EVENT_STORED, KV_MEDIUM_GPU, 2), event_of(EVENT_REMOVED, KV_MEDIUM_CPU, 3),
                              event_of(EVENT_REMOVED, KV_MEDIUM_CPU, 4) };
    struct event_form f = { .block_tokens = BT, .time_s = 1.5 };
    tokens_of(v[1], 9, 100);
    tokens_of(v[2], 1, 104); /* behind the one before it: one event */
    static const char map[] = "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x93"
                              "\x81\xa4type\xb0"
                              "AllBlocksCleared"
                              "\x88\xa4type\xab"
                              "BlockStored"
                              "\xac"
                              "block_hashes\x92\x01\x02\xb1"
                              "parent_block_hash\x09"
                              "\xa9token_ids\x98\x64\x65\x66\x67\x68\x69\x6a\x6b\xaa"
                              "block_size\x04\xa7lora_id\xc0\xa6medium\xa3GPU\xa9lora_name\xc0"
                              "\x83\xa4type\xac"
                              "BlockRemoved"
                              "\xac"
                              "block_hashes\x92\x03\x04\xa6medium\xa3"
                              "CPU"
                              "\x00";
    batch_is(&f, v, 5, map, sizeof map - 1);
    f.as_array = true;
    f.rank = 2;
    static const char array[] = "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x93"
                                "\x91\xb0"
                                "AllBlocksCleared"
                                "\x98\xab"
                                "BlockStored\x92\x01\x02\x09\x98\x64\x65\x66\x67\x68\x69\x6a\x6b\x04\xc0\xa3GPU\xc0"
                                "\x93\xac"
                                "BlockRemoved\x92\x03\x04\xa3"
                                "CPU"
                                "\x02";
    batch_is(&f, v, 5, array, sizeof array - 1);
    for (int i = 0; i < 5; i++) free(v[i]);
}

static void a_hash_may_be_all_of_its_bytes_and_a_salt_shows(void **state)
{
    (void)state;
    struct event *v[] = { event_of(EVENT_STORED, KV_MEDIUM_STORAGE, 7), event_of(EVENT_STORED, KV_MEDIUM_GPU, 0x1f) };
    struct event_form f = { .block_tokens = BT, .time_s = 1.5, .as_array = true, .hash_bytes = true };
    tokens_of(v[1], 0, 1);
    v[1]->salted = true;
    static const char want[] =
        "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x92"
        "\x98\xab"
        "BlockStored\x91\xc4\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\xc0\x90\x04\xc0\xa7STORAGE\xc0"
        "\x99\xab"
        "BlockStored\x91\xc4\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x1f\xc0\x94\x01\x02\x03\x04\x04\xc0\xa3GPU\xc0"
        "\x91\x91\xb0"
        "000000000000001f"
        "\x00";
    batch_is(&f, v, 2, want, sizeof want - 1);
    free(v[0]);
    free(v[1]);
}

static void an_adapter_is_told_by_number_and_name(void **state)
{
    (void)state;
    static const char name[2][EVENTS_NAME_BYTES] = { "a", "sql" };
    struct event     *v[] = { event_of(EVENT_STORED, KV_MEDIUM_GPU, 1), event_of(EVENT_STORED, KV_MEDIUM_GPU, 2) };
    struct event_form f = { .block_tokens = BT, .time_s = 1.5, .as_array = true, .adapter = name };
    tokens_of(v[0], 9, 100);
    tokens_of(v[1], 1, 104); /* behind the one before it, but of an adapter: another event */
    v[1]->adapter = 2;
    static const char want[] = "\x93\xcb\x3f\xf8\0\0\0\0\0\0\x92"
                               "\x98\xab"
                               "BlockStored\x91\x01\x09\x94\x64\x65\x66\x67\x04\xc0\xa3GPU\xc0"
                               "\x98\xab"
                               "BlockStored\x91\x02\x01\x94\x68\x69\x6a\x6b\x04\x02\xa3GPU\xa3sql"
                               "\x00";
    batch_is(&f, v, 2, want, sizeof want - 1);
    free(v[0]);
    free(v[1]);
}

/* ---- a mirror of the queue */

struct mirror {
    struct kv_key key[KV_MEDIA][4 * N];
    uint32_t      n[KV_MEDIA], n_cleared, n_gap, n_orphan;
};

static int64_t find(const struct mirror *m, uint32_t medium, const struct kv_key *k)
{
    for (uint32_t i = 0; i < m->n[medium]; i++)
        if (kv_key_equal(&m->key[medium][i], k)) return i;
    return -1;
}

/* Reads n events, or all. */
static void follow(struct mirror *m, struct kv_events *e, uint64_t n)
{
    const struct event *v;
    for (; n-- > 0 && (v = event_queue_peek(&e->queue, 0)); event_queue_next(&e->queue, 1)) {
        int64_t at = find(m, v->medium, &v->key);
        switch ((enum event_kind)v->kind) {
        case EVENT_STORED:
            assert_int_equal(at, -1); /* no block is told twice */
            if (v->medium != KV_MEDIUM_STORAGE && !v->first) m->n_orphan += find(m, v->medium, &v->parent) < 0;
            m->key[v->medium][m->n[v->medium]++] = v->key;
            break;
        case EVENT_REMOVED:
            assert_true(at >= 0);
            m->key[v->medium][at] = m->key[v->medium][--m->n[v->medium]];
            break;
        case EVENT_CLEARED:
            memset(m->n, 0, sizeof m->n);
            m->n_cleared++;
            m->n_gap += v->gap;
            break;
        }
    }
}

struct world {
    struct kv        *kv;
    struct kv_events *e;
    struct mirror     m;
    struct kv_key     fingerprint;
};

static void open_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    struct kv_events_cfg ec = { .queue_max = 1 };
    assert_int_equal(events_create(&ec, &w->e), ST_OK);
    struct kv_cfg c = { .n_block = N,
                        .block_tokens = BT,
                        .n_seq_max = 4,
                        .seq_tokens_max = IDS,
                        .prefix_cache = true,
                        .watch = kv_events_watch(w->e) };
    assert_int_equal(kv_create(&c, &w->kv), ST_OK);
    w->fingerprint.b[0] = 7;
    struct kv_events_of of = { .kv = w->kv, .n_block = N, .block_tokens = BT, .fingerprint = w->fingerprint };
    assert_int_equal(events_begin(w->e, &of), ST_OK);
}

static void close_world(struct world *w)
{
    kv_free(w->kv);
    events_destroy(w->e);
}

/* A request for one of a few prompts that share prefixes, sometimes with a salt. */
static void request(struct world *w, uint64_t k)
{
    struct kv_copy copy[2];
    struct kv_seq  s;
    uint32_t       ids[IDS], n_copy = 0, x = rng_philox(9, 0, k).x[0], n = 8 + x % 33, fork = x >> 8 & 15;
    for (uint32_t i = 0; i < n; i++) ids[i] = i < 8 ? i : 100 + i * (fork + 1);
    assert_int_equal(kv_seq_open(w->kv, (struct kv_salt){ x >> 16 & 1, 0 }, &s), ST_OK);
    kv_seq_match(w->kv, &s, ids, n);
    assert_int_equal(kv_seq_reserve(w->kv, &s, n, copy, &n_copy), ST_OK);
    kv_seq_commit(w->kv, &s, ids, n);
    if (x >> 20 & 1) kv_seq_discard(w->kv, &s);
    kv_seq_release(w->kv, &s);
}

/* The key of a block by its own definition, from the block's path. */
static struct kv_key key_of(const struct world *w, uint32_t block)
{
    uint32_t      parent = kv_block_parent(w->kv, block);
    struct kv_key above =
        parent == KV_NONE ? kv_key_root(&w->fingerprint, kv_block_salt(w->kv, block)) : key_of(w, parent);
    return kv_key_next(&above, kv_block_ids(w->kv, block), BT);
}

static void mirror_is_true(const struct world *w)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < N; b++) {
        if (!kv_block_gen(w->kv, b)) continue;
        struct kv_key k = key_of(w, b);
        assert_true(find(&w->m, KV_MEDIUM_GPU, &k) >= 0);
        n++;
    }
    assert_int_equal(w->m.n[KV_MEDIUM_GPU], n);
}

static void a_reader_of_the_queue_knows_every_block_of_the_device(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    for (uint64_t k = 0; k < 50; k++) request(&w, k);
    kv_events_turn(w.e);
    assert_null(event_queue_peek(&w.e->queue, 0)); /* nobody listens: nothing is told */
    atomic_fetch_add(&w.e->epoch, 1);
    const uint64_t n_request = (uint64_t)test_size(3000, 1000);
    for (uint64_t k = 50; k < n_request; k++) {
        request(&w, k);
        kv_events_turn(w.e);
        follow(&w.m, w.e, UINT64_MAX);
        if (k > 60) mirror_is_true(&w);
        if (k % 500 == 0) kv_evict_all(w.kv);
    }
    assert_int_equal(w.m.n_cleared, 1);
    assert_int_equal(w.m.n_orphan, 0);
    struct kv_events_stats st;
    kv_events_stats(w.e, &st);
    assert_int_equal(st.n_dropped, 0);
    assert_true(st.n_removed > 500);
    assert_int_equal(st.n_stored - st.n_removed, w.m.n[KV_MEDIUM_GPU]);
    close_world(&w);
}

static void a_reader_that_stops_loses_events_and_has_the_truth_again_after_a_gap(void **state)
{
    (void)state;
    struct world           w;
    struct kv_events_stats st;
    uint64_t               k = 0;
    open_world(&w);
    atomic_fetch_add(&w.e->epoch, 1);
    for (uint32_t round = 1; round <= 3; round++) {
        kv_events_stats(w.e, &st);
        uint64_t before = st.n_dropped;
        do {
            request(&w, k++);
            kv_events_turn(w.e);
            kv_events_stats(w.e, &st);
        } while (st.n_dropped < before + 50); /* nobody reads */
        for (uint32_t i = 0; i < 200; i++) {  /* a slow reader, while requests go on */
            follow(&w.m, w.e, 40);
            request(&w, k++);
            kv_events_turn(w.e);
        }
        follow(&w.m, w.e, UINT64_MAX);
        mirror_is_true(&w);
        assert_int_equal(w.m.n_gap, round);
        assert_int_equal(w.m.n_cleared, 1 + round);
        assert_int_equal(w.m.n_orphan, 0);
        assert_int_equal(kv_events_sleep_us(w.e), -1); /* all is told */
    }
    close_world(&w);
}

static void a_socket_that_opens_again_has_everything_told_anew(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    for (uint64_t k = 0; k < 400; k++) {
        if (k % 100 == 50) atomic_fetch_add(&w.e->epoch, 1); /* opens, closes, ... */
        request(&w, k);
        kv_events_turn(w.e);
        if (k % 200 < 100 || k % 200 == 150) follow(&w.m, w.e, UINT64_MAX);
        if (k % 200 > 60 && k % 200 < 100) mirror_is_true(&w);
        if (k % 200 > 150) assert_null(event_queue_peek(&w.e->queue, 0));
    }
    assert_int_equal(w.m.n_cleared, 2);
    assert_int_equal(w.m.n_gap, 0);
    close_world(&w);
}

/* ---- the host */

/* A piece of the window's block beside the block with this key. */
static void piece_becomes_ready(struct kv_host *h, const struct kv_key *fingerprint, const struct kv_key *block,
                                const uint32_t *ids)
{
    struct digest_key dk = { 0 };
    struct kv_key     key = kv_key_window(block, 1);
    if (slot_find(h, &key) != SLOT_NONE) return;
    int32_t                s = slot_take(h, &key);
    struct kv_record_facts facts = { .fingerprint = fingerprint,
                                     .key = &key,
                                     .parent = block,
                                     .ids = ids,
                                     .block_tokens = BT,
                                     .payload_bytes = 64,
                                     .window = true };
    kv_record_make(slot_page(h, s), &dk, &facts);
    slot_ready(h, s, facts.payload);
}

static void slot_becomes_ready(struct kv_host *h, const struct kv_key *fingerprint, const uint32_t *ids, uint32_t n)
{
    struct digest_key dk = { 0 };
    struct kv_key     at = kv_key_root(fingerprint, (struct kv_salt){ 0, 0 }), parent = { { 0 } };
    for (uint32_t i = 0; i < n; i++) {
        struct kv_key key = kv_key_next(&at, ids + (size_t)i * BT, BT);
        if (i == n - 1 && slot_find(h, &key) == SLOT_NONE) {
            int32_t                s = slot_take(h, &key);
            struct kv_record_facts facts = { .fingerprint = fingerprint,
                                             .key = &key,
                                             .parent = &parent,
                                             .ids = ids + (size_t)i * BT,
                                             .block_tokens = BT,
                                             .payload_bytes = 64 };
            kv_record_make(slot_page(h, s), &dk, &facts);
            slot_ready(h, s, facts.payload);
        }
        parent = at = key;
    }
    if (n % 3 == 0) piece_becomes_ready(h, fingerprint, &at, ids + (size_t)(n - 1) * BT);
}

static void a_reader_of_the_queue_knows_every_slot_of_the_host(void **state)
{
    (void)state;
    enum { SLOTS = 24 };
    struct world   w;
    struct kv_host h = { 0 };
    uint32_t       ids[IDS], n_piece_seen = 0;
    open_world(&w);
    assert_int_equal(kv_host_init(&h, w.kv, SLOTS, kv_record_bytes(64), 4), ST_OK);
    assert_int_equal(kv_host_map(&h), ST_OK);
    assert_int_equal(kv_events_host(w.e, &h), ST_OK);
    for (uint64_t k = 0; k < 2000; k++) {
        uint32_t x = rng_philox(4, 0, k).x[0], n = 1 + x % 6;
        if (k == 30) atomic_fetch_add(&w.e->epoch, 1);
        for (uint32_t i = 0; i < n * BT; i++) ids[i] = (x >> 8 & 7) * 100 + i;
        for (uint32_t i = 1; i <= n; i++) slot_becomes_ready(&h, &w.fingerprint, ids, i);
        kv_events_turn(w.e);
        follow(&w.m, w.e, UINT64_MAX);
        if (k < 40) continue;
        uint32_t n_piece = 0;
        for (int32_t i = 0; i < SLOTS; i++) {
            if (h.slot[i].state != SLOT_READY) continue;
            bool piece = kv_record_of(slot_page(&h, i))->magic[5] == 'W';
            n_piece += piece; /* of which nothing is told */
            assert_int_equal(find(&w.m, KV_MEDIUM_CPU, &h.slot[i].key) >= 0, !piece);
        }
        assert_int_equal(w.m.n[KV_MEDIUM_CPU], h.n_ready - n_piece);
        n_piece_seen += n_piece;
    }
    assert_true(h.n_evicted > 100 && n_piece_seen > 100);
    kv_events_host(w.e, NULL);
    kv_host_close(&h);
    close_world(&w);
}

/* ---- blocks that come in any order */

struct chain_of {
    struct kv_key key[6], parent[6];
    uint32_t      ids[6 * BT];
    int32_t       slot[6];
    uint32_t      n;
};

/* Slots for n blocks, of which none has come; those before `from` are another chain's. */
static void take_chain(struct kv_host *h, const struct kv_key *fingerprint, struct chain_of *c, uint32_t tail,
                       uint32_t from)
{
    struct kv_key at = kv_key_root(fingerprint, (struct kv_salt){ 0, 0 }), parent = { { 0 } };
    for (uint32_t i = 0; i < c->n; i++) {
        for (uint32_t k = 0; k < BT; k++) c->ids[i * BT + k] = (i < from ? 0 : tail) * 100 + i * BT + k;
        c->key[i] = kv_key_next(&at, c->ids + (size_t)i * BT, BT);
        c->parent[i] = parent;
        parent = at = c->key[i];
        c->slot[i] = slot_find(h, &c->key[i]);
        if (c->slot[i] == SLOT_NONE) c->slot[i] = slot_take(h, &c->key[i]);
        assert_true(c->slot[i] != SLOT_NONE);
    }
}

static void comes(struct kv_host *h, const struct kv_key *fingerprint, const struct chain_of *c, uint32_t i)
{
    struct digest_key      dk = { 0 };
    struct kv_record_facts facts = { .fingerprint = fingerprint,
                                     .key = &c->key[i],
                                     .parent = &c->parent[i],
                                     .ids = c->ids + (size_t)i * BT,
                                     .block_tokens = BT,
                                     .payload_bytes = 64 };
    if (h->slot[c->slot[i]].state == SLOT_READY) return;
    kv_record_make(slot_page(h, c->slot[i]), &dk, &facts);
    slot_ready(h, c->slot[i], facts.payload);
}

static void open_host(struct world *w, struct kv_host *h)
{
    open_world(w);
    memset(h, 0, sizeof *h);
    assert_int_equal(kv_host_init(h, w->kv, 2 * N, kv_record_bytes(64), 4), ST_OK);
    assert_int_equal(kv_host_map(h), ST_OK);
    assert_int_equal(kv_events_host(w->e, h), ST_OK);
    atomic_fetch_add(&w->e->epoch, 1);
    kv_events_turn(w->e);
}
static void close_host(struct world *w, struct kv_host *h)
{
    kv_events_host(w->e, NULL);
    kv_host_close(h);
    close_world(w);
}

/* Loads end in any order. Each block is told behind the one before it, and all are told in the end; some turns tell
 * everything anew. */
static void a_block_of_the_host_is_told_behind_the_one_before_it(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct world    w;
        struct kv_host  h;
        struct chain_of c[4];
        uint32_t        left[24], n_left = 0;
        open_host(&w, &h);
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t x = rng_philox(seed, 1, k).x[0];
            c[k].n = 1 + x % 6;
            take_chain(&h, &w.fingerprint, &c[k], 1 + k, x >> 8 & 3); /* they share beginnings */
            for (uint32_t i = 0; i < c[k].n; i++) left[n_left++] = k * 6 + i;
        }
        for (uint64_t step = 0; n_left; step++) {
            uint32_t at = rng_philox(seed, 2, step).x[0] % n_left, one = left[at];
            left[at] = left[--n_left];
            comes(&h, &w.fingerprint, &c[one / 6], one % 6);
            if (step % 5 == 4 && seed % 3 == 0) atomic_fetch_add(&w.e->epoch, 2);
            if (step % 2) kv_events_turn(w.e);
            follow(&w.m, w.e, UINT64_MAX);
            assert_int_equal(w.m.n_orphan, 0);
        }
        for (int i = 0; i < 4; i++) kv_events_turn(w.e);
        follow(&w.m, w.e, UINT64_MAX);
        assert_int_equal(w.m.n_orphan, 0);
        assert_int_equal(w.m.n[KV_MEDIUM_CPU], h.n_ready);
        close_host(&w, &h);
    }
}

static void a_block_that_does_not_come_keeps_none_back(void **state)
{
    (void)state;
    struct world    w;
    struct kv_host  h;
    struct chain_of c = { .n = 5 };
    open_host(&w, &h);
    take_chain(&h, &w.fingerprint, &c, 1, 0);
    comes(&h, &w.fingerprint, &c, 4);
    comes(&h, &w.fingerprint, &c, 2);
    comes(&h, &w.fingerprint, &c, 1);
    kv_events_turn(w.e);
    follow(&w.m, w.e, UINT64_MAX);
    assert_int_equal(w.m.n[KV_MEDIUM_CPU], 0);
    slot_drop(&h, c.slot[4]); /* what waits may go again, and was never told */
    slot_drop(&h, c.slot[0]); /* this one does not come: two that have waited are told, the second behind the first */
    kv_events_turn(w.e);
    follow(&w.m, w.e, UINT64_MAX);
    assert_int_equal(w.m.n[KV_MEDIUM_CPU], 2);
    assert_int_equal(w.m.n_orphan, 1);
    comes(&h, &w.fingerprint, &c, 3);
    kv_events_turn(w.e);
    follow(&w.m, w.e, UINT64_MAX);
    assert_int_equal(w.m.n[KV_MEDIUM_CPU], 3);
    assert_int_equal(w.m.n_orphan, 1);
    close_host(&w, &h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_has_the_bytes_of_both_forms),
        cmocka_unit_test(a_hash_may_be_all_of_its_bytes_and_a_salt_shows),
        cmocka_unit_test(an_adapter_is_told_by_number_and_name),
        cmocka_unit_test(a_reader_of_the_queue_knows_every_block_of_the_device),
        cmocka_unit_test(a_reader_that_stops_loses_events_and_has_the_truth_again_after_a_gap),
        cmocka_unit_test(a_socket_that_opens_again_has_everything_told_anew),
        cmocka_unit_test(a_reader_of_the_queue_knows_every_slot_of_the_host),
        cmocka_unit_test(a_block_of_the_host_is_told_behind_the_one_before_it),
        cmocka_unit_test(a_block_that_does_not_come_keeps_none_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
