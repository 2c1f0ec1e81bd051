/* sim_fleet: plans a fleet: hit rate, time to the first token and tokens/s of servers with KV tiers, against the size
 * of the tiers.
 *   sim_fleet [--servers 4] [--agents 24] [--dram-gib 0,64,128,256] [--nvme-gib 0,1024] [--csv FILE] ...   (--help: all options)
 *   sim_fleet --check     against closed forms, where there are any
 *
 * The scheduler, the tree, the tiers and the store that serve run here on a virtual clock, over a model of the device
 * and of the lanes (fleet_model.h; its figures are options). Agents talk to them: a shared beginning, then turns that
 * each add something to all that was said before, a pause after each answer. The same seed gives the same figures.
 * Over 500 lines: one simulation: servers and agents act on each other, and the closed forms check both. */
#define flight tier_flight /* the engine has one too */
#include "kvcache/folder/store_impl.h"
#include "kvcache/tier_impl.h"
#undef flight
#include "base/hash.h"
#include "base/log.h"
#include "engine/step.h"
#include "fleet_model.h"
#include "sim_options.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

/* Segments of a store are holes but for heads and footers: nothing of their true size is there to be reserved. */
int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    (void)mode;
    return ftruncate(fd, offset + bytes);
}

enum { VOCAB = 100000, SAMPLES_MAX = 1 << 20 };

/* ---- options */

static double opt[] = { 4,   24,  60, 50,   10,   12,  6,    100, 44000, 6.8e8, 15.14, 3000, 147456,
                        0.4, 128, 64, 8192, 0.94, 131, 2242, 5.2, 81.4,  6000,  600,   1 };
enum {
    O_SERVERS,
    O_AGENTS,
    O_HBM,
    O_DRAM_BW,
    O_DRAM_US,
    O_NVME_READ,
    O_NVME_WRITE,
    O_NVME_US,
    O_PREFILL,
    O_ATTEND,
    O_WEIGHTS,
    O_HBM_BW,
    O_KV_BYTES,
    O_FIXED,
    O_BLOCK,
    O_SEQS,
    O_BUDGET,
    O_REUSE,
    O_IN_OUT,
    O_TURN,
    O_THINK,
    O_THINK99,
    O_SHARED,
    O_SECONDS,
    O_SEED,
    O_N
};
static const struct sim_option option[O_N] = {
    [O_SERVERS] = { "servers", "servers, one device each", 1, 256 },
    [O_AGENTS] = { "agents", "agents per server", 1, 4096 },
    [O_HBM] = { "hbm-gib", "KV on the device, GiB", 0.5, 4096 },
    [O_DRAM_BW] = { "dram-gbs", "host to device and back, each, GB/s", 0.01, 1000 },
    [O_DRAM_US] = { "dram-us", "latency of a copy, us", 0, 1e6 },
    [O_NVME_READ] = { "nvme-read-gbs", "read from the folder, GB/s", 0.01, 1000 },
    [O_NVME_WRITE] = { "nvme-write-gbs", "written to the folder, GB/s", 0.01, 1000 },
    [O_NVME_US] = { "nvme-us", "latency of a read, us", 0, 1e6 },
    [O_PREFILL] = { "prefill-tok-s", "prompt tokens a second through the matrices", 1, 1e9 },
    [O_ATTEND] = { "attend-per-s", "pairs of a prompt's token and one before it, a second", 1, 1e15 },
    [O_WEIGHTS] = { "weights-gb", "weights that a step reads, GB", 0, 1e4 },
    [O_HBM_BW] = { "hbm-gbs", "memory of the device, GB/s", 1, 1e5 },
    [O_KV_BYTES] = { "kv-bytes", "KV of a token, bytes", 1, 1e7 },
    [O_FIXED] = { "fixed-ms", "of each step, ms", 0, 1000 },
    [O_BLOCK] = { "block-tokens", "tokens of a block, at most 256; 8 KiB of memory here are one block of the tiers", 16,
                  256 },
    [O_SEQS] = { "max-num-seqs", "sequences that run at a time", 1, 1024 },
    [O_BUDGET] = { "max-num-batched-tokens", "rows of a step", 16, 65536 },
    [O_REUSE] = { "reuse", "part of the prompts' tokens that was asked before; sets the turns of a talk", 0, 0.99 },
    [O_IN_OUT] = { "in-out", "prompt tokens for each token of the answers", 1, 10000 },
    [O_TURN] = { "turn-tokens", "what a turn adds to a prompt", 1, 100000 },
    [O_THINK] = { "think-s", "pause after an answer, median (log-normal), s", 0, 1e5 },
    [O_THINK99] = { "think-p99-s", "and its 99th percentile, s", 0, 1e6 },
    [O_SHARED] = { "shared-tokens", "beginning that all talks share", 0, 1e6 },
    [O_SECONDS] = { "seconds", "simulated, after a quarter of it to warm up", 1, 1e6 },
    [O_SEED] = { "seed", "of the talks", 0, 1e15 },
};
static struct {
    double      dram[SIM_LIST_MAX], nvme[SIM_LIST_MAX];
    int         n_dram, n_nvme;
    bool        affinity, prefix_cache, check;
    const char *csv, *dir;
} o = { .dram = { 0, 64, 128, 256 }, .n_dram = 4, .n_nvme = 1, .affinity = true, .prefix_cache = true };

