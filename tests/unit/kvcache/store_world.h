/* store_world: a store in a folder of its own, with lanes, and blocks whose content follows from their number. */
#pragma once
#include "kvcache/folder/store.h"
#include "kvcache/folder/store_file.h"
#include "kvcache/folder/store_models.h"
#include "base/clock.h"
#include "test.h"
#include "transfer/lanes.h"
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

enum { PAYLOAD = 10000, TOKENS = 16, RECORD = 4096 + 12288, SEGMENT = 256 << 10, SLOTS = 8 };

struct store_world {
    char              dir[64];
    struct xfer      *x;
    struct kv_store  *s;
    unsigned char    *slab;
    uint32_t          seg;
    struct kv_key     fingerprint;
    struct digest_key dk, old_dk;
    uint64_t          cap;
    unsigned char     secret[SEAL_SECRET], old_secret[SEAL_SECRET];
    bool              with_old; /* old_dk, and old_secret where it is sealed */
    bool              sealed, ephemeral, shared;
    uint32_t          scan_us, grace_us, n_store;
    char              name[40]; /* in a shared folder: each world is a server of its own */
    char              err[300];
};

static uint64_t        world_us; /* 0: the real clock */
static inline uint64_t world_clock(void) { return world_us ? world_us : clock_us(); }

static bool        world_no_uring;
static const char *world_mac; /* the secret of the next world's MAC key; NULL: checksums */
static inline void world_make(struct store_world *w)
{
    struct xfer_cfg xc = { .jobs_max = 64 };
    *w = (struct store_world){ .dir = "/tmp/spillway-store-XXXXXX", .cap = 8 * SEGMENT };
    assert_non_null(mkdtemp(w->dir));
    static uint32_t n_world;
    snprintf(w->name, sizeof w->name, "world-%d-%u", (int)getpid(), n_world++);
    digest_key_init(&w->dk, world_mac, world_mac ? strlen(world_mac) : 0, 99);
    xc.key = w->dk;
    assert_int_equal(xfer_create(&xc, &w->x), ST_OK);
    struct xfer_lane *lane = lane_nvme_create(8, 2, world_no_uring);
    assert_int_equal(lane_nvme_seals(lane, RECORD), ST_OK);
    assert_int_equal(xfer_lane_add(w->x, lane), ST_OK);
    assert_int_equal(posix_memalign((void **)&w->slab, 4096, SLOTS * RECORD), 0);
    memset(w->slab, 0, SLOTS * RECORD);
    assert_int_equal(
        xfer_seg_add(w->x, &(struct xfer_seg){ .kind = XFER_HOST, .base = w->slab, .bytes = SLOTS * RECORD }, &w->seg),
        ST_OK);
    assert_int_equal(xfer_start(w->x), ST_OK);
    struct kv_identity id = { .block_tokens = TOKENS, .block_bytes = PAYLOAD, .layout = KV_LAYOUT };
    w->fingerprint = kv_fingerprint(&id);
}

static inline enum status world_open(struct store_world *w)
{
    struct kv_store_cfg c = { .dir = w->dir,
                              .cap_bytes = w->cap,
                              .segment_bytes = SEGMENT,
                              .payload_bytes = PAYLOAD,
                              .block_tokens = TOKENS,
                              .fingerprint = w->fingerprint,
                              .key = w->dk,
                              .xfer = w->x,
                              .retry_us = 1000,
                              .secret = w->sealed ? w->secret : NULL,
                              .ephemeral = w->ephemeral,
                              .old_key = w->with_old ? &w->old_dk : NULL,
                              .old_secret = w->with_old && w->sealed ? w->old_secret : NULL,
                              .shared = w->shared,
                              .name = w->name,
                              .scan_us = w->scan_us,
                              .grace_us = w->grace_us,
                              .n_store = w->n_store,
                              .clock = world_clock };
    return kv_store_open(&c, &w->s, w->err, sizeof w->err);
}

/* Of a segment of this fingerprint, in a folder that is not shared. */
static inline void world_path(const struct store_world *w, uint64_t seq, char *out, size_t bytes)
{
    char sub[MODELS_NAME], name[32];
    models_name(sub, sizeof sub, &w->fingerprint);
    store_name(name, sizeof name, seq);
    snprintf(out, bytes, "%s/%s/%s", w->dir, sub, name);
}

static inline void world_turn(struct store_world *w)
{
    kv_store_turn(w->s);
    assert_int_equal(kv_store_check(w->s), ST_OK);
    struct kv_store_stats st;
    kv_store_stats(w->s, &st);
    assert_true(st.used_bytes <= w->cap);
}
/* Until the thread has read what is there and has a segment ready (want_room). */
static inline void world_ready(struct store_world *w, bool want_room)
{
    struct kv_store_stats st;
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; clock_us() < end; usleep(200)) {
        world_turn(w);
        kv_store_stats(w->s, &st);
        if (!st.recovering && (!want_room || st.n_segment > 0)) break;
    }
    assert_false(st.recovering);
}

