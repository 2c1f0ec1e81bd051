/* bench_remote: what the engine's thread pays for a block of another server.
 *   bench_remote [--runs 21] [--blocks 1000] [--payload 36864] [--step-us 200] [--mac]
 * A prompt of so many blocks comes to tiers that hold nothing of it. A peer that is played here says that it has all of
 * them. They are read by a lane of its own thread, which checks the digests, and copied to the device. Counted is the
 * CPU time of this thread within the calls that the engine makes between two steps; a step takes so many us. The other
 * side: a peer asks for as many blocks of this host's, and gives them back. */
#include "base/check.h"
#include "base/clock.h"
#include "kvcache/peer/peers.h"
#include "kvcache/record.h"
#include "kvcache/tier.h"
#include "transfer/lane.h"
#include "transfer/lanes.h"
#include "transfer/peer/net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BT = 16, RUNS_MAX = 101, NOTES = 64, BLOCKS_MAX = 2000, N_BLOCK = 1 << 14 };

static struct {
    uint32_t runs, blocks, payload, step_us;
    bool     mac;
} o = { .runs = 21, .blocks = 1000, .payload = 36864, .step_us = 200 };

static unsigned char *remote; /* the peer's slab */

/* ---- a lane from the peer's slab */

static bool can(const struct xfer_lane *l, enum xfer_kind src, enum xfer_kind dst)
{
    (void)l;
    return src == XFER_REMOTE && dst == XFER_HOST;
}
static enum status open_lane(struct xfer_lane *l)
{
    (void)l;
    return ST_OK;
}
static void begin(struct xfer_lane *l, struct xfer_item **item, uint32_t n)
{
    (void)l;
    for (uint32_t i = 0; i < n; i++) {
        struct xfer_item *it = item[i];
        unsigned char    *to = it->dst->base + it->job.dst_off;
        memcpy(to, remote + it->job.src_off, it->job.bytes);
        lane_done(it, lane_digest(it, to) ? ST_OK : ST_INVALID);
    }
}
static void reap(struct xfer_lane *l, bool wait)
{
    (void)l;
    (void)wait;
}
static void                  close_lane(struct xfer_lane *l) { (void)l; }
static void                  free_lane(struct xfer_lane *l) { free(l); }
static const struct lane_ops ops = { .name = "played",
                                     .depth = 32,
                                     .can = can,
                                     .open = open_lane,
                                     .begin = begin,
                                     .reap = reap,
                                     .close = close_lane,
                                     .free = free_lane };

/* ---- the net: what the tiers send is answered at once */

static struct {
    struct peer_net      net;
    struct peer_note    *to; /* [NOTES] */
    uint32_t             n_to, n_give_back;
    struct pwire_bytes32 fingerprint;
    uint64_t             lease;   /* of the last answer to the guest */
    uint32_t             n_found; /* in it */
    struct kv_key        key[BLOCKS_MAX];
    struct digest        payload[BLOCKS_MAX];
} net;

static struct peer_note *note_to(enum peer_note_type type)
{
    CHECK(net.n_to < NOTES);
    struct peer_note *n = &net.to[net.n_to++];
    n->type = type;
    n->peer = 0;
    n->epoch = 1;
    n->name[0] = 0;
    return n;
}

static bool hear(struct peer_net *p, struct peer_note *out)
{
    (void)p;
    if (!net.n_to) return false;
    *out = net.to[0];
    memmove(net.to, net.to + 1, --net.n_to * sizeof *net.to);
    return true;
}

/* The keys of a question follow each other. */
static void answer(const struct peer_note *q)
{
    struct peer_note *a = note_to(PEER_ANSWERED);
    uint32_t          at = 0;
    while (at < o.blocks && memcmp(&net.key[at], &q->key[0], sizeof q->key[0]) != 0) at++;
    a->lease = q->lease;
    a->lease_ms = 10000;
    a->n = q->n;
    for (uint32_t i = 0; i < q->n; i++)
        a->where[i] = (struct pwire_where){ .found = at + i < o.blocks,
                                            .slot = at + i,
                                            .payload = net.payload[(at + i) % BLOCKS_MAX] };
}

static bool say(struct peer_net *p, const struct peer_note *n)
{
    (void)p;
    if (n->type == PEER_IDENT) net.fingerprint = n->fingerprint;
    if (n->type == PEER_ASK) answer(n);
    if (n->type == PEER_GIVE_BACK) net.n_give_back++;
    if (n->type != PEER_ANSWER) return true;
    net.lease = n->lease;
    for (uint32_t i = 0; i < n->n; i++) net.n_found += n->where[i].found;
    return true;
}
static const struct peer_net_ops net_ops = { .send = say, .recv = hear };