static void help(void)
{
    puts("sim_fleet: hit rate, time to the first token and tokens/s of a fleet, against the size of its KV tiers\n\n"
         "  --dram-gib LIST            host tiers to try, GiB per server (0,64,128,256)\n"
         "  --nvme-gib LIST            folders to try, GiB per server (0); where the host tier is 0 there is none\n"
         "  --routing affinity|random  a talk stays with its server, or each turn goes anywhere (affinity)\n"
         "  --csv FILE                 the table once more\n"
         "  --dir DIR                  for the folders' files: 4 KiB a block (/tmp)\n"
         "  --check                    against closed forms, then exit");
    sim_help(option, opt, O_N);
}

static void options(int argc, char **argv)
{
    enum { DRAM = O_N, NVME, ROUTING, CSV, DIR_, CHECK, HELP, ALL };
    static const char *const more[] = { "dram-gib", "nvme-gib", "routing", "csv", "dir", "check", "help" };
    static const char        SIZES[] = "sizes of at most 1000000 GiB,";
    struct option            l[ALL + 1];
    sim_long_options(option, O_N, more, ALL - O_N, CHECK - O_N, l);
    for (int i; getopt_long(argc, argv, "", l, &i) == 0;) {
        if (i < O_N) opt[i] = sim_number("sim_fleet", &option[i], optarg);
        if (i == DRAM) o.n_dram = sim_list("sim_fleet", "dram-gib", optarg, 0, 1e6, SIZES, o.dram);
        if (i == NVME) o.n_nvme = sim_list("sim_fleet", "nvme-gib", optarg, 0, 1e6, SIZES, o.nvme);
        if (i == ROUTING) {
            o.affinity = !strcmp(optarg, "affinity");
            if (!o.affinity && strcmp(optarg, "random"))
                sim_stop("sim_fleet", "--routing", "allowed are affinity and random");
        }
        if (i == CSV) o.csv = optarg;
        if (i == DIR_) o.dir = optarg;
        if (i == CHECK) o.check = true;
        if (i == HELP) {
            help();
            exit(0);
        }
    }
    if (optind != argc) sim_stop("sim_fleet", argv[optind], "not an option; --help names them");
}

/* ---- servers */

struct server {
    struct engine     *e;
    struct xfer       *x;
    struct fleet_lane *lane[2]; /* [1] NULL: no folder */
    struct ring        outbox;
    uint64_t           now_us, ends_us[ENG_DEPTH_MAX]; /* of the steps in flight */
    uint32_t           n_flight, n_live;
    bool               awake;
    double             busy_s;
    char               dir[300];
};
static struct {
    struct fleet_model m;
    struct server     *server;
    uint32_t           n_server;
    bool               at_once;
} fleet;

