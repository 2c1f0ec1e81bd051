/* What lies on the host or in a folder is damaged in every way there is, block by block, and read back: test_damage
 * [faults [seed]]. No block that is served may hold other bytes than its tokens say, and each damaged one that was
 * looked at must be counted, as the doubt that it is. The lanes and the store are those that serve; the clock stands,
 * so that nothing is given up. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "kvcache/folder/store_file.h"
#include "kvcache/folder/store_models.h"
#include "kvcache/tier_impl.h"
#include "test.h"
#include "transfer/lanes.h"
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

enum {
    BT = 4,
    BLOCK = 1000,
    N_BLOCK = 64,
    PATH = 6,
    TOKENS = PATH * BT + 1,
    FAMILIES = 5,
    SLOTS = 48,
    STORE_BYTES = 8 << 20
};

static uint64_t n_want = 10000, seed = 1, n_drawn;
static uint32_t draw(uint32_t n) { return rng_philox(seed, 3, n_drawn++).x[0] % n; }
static uint64_t still(void) { return 1000000; }

static struct {
    struct xfer        *x;
    struct kv          *kv;
    struct kv_tiers    *t;
    unsigned char      *dev;
    uint32_t            dev_seg;
    bool                store;
    char                dir[64];
    struct kv_tiers_cfg tc;
} w;

/* ---- prompts: families 0 and 1 are the same tokens of two tenants */

static struct kv_salt salt_of(uint32_t f) { return (struct kv_salt){ f == 1, 9 }; }
static void           ids_of(uint32_t f, uint32_t *ids)
{
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (f < 2 ? 0 : f) * 1000 + i;
}
static struct kv_key key_of(uint32_t f, uint32_t block, struct kv_key *parent_out)
{
    uint32_t ids[TOKENS];
    ids_of(f, ids);
    struct kv_key k = kv_key_root(&w.t->fingerprint, salt_of(f));
    for (uint32_t b = 0; b <= block; b++) {
        if (parent_out) *parent_out = k;
        k = kv_key_next(&k, ids + b * BT, BT);
    }
    return k;
}
static void content(uint32_t f, uint32_t block, unsigned char *out)
{
    uint64_t h = hash_u64(f * 64 + block);
    for (uint32_t i = 0; i < BLOCK; i++) out[i] = (unsigned char)((h >> i % 57) + i * (h & 15));
}

/* ---- the world */