/* ---- the world */

static struct world {
    struct xfer      *x;
    struct kv        *kv;
    struct kv_tiers  *t;
    struct digest_key dk;
    uint32_t          ids[BLOCKS_MAX * BT + 1];
    uint64_t          record_bytes;
} w;

static void *space(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static void open_world(void)
{
    static const unsigned char secret[] = "a secret that is long enough";
    struct kv_cfg              kc = { .n_block = N_BLOCK,
                                      .block_tokens = BT,
                                      .n_seq_max = 4 + KV_LOADS_MAX + KV_OFFERS_MAX + KV_AUDITS + KV_MOVES,
                                      .seq_tokens_max = BLOCKS_MAX * BT + BT,
                                      .prefix_cache = true };
    struct xfer_lane          *lane = calloc(1, sizeof *lane);
    char                       err[300];
    CHECK(lane && !kv_create(&kc, &w.kv) && !digest_key_init(&w.dk, o.mac ? secret : NULL, sizeof secret, 5));
    lane_init(lane, &ops);
    net.net.ops = &net_ops;
    net.to = calloc(NOTES, sizeof *net.to);
    w.record_bytes = kv_record_bytes(o.payload);
    remote = space(BLOCKS_MAX * w.record_bytes);
    struct xfer_cfg xc = { .jobs_max = 4096, .key = w.dk };
    CHECK(net.to && !xfer_create(&xc, &w.x) && !xfer_lane_add(w.x, lane_dev_create()) && !xfer_lane_add(w.x, lane));
    struct kv_tiers_cfg tc = { .kv = w.kv,
                               .xfer = w.x,
                               .block_bytes = o.payload,
                               .host_bytes = 3 * BLOCKS_MAX * w.record_bytes,
                               .n_block = N_BLOCK,
                               .block_tokens = BT,
                               .seq_tokens_max = kc.seq_tokens_max,
                               .ident = { .block_tokens = BT, .block_bytes = o.payload },
                               .key = w.dk,
                               .peers = &net.net,
                               .store = { { .row = &kv_peers, .dir = "a peer" } },
                               .n_store = 1 };
    struct xfer_seg     dev = { .kind = XFER_DEVICE, .bytes = (uint64_t)N_BLOCK * o.payload };
    dev.base = mmap(NULL, dev.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(dev.base != MAP_FAILED && !xfer_seg_add(w.x, &dev, &tc.dev_seg) && !xfer_start(w.x));
    if (kv_tiers_open(&tc, &w.t, err, sizeof err)) {
        fprintf(stderr, "bench_remote: %s\n", err);
        exit(EXIT_FAILURE);
    }
    kv_tiers_turn(w.t);
    note_to(PEER_UP)->bytes = BLOCKS_MAX * w.record_bytes;
    kv_tiers_turn(w.t);
}

/* Another prompt, and the peer's slab with its blocks. */
static void new_prompt(uint32_t number)
{
    struct kv_key none = { { 0 } }, fingerprint, before;
    memcpy(&fingerprint, &net.fingerprint, sizeof fingerprint);
    before = kv_key_root(&fingerprint, (struct kv_salt){ 0, 0 });
    for (uint32_t i = 0; i <= o.blocks * BT; i++) w.ids[i] = (number + 1) * 1000003u + i;
    for (uint32_t b = 0; b < o.blocks; b++) {
        unsigned char *page = remote + b * w.record_bytes;
        net.key[b] = kv_key_next(&before, w.ids + b * BT, BT);
        memset(page + KV_RECORD_HEAD, (int)(number + b), o.payload);
        net.payload[b] = digest_of(&w.dk, page + KV_RECORD_HEAD, o.payload);
        struct kv_record_facts facts = { .fingerprint = &fingerprint,
                                         .key = &net.key[b],
                                         .parent = b ? &before : &none,
                                         .ids = w.ids + b * BT,
                                         .block_tokens = BT,
                                         .payload_bytes = o.payload,
                                         .payload = net.payload[b] };
        kv_record_make(page, &w.dk, &facts);
        before = net.key[b];
    }
}

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void step(void) { nanosleep(&(struct timespec){ .tv_nsec = o.step_us * 1000L }, NULL); }

/* us of a turn in which there is nothing to do. */
static double idle_turn(void)
{
    enum { TURNS = 50 };
    double spent = 0;
    for (int i = 0; i < TURNS; i++) {
        step();
        double at = cpu_us();
        kv_tiers_turn(w.t);
        spent += cpu_us() - at;
    }
    return spent / TURNS;
}

/* us of this thread for one block of a prompt that is pulled; *turns_out: in how many turns. */
static double pull(double *longest_us, double *turns_out)
{
    uint32_t         n = o.blocks * BT + 1, n_step = 0;
    struct kv_want   want = { 0 };
    struct kv_cursor hit = { 0 };
    struct kv_seq    s;
    double           spent = 0;
    for (bool come = false; !come; step()) {
        double at = cpu_us();
        kv_tiers_turn(w.t);
        hit.n = kv_peek_more(w.kv, (struct kv_salt){ 0, 0 }, w.ids, n, &hit);
        come = kv_tiers_ask(w.t, &want, (struct kv_salt){ 0, 0 }, w.ids, n, &hit, 1000);
        double us = cpu_us() - at;
        spent += us;
        if (us > *longest_us) *longest_us = us;
        CHECK(++n_step < 100000);
    }
    double at = cpu_us();
    kv_tiers_forget(w.t, &want);
    kv_tiers_turn(w.t);
    spent += cpu_us() - at;
    CHECK(!kv_seq_open(w.kv, (struct kv_salt){ 0, 0 }, &s));
    CHECK(kv_seq_match(w.kv, &s, w.ids, n) == o.blocks * BT && want.n_from[KV_TIER_PEER] == o.blocks * BT);
    kv_seq_release(w.kv, &s);
    *turns_out = n_step;
    return spent / o.blocks;
}

/* us of this thread for one block that a peer asks for, and gives back. The last prompt's are on the host. */
static double lend(void)
{
    uint32_t n = o.blocks < PWIRE_KEYS_MAX ? o.blocks : PWIRE_KEYS_MAX;
    net.n_found = 0;
    struct peer_note *q = note_to(PEER_ASKED);
    q->lease = 7;
    q->n = n;
    for (uint32_t i = 0; i < n; i++) memcpy(&q->key[i], &net.key[i], sizeof q->key[i]);
    double begin = cpu_us();
    kv_tiers_turn(w.t);
    double spent = cpu_us() - begin;
    CHECK(net.n_found == n);
    struct peer_note *back = note_to(PEER_GAVE_BACK);
    back->lease = net.lease;
    back->n = n;
    begin = cpu_us();
    kv_tiers_turn(w.t);
    return (spent + cpu_us() - begin) / n;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double v[RUNS_MAX])
{
    qsort(v, o.runs, sizeof *v, by_size);
    printf("%-46s %.2f (%.2f .. %.2f)\n", what, v[o.runs / 2], v[0], v[o.runs - 1]);
}

int main(int n_arg, char **arg)
{
    double pulled[RUNS_MAX], own[RUNS_MAX], lent[RUNS_MAX], turns[RUNS_MAX], idle[RUNS_MAX], longest = 0;
    for (int i = 1; i < n_arg; i++) {
        uint32_t v = i + 1 < n_arg ? (uint32_t)strtoul(arg[i + 1], NULL, 10) : 0;
        if (!strcmp(arg[i], "--mac")) o.mac = true;
        if (!strcmp(arg[i], "--runs")) o.runs = v;
        if (!strcmp(arg[i], "--blocks")) o.blocks = v;
        if (!strcmp(arg[i], "--payload")) o.payload = v;
        if (!strcmp(arg[i], "--step-us")) o.step_us = v;
    }
    if (!o.runs || o.runs > RUNS_MAX || !o.blocks || o.blocks > BLOCKS_MAX || !o.payload) return EXIT_USAGE;
    open_world();
    for (uint32_t r = 0; r < o.runs; r++) {
        new_prompt(r);
        idle[r] = idle_turn();
        pulled[r] = pull(&longest, &turns[r]);
        own[r] = pulled[r] - idle[r] * turns[r] / o.blocks;
        lent[r] = lend();
    }
    printf("%u runs of a prompt of %u blocks of %u bytes, a turn every %u us%s\n", o.runs, o.blocks, o.payload,
           o.step_us, o.mac ? ", digests keyed" : "");
    report("us a block pulled: asked, read, checked, in tree", pulled);
    report("the same without what idle turns cost", own);
    report("turns that a prompt took", turns);
    report("us of an idle turn", idle);
    report("us a block lent: found, leased, given back", lent);
    printf("%-46s %.0f\n", "us of the longest turn", longest);
    kv_tiers_close(w.t, 0);
    xfer_free(w.x);
    kv_free(w.kv);
    return 0;
}