static uint64_t due_us(const struct server *s)
{
    uint64_t a = s->lane[0] ? fleet_lane_due(s->lane[0]) : UINT64_MAX,
             b = s->lane[1] ? fleet_lane_due(s->lane[1]) : UINT64_MAX;
    return a < b ? a : b;
}

/* Until then the lanes get on by themselves. */
static void pass_time(struct server *s, uint64_t until_us)
{
    for (uint64_t due; (due = due_us(s)) <= until_us;) {
        if (due > fleet_now_us) fleet_now_us = due;
        for (int i = 0; i < 2; i++)
            if (s->lane[i]) lane_pump(&s->lane[i]->lane);
    }
    if (until_us > fleet_now_us) fleet_now_us = until_us;
}

static void run_step(void *ctx, struct batch *b)
{
    struct server *s = ctx;
    double         took = fleet_step_s(&fleet.m, b);
    uint64_t       begin = s->n_flight ? s->ends_us[s->n_flight - 1] : fleet_now_us;
    if (begin < fleet_now_us) begin = fleet_now_us;
    s->ends_us[s->n_flight++] = begin + (uint64_t)(took * 1e6);
    s->busy_s += took;
    for (uint32_t i = 0; i < b->n_sample; i++) {
        b->out.id[i] = (uint32_t)(hash_u64(b->sample[i].seed + b->sample[i].counter) % VOCAB);
        b->out.logprob[i] = 0;
        b->out.rank[i] = 1;
    }
}
static enum status wait_step(void *ctx, struct batch *b)
{
    struct server *s = ctx;
    (void)b;
    pass_time(s, s->ends_us[0]);
    s->ends_us[0] = s->ends_us[1];
    s->n_flight--;
    return ST_OK;
}

/* A store has a thread that makes and removes files in real time: the virtual clock waits for it. */
static void files_settle(struct server *s)
{
    struct kv_tiers *t = s->e->tiers;
    for (uint32_t i = 0; t && i < t->n_below; i++) {
        struct kv_store *store = kv_store_of(t->below[i]);
        while (store->task_out || store->seal_out || kv_store_recovering(store)) {
            nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
            kv_store_turn(store);
        }
    }
}

static uint32_t context_max(void)
{
    double turns = opt[O_REUSE] < 1 ? 2 / (1 - opt[O_REUSE]) : 1,
           answer = opt[O_TURN] / (1 - opt[O_REUSE]) / opt[O_IN_OUT];
    return (uint32_t)(opt[O_SHARED] + 1.6 * turns * (opt[O_TURN] + 2 * answer) + 512);
}