static void tiers_open(void)
{
    char err[300];
    if (kv_tiers_open(&w.tc, &w.t, err, sizeof err)) fail_msg("%s", err);
}
static void world_open(bool store)
{
    memset(&w, 0, sizeof w);
    w.store = store;
    snprintf(w.dir, sizeof w.dir, "%s/spillway-damage-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    struct xfer_cfg xc = { .jobs_max = 512, .clock = still, .pumped = true };
    xc.key.seed = 5;
    assert_int_equal(xfer_create(&xc, &w.x), ST_OK);
    assert_int_equal(xfer_lane_add(w.x, lane_dev_create()), ST_OK);
    if (store) assert_int_equal(xfer_lane_add(w.x, lane_nvme_create(8, 1, false)), ST_OK);
    w.dev = calloc(N_BLOCK, BLOCK);
    struct xfer_seg seg = { .kind = XFER_DEVICE, .base = w.dev, .bytes = N_BLOCK * BLOCK };
    assert_int_equal(xfer_seg_add(w.x, &seg, &w.dev_seg), ST_OK);
    assert_int_equal(xfer_start(w.x), ST_OK);
    struct kv_cfg kc = { .n_block = N_BLOCK,
                         .block_tokens = BT,
                         .n_seq_max = 4 + KV_LOADS_MAX + KV_OFFERS_MAX,
                         .seq_tokens_max = 2 * TOKENS,
                         .prefix_cache = true };
    assert_int_equal(kv_create(&kc, &w.kv), ST_OK);
    w.tc = (struct kv_tiers_cfg){ .kv = w.kv,
                                  .xfer = w.x,
                                  .dev_seg = w.dev_seg,
                                  .block_bytes = BLOCK,
                                  .host_bytes = SLOTS * kv_record_bytes(BLOCK),
                                  .n_block = N_BLOCK,
                                  .block_tokens = BT,
                                  .seq_tokens_max = 2 * TOKENS,
                                  .load_min_tokens = BT,
                                  .keep_hits = 1,
                                  .ident = { .block_bytes = BLOCK, .block_tokens = BT, .layout = KV_LAYOUT },
                                  .clock = still };
    w.tc.key.seed = 5;
    if (store) assert_non_null(mkdtemp(w.dir));
    if (store) {
        w.tc.n_store = 1;
        w.tc.store[0].dir = w.dir;
        w.tc.store[0].bytes = STORE_BYTES;
    }
    tiers_open();
}
static int rm_one(const char *path, const struct stat *s, int flag, struct FTW *f)
{
    (void)s;
    (void)flag;
    (void)f;
    return remove(path);
}
static void world_close(void)
{
    kv_tiers_close(w.t, 0);
    kv_free(w.kv);
    xfer_free(w.x);
    free(w.dev);
    if (w.store) nftw(w.dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void rest(void)
{
    do kv_tiers_turn(w.t);
    while (kv_tiers_busy(w.t));
}
static uint64_t n_wrong, n_served;

/* The prompt comes, finds what it finds, computes the rest and leaves. Returns the tokens that it found: nothing is on
 * the device. */
static uint32_t run(uint32_t f)
{
    uint32_t         ids[TOKENS], n_copy = 0;
    struct kv_want   want = { 0 };
    struct kv_cursor at = { 0 };
    struct kv_copy   copy[1];
    struct kv_seq    s;
    ids_of(f, ids);
    kv_evict_all(w.kv);
    while (kv_peek_more(w.kv, salt_of(f), ids, TOKENS, &at),
           !kv_tiers_ask(w.t, &want, salt_of(f), ids, TOKENS, &at, 1e6))
        kv_tiers_turn(w.t);
    assert_int_equal(kv_seq_open(w.kv, salt_of(f), &s), ST_OK);
    uint32_t hit = kv_seq_match(w.kv, &s, ids, TOKENS);
    assert_int_equal(kv_seq_reserve(w.kv, &s, TOKENS, copy, &n_copy), ST_OK);
    kv_tiers_forget(w.t, &want);
    for (uint32_t b = 0; b < PATH; b++) {
        unsigned char is[BLOCK], *block = w.dev + s.block[b] * BLOCK;
        content(f, b, is);
        if (b < hit / BT) {
            n_served++;
            n_wrong += memcmp(block, is, BLOCK) != 0;
        }
        memcpy(block, is, BLOCK);
    }
    kv_seq_commit(w.kv, &s, ids, TOKENS);
    kv_tiers_offer(w.t, &s, TOKENS);
    kv_seq_release(w.kv, &s);
    rest();
    return hit;
}

/* ---- the folder: everything of the host goes there, and the host forgets it */

static void to_store(void)
{
    for (int32_t i = 0; i < SLOTS; i++) {
        struct kv_place place;
        if (w.t->host.slot[i].state != SLOT_READY) continue;
        for (uint32_t k = 0; below_find(w.t, &w.t->host.slot[i].key, &place) < 0; k++) {
            assert_true(k < 1000000);
            if (!down_write_one(w.t, i)) usleep(20); /* a file is being made */
            rest();
        }
    }
    for (int32_t i = 0; i < SLOTS; i++)
        if (w.t->host.slot[i].state == SLOT_READY) slot_drop(&w.t->host, i);
}

/* Where each block lies: segments are numbered by the store, its files by seq; both stand in what has just been written
 * or read. */
static int  file_of_segment[1024];
static void files_close(void)
{
    for (int i = 0; i < 1024; i++)
        if (file_of_segment[i] > 0) {
            close(file_of_segment[i]);
            file_of_segment[i] = 0;
        }
}
static bool record_at(int fd, uint32_t index, const struct kv_key *key, unsigned char *page)
{
    struct stat st;
    uint64_t    off = STORE_PAGE + index * w.t->host.stride;
    if (fstat(fd, &st) || st.st_nlink == 0) return false;
    return pread(fd, page, w.t->host.stride, (off_t)off) == (ssize_t)w.t->host.stride &&
           kv_key_equal(&kv_record_of(page)->key, key);
}
static int file_with(uint32_t segment, uint32_t index, const struct kv_key *key, unsigned char *page)
{
    if (file_of_segment[segment] > 0 && record_at(file_of_segment[segment], index, key, page))
        return file_of_segment[segment];
    if (file_of_segment[segment] > 0) {
        close(file_of_segment[segment]);
        file_of_segment[segment] = 0;
    }
    static uint64_t newest = 64;
    for (uint64_t seq = newest + 64; seq > 0; seq--) {
        char sub[MODELS_NAME], name[32], path[256];
        models_name(sub, sizeof sub, &w.t->fingerprint);
        store_name(name, sizeof name, seq);
        snprintf(path, sizeof path, "%s/%s/%s", w.dir, sub, name);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0) continue;
        if (seq > newest) newest = seq;
        if (record_at(fd, index, key, page)) return file_of_segment[segment] = fd;
        close(fd);
        if (seq + 1000 < newest) break;
    }
    fail_msg("a block that the store has lies in no file");
    return -1;
}

/* ---- one record, wherever it lies */

struct spot {
    unsigned char *page; /* [stride] */
    int            fd;   /* -1: on the host */
    uint64_t       off;
};
static unsigned char room[2][65536];
static struct spot   spot_of(uint32_t f, uint32_t b, int which)
{
    struct kv_key   key = key_of(f, b, NULL);
    struct kv_place place;
    if (!w.store) {
        int32_t slot = slot_find(&w.t->host, &key);
        assert_true(slot >= 0 && w.t->host.slot[slot].state == SLOT_READY);
        return (struct spot){ slot_page(&w.t->host, slot), -1, 0 };
    }
    assert_true(below_find(w.t, &key, &place) >= 0);
    int fd = file_with(place.segment, place.index, &key, room[which]);
    return (struct spot){ room[which], fd, STORE_PAGE + place.index * w.t->host.stride };
}
static void spot_write(const struct spot *s)
{
    if (s->fd >= 0) assert_int_equal(pwrite(s->fd, s->page, w.t->host.stride, (off_t)s->off), w.t->host.stride);
}

enum kind {
    FLIP_PAYLOAD,
    FLIP_HEAD,
    SWAP,
    OTHER_PAYLOAD,
    FORGED_KEY,
    FORGED_TOKENS,
    FORGED_MODEL,
    OTHER_TENANT,
    TORN,
    FORGED_PAYLOAD,
    OLD_EPOCH,
    KINDS
};
static const char *const kind_name[KINDS] = { "bit in payload", "bit in head",    "swapped",      "payload of another",
                                              "forged key",     "forged tokens",  "forged model", "another tenant's",
                                              "torn",           "forged payload", "old epoch" };

/* A record with digests that are right, saying something else. */
static void forge(unsigned char *page, enum kind kind, uint32_t f, uint32_t b)
{
    struct kv_key parent, key = key_of(f, b, &parent), print = w.t->fingerprint;
    struct digest payload = kv_record_of(page)->payload;
    uint32_t      ids[TOKENS];
    ids_of(f, ids);
    if (kind == FORGED_KEY) key = key_of((f + 2) % FAMILIES, draw(PATH), &parent);
    if (kind == FORGED_TOKENS) ids[b * BT + draw(BT)] ^= 1u << draw(16);
    if (kind == FORGED_MODEL || kind == OLD_EPOCH) print.b[draw(32)] ^= (unsigned char)(1 << draw(8));
    if (kind == FORGED_PAYLOAD) {
        page[KV_RECORD_HEAD + draw(BLOCK)] ^= (unsigned char)(1 << draw(8));
        payload = digest_of(&w.t->cfg.key, page + KV_RECORD_HEAD, BLOCK);
    }
    kv_record_make(page, &w.t->cfg.key,
                   &(struct kv_record_facts){ .fingerprint = &print,
                                              .key = &key,
                                              .parent = &parent,
                                              .ids = ids + b * BT,
                                              .block_tokens = BT,
                                              .payload_bytes = BLOCK,
                                              .seq = kv_record_of(page)->seq,
                                              .payload = payload });
}

static void swap(unsigned char *a, unsigned char *b)
{
    static unsigned char c[65536];
    memcpy(c, a, w.t->host.stride);
    memcpy(a, b, w.t->host.stride);
    memcpy(b, c, w.t->host.stride);
}

/* Damages block b of f. true: the other spot is damaged as well. */
static bool damage(enum kind kind, uint32_t f, uint32_t b, uint32_t g, uint32_t c)
{
    struct spot    s = spot_of(f, b, 0), o = spot_of(g, c, 1);
    unsigned char *p = s.page;
    switch (kind) {
    case FLIP_PAYLOAD: p[KV_RECORD_HEAD + draw(BLOCK)] ^= (unsigned char)(1 << draw(8)); break;
    case FLIP_HEAD: p[draw(sizeof(struct kv_record))] ^= (unsigned char)(1 << draw(8)); break;
    case SWAP: swap(p, o.page); break;
    case OTHER_PAYLOAD: memcpy(p + KV_RECORD_HEAD, o.page + KV_RECORD_HEAD, BLOCK); break;
    case OTHER_TENANT: memcpy(p, o.page, w.t->host.stride); break;
    case TORN: { /* some of it has not been written */
        uint32_t      at = draw(2) ? draw(sizeof(struct kv_record)) : KV_RECORD_HEAD + draw(BLOCK - 400);
        unsigned char was[400];
        memcpy(was, p + at, sizeof was);
        memset(p + at, 0, sizeof was);
        if (!memcmp(was, p + at, sizeof was)) p[at] = 0xbd;
        break;
    }
    case FORGED_KEY:
    case FORGED_TOKENS:
    case FORGED_MODEL:
    case OLD_EPOCH:
    case FORGED_PAYLOAD: forge(p, kind, f, b); break;
    case KINDS: break;
    }
    spot_write(&s);
    if (kind == SWAP) spot_write(&o);
    return kind == SWAP;
}

static uint64_t doubts(uint64_t *of)
{
    struct kv_tiers_stats st;
    uint64_t              n = 0;
    kv_tiers_stats(w.t, &st);
    for (int i = 0; i < KV_DOUBTS; i++) n += of[i] = st.doubt[i];
    return n;
}

/* All blocks of f are below, in one piece. */
static void whole(uint32_t f)
{
    struct kv_place place;
    for (uint32_t b = 0; b < PATH; b++) {
        struct kv_key k = key_of(f, b, NULL);
        if (slot_find(&w.t->host, &k) != SLOT_NONE || (w.store && below_find(w.t, &k, &place) >= 0)) continue;
        run(f);
        if (w.store) to_store();
        b = (uint32_t)-1;
    }
}

/* Returns how many were counted: 1, or both where two lie on one path and were read side by side. */
static uint64_t look(uint32_t f, uint32_t b, enum kind kind, bool both)
{
    uint64_t was[KV_DOUBTS], is[KV_DOUBTS], before = doubts(was);
    uint32_t hit = run(f);
    uint64_t n = doubts(is) - before;
    if (hit != b * BT) fail_msg("%s, block %u of %u: %u tokens were served", kind_name[kind], b, f, hit);
    if (n != 1 && !(both && n == 2))
        fail_msg("%s, block %u of %u: counted %u times", kind_name[kind], b, f, (unsigned)n);
    if (kind == FORGED_TOKENS) assert_true(is[KV_DOUBT_TOKENS] > was[KV_DOUBT_TOKENS]);
    if (kind == FORGED_MODEL) assert_true(is[KV_DOUBT_FINGERPRINT] > was[KV_DOUBT_FINGERPRINT]);
    if (kind == FLIP_HEAD) assert_true(is[KV_DOUBT_HEAD] > was[KV_DOUBT_HEAD]);
    if (kind == FORGED_KEY || (!w.store && (kind == SWAP || kind == OTHER_TENANT)))
        assert_true(is[KV_DOUBT_KEY] > was[KV_DOUBT_KEY]);
    if (kind == FLIP_PAYLOAD || kind == OTHER_PAYLOAD || kind == FORGED_PAYLOAD)
        assert_true(is[KV_DOUBT_PAYLOAD] > was[KV_DOUBT_PAYLOAD]);
    if (w.store) to_store();
    return n;
}

static void storm(bool store, uint64_t n_fault)
{
    uint64_t n = 0, n_counted = 0, t0 = clock_us();
    n_wrong = n_served = 0;
    world_open(store);
    for (uint32_t f = 0; f < FAMILIES; f++) whole(f);
    while (n < n_fault) {
        enum kind kind = (enum kind)draw(KINDS);
        uint32_t  f = draw(FAMILIES), b = draw(PATH), g = draw(FAMILIES), c = draw(PATH);
        if (kind == OTHER_TENANT) {
            f = draw(2);
            g = 1 - f;
            c = b;
        }
        if (f == g && b == c) continue;
        whole(f);
        whole(g);
        whole(f);
        bool two = damage(kind, f, b, g, c);
        /* of two on one path the first hides the second: it is looked at once the first is whole again */
        uint32_t f1 = f, b1 = b, f2 = g, b2 = c;
        if (two && f == g && c < b) {
            f1 = g;
            b1 = c;
            f2 = f;
            b2 = b;
        }
        uint64_t seen = look(f1, b1, kind, two && f1 == f2);
        if (two && seen == 1) seen += look(f2, b2, kind, false);
        n_counted += seen;
        n += 1 + two;
        if (n_wrong) fail_msg("%s: a wrong block is served", kind_name[kind]);
        if (n % 64 < 2) assert_int_equal(kv_check(w.kv), ST_OK);
    }
    print_message("    %s: %llu damaged, %llu counted, %llu blocks served, wrong: %llu, %.1f s\n",
                  store ? "folder" : "host", (unsigned long long)n, (unsigned long long)n_counted,
                  (unsigned long long)n_served, (unsigned long long)n_wrong, (double)(clock_us() - t0) / 1e6);
    assert_int_equal(n_counted, n);
    files_close();
    world_close();
}

static void on_the_host(void **state)
{
    (void)state;
    storm(false, n_want - n_want / 5);
}
static void in_a_folder(void **state)
{
    (void)state;
    storm(true, n_want / 5);
}

int main(int argc, char **argv)
{
    if (argc > 1) n_want = strtoull(argv[1], NULL, 10);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = { cmocka_unit_test(on_the_host), cmocka_unit_test(in_a_folder) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