/* Until the store says why it is degraded, in words that hold these; NULL: until it is not. */
static inline void world_degraded(struct store_world *w, const char *words)
{
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u;; usleep(200)) {
        const char           *is = kv_store_degraded(w->s);
        struct kv_store_stats st;
        kv_store_stats(w->s, &st);
        if (!st.recovering && (words ? is && strstr(is, words) : !is)) return;
        if (clock_us() > end) fail_msg("never: %s; it says %s", words ? words : "in use", is ? is : "nothing");
        world_turn(w);
    }
}

static inline int rm_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    (void)s;
    (void)flag;
    (void)f;
    return remove(path);
}
static inline void world_free(struct store_world *w)
{
    kv_store_close(w->s);
    xfer_free(w->x);
    free(w->slab);
    nftw(w->dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- blocks by number */

static inline void block_ids(uint32_t n, uint32_t *ids)
{
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = n * 131 + i;
}
static inline struct kv_key block_key(const struct store_world *w, uint32_t n)
{
    uint32_t ids[TOKENS];
    block_ids(n, ids);
    struct kv_key root = kv_key_root(&w->fingerprint, (struct kv_salt){ 1, 2 });
    return kv_key_next(&root, ids, TOKENS);
}
static inline unsigned char block_byte(uint32_t n, uint32_t i)
{
    return (unsigned char)(n * 17 + i * (n % 13 + 1) + i / 256);
}

static inline struct xfer_done world_wait(struct store_world *w)
{
    struct xfer_done d;
    while (!xfer_poll(w->x, &d, 1)) {
        if (!xfer_arm(w->x)) continue;
        struct pollfd p = { .fd = xfer_fd(w->x), .events = POLLIN };
        assert_int_equal(poll(&p, 1, PATIENCE_S * 1000), 1);
        xfer_ack(w->x);
    }
    return d;
}

static inline enum status world_put(struct store_world *w, uint32_t n)
{
    unsigned char  *slot = w->slab;
    uint32_t        ids[TOKENS];
    struct kv_key   root = kv_key_root(&w->fingerprint, (struct kv_salt){ 1, 2 }), key = block_key(w, n);
    struct kv_place place;
    block_ids(n, ids);
    for (uint32_t i = 0; i < PAYLOAD; i++) slot[KV_RECORD_HEAD + i] = block_byte(n, i);
    kv_record_make(slot, &w->dk,
                   &(struct kv_record_facts){ .fingerprint = &w->fingerprint,
                                              .key = &key,
                                              .parent = &root,
                                              .ids = ids,
                                              .block_tokens = TOKENS,
                                              .payload_bytes = PAYLOAD,
                                              .payload = digest_of(&w->dk, slot + KV_RECORD_HEAD, PAYLOAD) });
    enum status st =
        kv_store_write(w->s, &(struct kv_write){ .key = &key, .host_seg = w->seg, .page = slot, .cookie = n }, &place);
    if (st) return st;
    struct xfer_done d = world_wait(w);
    assert_int_equal(d.cookie, n);
    kv_store_write_done(w->s, place, d.st);
    return d.st;
}
/* Puts, and lets the thread work until there is room; ST_AGAIN only when there never is any. */
static inline enum status world_put_patient(struct store_world *w, uint32_t n)
{
    enum status st = world_put(w, n);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; st == ST_AGAIN && clock_us() < end;) {
        usleep(200);
        world_turn(w);
        st = world_put(w, n);
    }
    return st;
}

/* ST_OK: the very bytes. ST_NOT_FOUND: a miss. ST_INVALID: doubted, which is a miss too. Wrong bytes fail the test. */
static inline enum status world_get(struct store_world *w, uint32_t n)
{
    unsigned char  *slot = w->slab + RECORD;
    uint32_t        ids[TOKENS];
    struct kv_key   key = block_key(w, n);
    struct kv_place place;
    memset(slot, 0xee, RECORD);
    struct kv_read r = { .key = &key, .host_seg = w->seg, .host_off = RECORD, .prio = XFER_LOAD, .cookie = n };
    enum status    st = kv_store_read(w->s, &r, &place, NULL);
    if (st) return st;
    struct xfer_done d = world_wait(w);
    st = d.st;
    block_ids(n, ids);
    const struct digest_key *dk = place.old_key ? &w->old_dk : &w->dk;
    if (st == ST_OK && kv_record_check(slot, dk, &w->fingerprint, &key, ids, TOKENS, PAYLOAD, place.seq))
        st = ST_INVALID;
    kv_store_read_done(w->s, place, st != ST_OK);
    if (st == ST_OK && place.old_key) { /* from here on it is a record of the new key */
        kv_record_rekey(slot, &w->dk, d.digest);
        assert_int_equal(kv_record_check(slot, &w->dk, &w->fingerprint, &key, ids, TOKENS, PAYLOAD, place.seq),
                         KV_SURE);
        assert_true(digest_equal(kv_record_of(slot)->payload, digest_of(&w->dk, slot + KV_RECORD_HEAD, PAYLOAD)));
    }
    for (uint32_t i = 0; st == ST_OK && i < PAYLOAD; i++)
        if (slot[KV_RECORD_HEAD + i] != block_byte(n, i)) fail_msg("block %u: byte %u is wrong", n, i);
    return st;
}