static void server_open(struct server *s, double dram_gib, double nvme_gib)
{
    double         block = opt[O_BLOCK] * opt[O_KV_BYTES], gib = 1 << 30;
    struct eng_cfg c = { .seqs_max = (uint32_t)opt[O_SEQS],
                         .batch_tokens_max = (uint32_t)opt[O_BUDGET],
                         .queue_requests_max = (uint32_t)(opt[O_AGENTS] * opt[O_SERVERS]) + 1,
                         .context_max = context_max(),
                         .vocab = VOCAB,
                         .n_block = (uint32_t)(opt[O_HBM] * gib / block),
                         .block_tokens = (uint32_t)opt[O_BLOCK],
                         .prefix_cache = o.prefix_cache };
    if (c.n_block < context_max() / c.block_tokens + 2)
        sim_stop("sim_fleet", "--hbm-gib", "the longest talk does not fit");
    uint64_t            host = (uint64_t)(dram_gib * gib / block) * kv_record_bytes(FLEET_BYTES);
    struct kv_tiers_cfg tc = {
        .block_bytes = FLEET_BYTES, .host_bytes = host, .clock = fleet_clock, .ident = { .block_bytes = FLEET_BYTES }
    };
    struct xfer_cfg   xc = { .jobs_max = 8192, .clock = fleet_clock, .pumped = true };
    struct eng_runner run = { .ctx = s, .submit = run_step, .wait = wait_step, .depth = 2 };
    *s = (struct server){ .now_us = 1000000 };
    fleet_now_us = s->now_us;
    if (dram_gib > 0) {
        if (host < 2 * kv_record_bytes(FLEET_BYTES)) sim_stop("sim_fleet", "--dram-gib", "less than two blocks");
        s->lane[0] = fleet_lane_create(false, block / fleet.m.dram_bytes_s, block / fleet.m.dram_bytes_s,
                                       fleet.m.dram_latency_s, &fleet.at_once);
        struct xfer_seg seg = { .kind = XFER_DEVICE, .bytes = (uint64_t)c.n_block * FLEET_BYTES };
        CHECK(xfer_create(&xc, &s->x) == ST_OK && xfer_lane_add(s->x, &s->lane[0]->lane) == ST_OK);
        if (nvme_gib > 0) {
            s->lane[1] = fleet_lane_create(true, block / fleet.m.nvme_write_s, block / fleet.m.nvme_read_s,
                                           fleet.m.nvme_latency_s, &fleet.at_once);
            CHECK(xfer_lane_add(s->x, &s->lane[1]->lane) == ST_OK);
            snprintf(s->dir, sizeof s->dir, "%s/sim-fleet-XXXXXX", o.dir ? o.dir : "/tmp");
            if (!mkdtemp(s->dir)) sim_stop("sim_fleet", s->dir, strerror(errno));
            tc.store[0].dir = s->dir;
            tc.n_store = 1;
            tc.store[0].bytes = (uint64_t)(nvme_gib * gib / block) * kv_record_bytes(FLEET_BYTES);
            tc.store[0].segment_bytes = tc.store[0].bytes / 64 / 4096 * 4096;
        }
        CHECK(xfer_seg_add(s->x, &seg, &tc.dev_seg) == ST_OK && xfer_start(s->x) == ST_OK);
        tc.xfer = s->x;
        c.tiers = &tc;
    }
    fleet.at_once = true;
    if (ring_init(&s->outbox, 4096) || eng_create(&c, &run, &s->e))
        sim_stop("sim_fleet", "a server", "does not start; is there memory for its tiers?");
    fleet.at_once = false;
    s->e->clock = fleet_clock;
    files_settle(s);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

static void server_close(struct server *s)
{
    fleet.at_once = true;
    eng_stop(s->e);
    eng_free(s->e);
    xfer_free(s->x);
    ring_free(&s->outbox);
    fleet.at_once = false;
    if (*s->dir) nftw(s->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- agents */

struct agent {
    uint64_t           dice, at_us; /* at_us: when it asks next, UINT64_MAX: it waits for an answer */
    uint32_t          *id, n, n_new, turn;
    struct server     *server; /* whose answer it waits for; of its talk */
    struct eng_request r;
    struct eng_choice  choice;
    uint32_t          *out;
};

static double part(struct agent *a) { return (double)(hash_u64(a->dice++) >> 11) * 0x1p-53; }
static double normal(struct agent *a) /* Box and Muller */
{
    double u = 1 - part(a);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979 * part(a));
}
static double think_s(struct agent *a)
{
    if (opt[O_THINK] <= 0) return 0;
    double sigma = opt[O_THINK99] > opt[O_THINK] ? log(opt[O_THINK99] / opt[O_THINK]) / 2.3263 : 0;
    return opt[O_THINK] * exp(sigma * normal(a));
}
static void say(struct agent *a, uint32_t n)
{
    for (; n && a->n < context_max(); n--) a->id[a->n++] = (uint32_t)(hash_u64(a->dice++) % VOCAB);
}
static void talk_begin(struct agent *a)
{
    a->n = (uint32_t)opt[O_SHARED];
    a->turn = 0;
    a->server = NULL;
    for (uint32_t i = 0; i < a->n; i++) a->id[i] = (uint32_t)(hash_u64(i) % VOCAB);
}

/* The next prompt: all that was said, and something new. */
static void ask(struct agent *a)
{
    double   turns = 2 / (1 - opt[O_REUSE]), answer = opt[O_TURN] / (1 - opt[O_REUSE]) / opt[O_IN_OUT];
    uint32_t n_out = (uint32_t)(answer * (0.5 + part(a)) + 0.5), more = (uint32_t)(opt[O_TURN] * (0.5 + part(a)) + 0.5);
    if (n_out < 1) n_out = 1;
    if (more < 1) more = 1;
    if (a->turn >= turns || a->n + more + n_out + 1 > context_max()) talk_begin(a);
    a->turn++;
    a->n_new = a->turn == 1 ? a->n + more - (uint32_t)opt[O_SHARED] : more;
    say(a, more);
    a->choice = (struct eng_choice){ .id = a->out };
    a->r = (struct eng_request){ .prompt = a->id, .n_prompt = a->n, .n_choice = 1, .choice = &a->choice, .user = a };
    a->r.s = (struct eng_sampling){
        .max_tokens = n_out, .top_p = 1, .repetition = 1, .ignore_eos = true, .seed = hash_u64(a->dice++)
    };
}

static struct server *route(struct agent *a)
{
    if (o.affinity && a->server) return a->server;
    struct server *best = &fleet.server[hash_u64(a->dice++) % fleet.n_server];
    for (uint32_t i = 0; o.affinity && i < fleet.n_server; i++)
        if (fleet.server[i].n_live < best->n_live) best = &fleet.server[i];
    return best;
}

static void submit(struct agent *a)
{
    static uint64_t n;
    ask(a);
    struct server *s = a->server = route(a);
    fleet_now_us = a->at_us;
    a->r.id = ++n;
    a->r.outbox = &s->outbox;
    enum status st = eng_submit(s->e, &a->r);
    CHECK(st == ST_OK);
    s->n_live++;
    if (!s->awake) s->now_us = a->at_us > s->now_us ? a->at_us : s->now_us;
    s->awake = true;
    a->at_us = UINT64_MAX;
}

/* ---- what is measured */

struct sums {
    uint64_t n, prompt, device, host, store, out, fresh;
    double   ttft_sum_s, busy_s, elapsed_s;
    double   ttft_p50, ttft_p99;
    uint64_t n_load, n_abandoned, n_recompute, n_preempted;
};
static double  *ttft;
static uint32_t n_ttft;

static void count(struct sums *m, const struct agent *a, uint64_t asked_us)
{
    const struct eng_request *r = &a->r;
    double                    s = (double)(r->t_first_us - asked_us) * 1e-6;
    m->n++;
    m->prompt += r->n_prompt;
    m->host += r->n_cached_from[KV_TIER_HOST];
    m->store += r->n_cached_from[KV_TIER_STORE];
    m->fresh += a->n_new;
    m->device += r->n_cached - r->n_cached_from[KV_TIER_HOST] - r->n_cached_from[KV_TIER_STORE];
    m->out += atomic_load(&a->choice.n_out);
    m->ttft_sum_s += s;
    if (n_ttft < SAMPLES_MAX) ttft[n_ttft++] = s;
}

/* ---- the run: whoever is first in time goes first */

static void server_turn(struct server *s)
{
    bool did_work;
    fleet_now_us = s->now_us;
    CHECK(eng_step(s->e, s->now_us, &did_work) == ST_OK);
    files_settle(s);
    if (!did_work && !eng_idle(s->e)) { /* a prompt waits for its load */
        uint64_t due = due_us(s), soon = fleet_now_us + 200;
        pass_time(s, due < soon ? due : soon);
    } else if (!did_work) {
        if (due_us(s) != UINT64_MAX)
            pass_time(s, due_us(s));
        else if (!s->e->tiers || !kv_tiers_busy(s->e->tiers))
            s->awake = false;
        else
            pass_time(s, fleet_now_us + 200);
    }
    s->now_us = fleet_now_us;
}

static struct sums run(double dram_gib, double nvme_gib)
{
    uint32_t      n_agent = (uint32_t)(opt[O_AGENTS] * opt[O_SERVERS]);
    double        warm_s = opt[O_SECONDS] / 4;
    uint64_t      warm_us = 1000000 + (uint64_t)(warm_s * 1e6), end_us = warm_us + (uint64_t)(opt[O_SECONDS] * 1e6);
    uint64_t     *asked_us = calloc(n_agent, sizeof *asked_us);
    struct agent *agent = calloc(n_agent, sizeof *agent);
    struct sums   m = { .elapsed_s = opt[O_SECONDS] };
    fleet.n_server = (uint32_t)opt[O_SERVERS];
    fleet.server = calloc(fleet.n_server, sizeof *fleet.server);
    CHECK(agent && asked_us && fleet.server);
    for (uint32_t i = 0; i < fleet.n_server; i++) server_open(&fleet.server[i], dram_gib, nvme_gib);
    for (uint32_t i = 0; i < n_agent; i++) { /* in the middle of their talks */
        struct agent *a = &agent[i];
        a->dice = hash_u64((uint64_t)opt[O_SEED] * 1000003 + i) & UINT64_MAX >> 1;
        a->id = calloc(context_max(), sizeof *a->id);
        a->out = calloc(context_max(), sizeof *a->out);
        CHECK(a->id && a->out);
        talk_begin(a);
        a->turn = (uint32_t)(part(a) * 2 / (1 - opt[O_REUSE]));
        say(a, (uint32_t)(a->turn * opt[O_TURN]));
        a->at_us = 1000000 + (uint64_t)(part(a) * (opt[O_THINK] + 1) * 1e6);
    }
    n_ttft = 0;
    double busy0 = -1;
    for (;;) {
        struct agent  *a = agent;
        struct server *s = NULL;
        for (uint32_t i = 1; i < n_agent; i++)
            if (agent[i].at_us < a->at_us) a = &agent[i];
        for (uint32_t i = 0; i < fleet.n_server; i++)
            if (fleet.server[i].awake && (!s || fleet.server[i].now_us < s->now_us)) s = &fleet.server[i];
        uint64_t at = s && s->now_us < a->at_us ? s->now_us : a->at_us;
        if (at >= end_us) break;
        if (busy0 < 0 && at >= warm_us) {
            busy0 = 0;
            for (uint32_t i = 0; i < fleet.n_server; i++) busy0 += fleet.server[i].busy_s;
        }
        if (!s || a->at_us <= s->now_us) {
            asked_us[a - agent] = a->at_us;
            submit(a);
            continue;
        }
        server_turn(s);
        for (void *msg; (msg = ring_pop(&s->outbox));) {
            struct agent *of = eng_msg_request(msg)->user;
            if (!eng_msg_is_final(msg)) {
                atomic_store(&of->r.notified, false);
                continue;
            }
            s->n_live--;
            if (asked_us[of - agent] >= warm_us) count(&m, of, asked_us[of - agent]);
            for (uint32_t i = 0, n = atomic_load(&of->choice.n_out); i < n && of->n < context_max(); i++)
                of->id[of->n++] = of->out[i];
            of->at_us = s->now_us + (uint64_t)(think_s(of) * 1e6);
        }
    }
    for (uint32_t i = 0; i < fleet.n_server; i++) {
        struct server        *s = &fleet.server[i];
        struct kv_tiers_stats k;
        struct eng_stats      es;
        eng_stats(s->e, &es);
        m.busy_s += s->busy_s;
        m.n_preempted += es.n_preempted;
        if (eng_tiers_stats(s->e, &k)) {
            m.n_load += k.n_load;
            m.n_abandoned += k.n_abandoned;
            m.n_recompute += k.n_recompute;
        }
    }
    m.busy_s -= busy0;
    qsort(ttft, n_ttft, sizeof *ttft, sim_order);
    if (n_ttft) {
        m.ttft_p50 = ttft[n_ttft / 2];
        m.ttft_p99 = ttft[(uint32_t)(0.99 * n_ttft)];
    }
    for (uint32_t i = 0; i < fleet.n_server; i++) server_close(&fleet.server[i]);
    for (uint32_t i = 0; i < n_agent; i++) {
        free(agent[i].id);
        free(agent[i].out);
    }
    free(agent);
    free(asked_us);
    free(fleet.server);
    return m;
}

static void take_model(void)
{
    fleet.m = (struct fleet_model){ .prefill_tok_s = opt[O_PREFILL],
                                    .attend_s = opt[O_ATTEND],
                                    .weights_s = opt[O_WEIGHTS] / opt[O_HBM_BW],
                                    .hbm_bytes_s = opt[O_HBM_BW] * 1e9,
                                    .kv_bytes_tok = opt[O_KV_BYTES],
                                    .fixed_s = opt[O_FIXED] * 1e-3,
                                    .dram_bytes_s = opt[O_DRAM_BW] * 1e9,
                                    .dram_latency_s = opt[O_DRAM_US] * 1e-6,
                                    .nvme_read_s = opt[O_NVME_READ] * 1e9,
                                    .nvme_write_s = opt[O_NVME_WRITE] * 1e9,
                                    .nvme_latency_s = opt[O_NVME_US] * 1e-6 };
}

/* ---- against closed forms */

/* Alone on a server: the prompt's rows that were not cached, in steps of the budget. */
static double alone_s(double n_prompt, double n_cached)
{
    double s = 0;
    for (double at = n_cached; at < n_prompt;) {
        double n = n_prompt - at < opt[O_BUDGET] ? n_prompt - at : opt[O_BUDGET], rows = n / fleet.m.prefill_tok_s;
        s += fleet.m.fixed_s + (rows > fleet.m.weights_s ? rows : fleet.m.weights_s) + fleet_attend_s(&fleet.m, n, at);
        at += n;
    }
    return s;
}

static bool close_to(const char *what, double sim, double closed, double within)
{
    bool ok = fabs(sim / closed - 1) <= within;
    printf("%-74s %10.4f simulated, %10.4f closed form: %+.1f %%%s\n", what, sim, closed, 100 * (sim / closed - 1),
           ok ? "" : "  WRONG");
    return ok;
}

static bool check(void)
{
    bool ok = true;
    opt[O_SERVERS] = 1;
    opt[O_SECONDS] = 400;
    opt[O_HBM] = 60;
    /* 1: one agent whose talk stays on the device */
    opt[O_AGENTS] = 1;
    opt[O_THINK] = 2;
    opt[O_THINK99] = 0;
    opt[O_BLOCK] = 16;
    struct sums m = run(0, 0);
    double      n = (double)m.n, prompt = (double)m.prompt / n, out = (double)m.out / n, cached = (double)m.device / n;
    double      first = alone_s(prompt, cached);
    double      token =
        fleet.m.fixed_s + fleet.m.weights_s + (prompt + out / 2) * fleet.m.kv_bytes_tok / fleet.m.hbm_bytes_s;
    ok &= close_to("one agent, all on the device: time to the first token, s", m.ttft_sum_s / n, first, 0.03);
    ok &= close_to("the same: answers a second", n / m.elapsed_s, 1 / (first + (out - 1) * token + opt[O_THINK]), 0.03);
    ok &= close_to("the same: prompt tokens from the device, of those that can be", (double)m.device,
                   (double)(m.prompt - m.fresh), 0.03);
    /* 2: nothing is ever cached, answers of one token: a device that only computes prompts */
    o.prefix_cache = false;
    opt[O_AGENTS] = 12;
    opt[O_THINK] = 0;
    opt[O_IN_OUT] = 10000;
    opt[O_TURN] = 1000;
    m = run(0, 0);
    n = (double)m.n;
    prompt = (double)m.prompt / n;
    double square =
        prompt * prompt * 1.33; /* lengths are spread evenly from nothing to twice the mean: E[n^2] = 4/3 E[n]^2 */
    double each =
        prompt / fleet.m.prefill_tok_s + square / 2 / fleet.m.attend_s + prompt / opt[O_BUDGET] * fleet.m.fixed_s;
    ok &= close_to("prompts alone, nothing cached: answers a second", n / m.elapsed_s, 1 / each, 0.06);
    ok &= close_to("the same: part of the time that the device computes", m.busy_s / m.elapsed_s, 1, 0.02);
    /* 3: the device holds six tenths; the host all, and moves it in no time: nearly as fast as a device that holds
     * all */
    o.prefix_cache = true;
    opt[O_AGENTS] = 6;
    opt[O_THINK] = 4;
    opt[O_IN_OUT] = 131;
    opt[O_TURN] = 2242;
    opt[O_BLOCK] = 64;
    opt[O_HBM] = 60;
    struct sums all = run(0, 0);
    opt[O_HBM] = 36;
    opt[O_DRAM_BW] = 1000;
    opt[O_DRAM_US] = 0;
    take_model();
    m = run(200, 0);
    ok &= close_to("six agents, the device holds less, a host of endless speed: answers a second", (double)m.n,
                   (double)all.n, 0.08);
    ok &= close_to("the same: prompt tokens not computed", (double)(m.device + m.host), (double)(m.prompt - m.fresh),
                   0.05);
    printf("of them by the host: %.0f %%\n", 100 * (double)m.host / (double)(m.device + m.host));
    return ok && m.host > m.device / 20;
}

static void row(FILE *f, bool csv, double dram, double nvme, const struct sums *m)
{
    double p = (double)m->prompt, all = opt[O_SERVERS];
    fprintf(f,
            csv ? "%g,%g,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.3f,%.0f,%.0f,%.3f,%llu,%llu\n"
                : "%8g %8g | %6.3f %6.3f %6.3f %6.3f (%.3f) | %8.3f %8.3f | %7.2f %9.0f %8.0f | %5.2f | %7llu %6llu\n",
            dram, nvme, (double)m->device / p, (double)m->host / p, (double)m->store / p,
            (double)(m->device + m->host + m->store) / p, 1 - (double)m->fresh / p, m->ttft_p50, m->ttft_p99,
            (double)m->n / m->elapsed_s / all, p / m->elapsed_s / all, (double)m->out / m->elapsed_s / all,
            m->busy_s / m->elapsed_s / all, (unsigned long long)m->n_load, (unsigned long long)m->n_abandoned);
    fflush(f);
}

int main(int argc, char **argv)
{
    options(argc, argv);
    log_init(LOG_LEVEL_ERROR, 2, false);
    take_model();
    ttft = calloc(SAMPLES_MAX, sizeof *ttft);
    CHECK(ttft);
    if (o.check) return check() ? 0 : 1;
    FILE *csv = o.csv ? fopen(o.csv, "w") : NULL;
    if (o.csv && !csv) sim_stop("sim_fleet", o.csv, strerror(errno));
    if (csv)
        fputs(
            "dram_gib,nvme_gib,hit_device,hit_host,hit_nvme,hit,could_hit,ttft_p50_s,ttft_p99_s,answers_s,prompt_tok_s,output_tok_s,"
            "busy,loads,abandoned\n",
            csv);
    printf("%g servers, %g agents each, %s routing, %g s; per server:\n", opt[O_SERVERS], opt[O_AGENTS],
           o.affinity ? "affinity" : "random", opt[O_SECONDS]);
    printf("%8s %8s | %6s %6s %6s %6s %7s | %8s %8s | %7s %9s %8s | %5s | %7s %6s\n", "DRAM GiB", "NVMe GiB", "device",
           "host", "nvme", "hit", "(of)", "TTFT p50", "p99 s", "ans/s", "prompt/s", "output/s", "busy", "loads",
           "late");
    for (int d = 0; d < o.n_dram; d++)
        for (int n = 0; n < o.n_nvme; n++) {
            if (o.dram[d] <= 0 && o.nvme[n] > 0) continue;
            struct sums m = run(o.dram[d], o.nvme[n]);
            row(stdout, false, o.dram[d], o.nvme[n], &m);
            if (csv) row(csv, true, o.dram[d], o.nvme[n], &m);
        }
    if (csv && fclose(csv)) sim_stop("sim_fleet", o.csv, strerror(errno));
    free(ttft);
    return 0;
}
