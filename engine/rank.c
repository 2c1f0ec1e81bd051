/* rank: n devices run every batch in lockstep. A single one is called by the engine's thread, with no hand-over, where
 * it works by itself or where one step at a time is enough. Otherwise each rank has a thread that takes the engine's
 * calls from a queue in order, and sleeps on a condition when there is none. A device that works by itself gets submit
 * and wait as two calls, so that step n + 1 is enqueued before step n is waited for; on others a step is one call. The
 * draws of a step with late masks are a call of their own. A rank that fails aborts the group, so that the others come
 * out of their collectives; a team that failed once says ST_DEVICE for ever.
 * Over 500 lines: one struct, and what its threads, the engine and the loading do with it. */
#include "engine/rank.h"
#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/model/ident.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 64, RANK_ERR_BYTES = 512, PROBE_BYTES = 4 << 20, PROBE_GPU_BYTES = 1 << 30 };
_Static_assert((int)RANKS_MAX <= (int)XFER_RANKS_MAX, "tiers take every rank of a team");
enum { CALLS_MAX = 2 * ENG_DEPTH_MAX + 1 }; /* not yet done: submit and draw of each step in flight, and one wait */

enum rank_do { RANK_SUBMIT, RANK_DRAW, RANK_WAIT };

struct rank_call {
    struct batch *batch;
    enum rank_do  what;
};

struct rank {
    struct rank_team *team;
    uint32_t          index;
    pthread_t         thread;
    bool              has_thread;
    struct device    *dev;
    struct model     *model;
    uint64_t          load_done; /* team->lock */
    uint64_t          n_done;    /* team->lock: calls, of which loading was the first */
    enum status       st;        /* team->lock: of loading, then of the last wait */
    char              err[RANK_ERR_BYTES];
};
struct rank_team {
    uint32_t          n_rank, n_total; /* here; on all nodes */
    struct dev_group *group;
    unsigned char     comm_id[DEV_COMM_ID];
    /* while loading: the caller's */
    const struct model_spec *spec;
    const struct source     *src;
    struct rank_cfg          cfg;
    uint64_t                 arena_bytes, weight_bytes, work_bytes; /* per rank */
    struct xfer_ranks        kv, kv_windows;                        /* rank_team_kv's and rank_team_kv_windows' */

    bool     async;      /* the device works by itself */
    uint32_t depth;      /* steps in flight at most */
    uint32_t n_inflight; /* engine: submitted and not waited for */
    bool     dead;       /* engine */

    pthread_mutex_t  lock; /* everything below, and what the ranks say */
    pthread_cond_t   work, done;
    uint64_t         n_call; /* so far; the first one is loading */
    struct rank_call call[CALLS_MAX];
    bool             stop;
    struct rank      rank[];
};

/* ---------------------------------------------------------------- loading */

static void rank_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct rank      *r = ctx;
    struct rank_team *t = r->team;
    pthread_mutex_lock(&t->lock);
    r->load_done = done;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->n_rank; i++) sum += t->rank[i].load_done;
    t->cfg.load.progress(t->cfg.load.progress_ctx, sum, total * t->n_rank); /* under the lock: numbers only rise */
    pthread_mutex_unlock(&t->lock);
}

static struct dev_cfg rank_dev_cfg(const struct rank_team *t, uint32_t index, uint64_t arena_bytes, uint32_t n_thread)
{
    const struct rank_cfg *c = &t->cfg;
    enum dtype             weight = c->load.weight_dtype == DT_COUNT ? t->spec->dtype : c->load.weight_dtype;
    return (struct dev_cfg){ .kind = c->device,
                             .arena_bytes = (size_t)arena_bytes,
                             .n_thread = n_thread,
                             .rank = c->first + index,
                             .n_rank = t->n_total,
                             .simd = c->simd,
                             .first = c->first,
                             .n_local = t->n_rank,
                             .group = t->n_total > 1 ? t->group : NULL,
                             .comm = c->comm,
                             .symmetric = c->symmetric,
                             .reduced_bytes =
                                 model_reduced_bytes(t->spec, &c->load, t->n_total, DT_BF16), /* or F16: of one size */
                             .vote = c->vote,
                             .comm_id = c->agree ? t->comm_id : NULL,
                             .act = weight == DT_F16 ? DT_F16 : DT_BF16,
                             .ordinal = c->n_ordinal ? c->ordinal[index % c->n_ordinal] : -1,
                             .deterministic = c->deterministic,
                             .rows_max = c->load.batch_rows_max,
                             .eager = c->eager,
                             .pdl = c->pdl,
                             .wgmma = c->wgmma,
                             .fp8_prefill = c->fp8_prefill,
                             .utilization = c->utilization,
                             .gemm_file = c->gemm_file,
                             .cublaslt = c->cublaslt };
}

static uint32_t rank_threads(const struct rank_team *t)
{
    uint32_t n = (t->cfg.n_thread ? t->cfg.n_thread : thread_cpu_count()) / t->n_rank;
    return n ? n : 1;
}

static enum status rank_load(struct rank *r)
{
    struct rank_team     *t = r->team;
    struct model_load_cfg load = t->cfg.load;
    struct dev_cfg        dev = rank_dev_cfg(t, r->index, t->arena_bytes, rank_threads(t));
    enum status           st = dev_open(&dev, &r->dev);
    if (st) {
        snprintf(r->err, sizeof r->err, "rank %u: the device cannot be opened with %" PRIu64 " bytes: %s", dev.rank,
                 t->arena_bytes, status_name(st));
        return st;
    }
    if (!load.n_thread) load.n_thread = rank_threads(t);
    if (load.progress) {
        load.progress = rank_progress;
        load.progress_ctx = r;
    }
    return model_load(t->spec, t->src, &load, r->dev, &r->model, r->err, sizeof r->err);
}

/* What a rank's device with an arena of this size (on a GPU 0: as large as may be) has left for us once it has taken
 * its own scratch; plan_out may be NULL. */
static enum status team_probe(struct rank_team *t, uint32_t index, uint64_t arena_bytes, uint64_t *free_out,
                              struct model_plan *plan_out)
{
    struct dev_cfg cfg = rank_dev_cfg(t, index, arena_bytes, rank_threads(t));
    struct device *dev;
    cfg.plan_only = true;
    enum status st = dev_open(&cfg, &dev);
    if (st) return st;
    *free_out = dev->ops->free_bytes(dev);
    t->async = dev->async;
    if (plan_out) st = model_plan(t->spec, &t->cfg.load, dev, plan_out);
    dev_close(dev);
    return st;
}

/* The smallest arena in which `need` bytes are free: a device's scratch grows with its arena, so ask until it fits. */
static enum status team_grow(struct rank_team *t, uint64_t need)
{
    uint64_t left = 0;
    t->arena_bytes = need + (t->cfg.device == DEV_CUDA ? PROBE_GPU_BYTES : PROBE_BYTES);
    for (int i = 0; i < 16; i++) {
        enum status st = team_probe(t, 0, t->arena_bytes, &left, NULL);
        if (st) return st;
        if (left >= need && left - need <= PROBE_BYTES / 4) return ST_OK;
        t->arena_bytes += need - left; /* down as well as up */
    }
    return left >= need ? ST_OK : ST_NOMEM;
}

uint32_t rank_windows_of(const struct rank_windows *w, uint64_t room, uint64_t block_bytes, uint64_t window_bytes)
{
    uint64_t least = w->least * block_bytes, beside = room > least ? (room - least) / window_bytes : 0;
    uint64_t n = (uint64_t)((double)room * w->share / (double)window_bytes);
    if (n > beside) n = beside;
    if (n > w->max) n = w->max;
    return n < w->min ? w->min : (uint32_t)n;
}

/* How large the arena of a rank must be, and how many blocks its pool gets; before anything of the model is read. */
static enum status team_plan(struct rank_team *t, char *err, size_t err_bytes)
{
    enum status checked = model_quant_check(t->spec, &t->cfg.load, t->cfg.device, t->n_total, err, err_bytes);
    if (checked) return checked;
    struct model_load_cfg *load = &t->cfg.load;
    uint64_t               all = t->cfg.memory_bytes, kv = t->cfg.kv_bytes, left = 0;
    struct model_plan      plan;
    bool                   gpu = t->cfg.device == DEV_CUDA;
    if (t->cfg.windows.share > 0 && !load->n_window)
        load->n_window = 1; /* the plan tells the two kinds of blocks apart */
    uint64_t probe = gpu ? 0 : PROBE_BYTES * (1 + (uint64_t)rank_threads(t));
    if (all) probe = all;
    enum status st = team_probe(t, 0, probe, &left, &plan);
    for (uint32_t i = 1; gpu && !st && i < t->n_rank;
         i++) { /* the pools are equal: the GPU with the least left decides */
        uint64_t mine = 0;
        st = team_probe(t, i, probe, &mine, NULL);
        if (mine < left) left = mine;
    }
    if (st) {
        snprintf(err, err_bytes, "the device cannot be opened%s: %s", all ? " with the memory that it is given" : "",
                 status_name(st));
        return st == ST_NOMEM && (all || gpu) ? ST_CONFIG : st;
    }
    uint64_t fixed = plan.weight_bytes + plan.work_bytes, windows = load->n_window * plan.window_bytes;
    if (!all && !gpu) left = fixed + (load->n_block ? load->n_block * plan.block_bytes + windows : kv);
    if (!load->n_block) {
        uint64_t room = left > fixed ? left - fixed : 0;
        if (kv && kv < room) room = kv;
        if (t->cfg.windows.share > 0)
            load->n_window = rank_windows_of(&t->cfg.windows, room, plan.block_bytes, plan.window_bytes);
        windows = load->n_window * plan.window_bytes;
        room -= room < windows ? room : windows;
        load->n_block = room / plan.block_bytes < UINT32_MAX ? (uint32_t)(room / plan.block_bytes) : UINT32_MAX;
    }
    fixed += windows;
    uint32_t most = load->n_block, least = t->cfg.blocks_min ? t->cfg.blocks_min : 1,
             n_block = most > least ? most : least;
    uint64_t need = fixed + n_block * plan.block_bytes;
    if (n_block > most || left < need) {
        snprintf(err, err_bytes,
                 "device memory: %" PRIu64 " bytes needed (weights %" PRIu64 ", workspace %" PRIu64
                 ", %u KV blocks of %" PRIu64 ", %u of windows of %" PRIu64 "), available are %" PRIu64,
                 need, plan.weight_bytes, plan.work_bytes, n_block, plan.block_bytes, load->n_window, plan.window_bytes,
                 left);
        return ST_CONFIG;
    }
    if (all) {
        t->arena_bytes = all;
    } else if ((st = team_grow(t, need + (windows ? 128 : 64)))) {
        snprintf(err, err_bytes, "the device cannot be opened with %" PRIu64 " bytes: %s", t->arena_bytes,
                 status_name(st));
        return st;
    }
    t->weight_bytes = plan.weight_bytes;
    t->work_bytes = plan.work_bytes;
    LOG_INFO("model: %s, %u layers, weights %" PRIu64 " MiB, workspace %" PRIu64 " MiB, %u KV blocks of %" PRIu64
             " KiB, %u rank%s",
             t->spec->family->arch, t->spec->n_layer, plan.weight_bytes >> 20, plan.work_bytes >> 20, load->n_block,
             plan.block_bytes >> 10, t->n_rank, t->n_rank == 1 ? "" : "s");
    if (load->expert_parallel && t->n_total > 1)
        LOG_INFO("model: experts: %u of %u on each rank", t->spec->n_expert / t->n_total, t->spec->n_expert);
    if (load->expert_parallel && t->n_total == 1)
        LOG_WARN("model: --enable-expert-parallel changes nothing on one rank; see --tensor-parallel-size");
    if (load->n_window)
        LOG_INFO("model: layers with a window have %u KV blocks of %" PRIu64 " KiB of their own", load->n_window,
                 plan.window_bytes >> 10);
    if (load->lora_slots)
        LOG_INFO("lora: %u slots of adapters of rank up to %u, %" PRIu64 " KiB each on every rank", load->lora_slots,
                 load->lora_rank, plan.lora_bytes / load->lora_slots >> 10);
    return ST_OK;
}

/* ---------------------------------------------------------------- running */

static void rank_done(struct rank *r, enum status st)
{
    struct rank_team *t = r->team;
    if (st && t->group)
        dev_group_abort(t->group); /* those in a collective (opening devices has some) must not wait for this rank */
    pthread_mutex_lock(&t->lock);
    r->n_done++;
    if (st || !r->st) r->st = st;
    pthread_cond_signal(&t->done); /* the engine alone waits for it */
    pthread_mutex_unlock(&t->lock);
}

static void model_call(struct model *m, const struct rank_call *c)
{
    if (c->what == RANK_SUBMIT) model_submit(m, c->batch);
    if (c->what == RANK_DRAW) model_draw(m, c->batch);
}

static void *rank_main(void *arg)
{
    struct rank      *r = arg;
    struct rank_team *t = r->team;
    rank_done(r, rank_load(r));
    for (uint64_t n = 1;; n++) {
        pthread_mutex_lock(&t->lock);
        while (t->n_call == n && !t->stop) pthread_cond_wait(&t->work, &t->lock);
        bool             stop = t->stop;
        struct rank_call c = t->call[n % CALLS_MAX];
        pthread_mutex_unlock(&t->lock);
        if (stop) return NULL;
        model_call(r->model, &c);
        bool done = t->async ? c.what == RANK_WAIT : c.what == RANK_DRAW || !c.batch->late;
        rank_done(r, done ? model_wait(r->model, c.batch) : ST_OK);
    }
}

static bool threaded(const struct rank_team *t) { return t->n_rank > 1 || (t->depth > 1 && !t->async); }

static void team_call(struct rank_team *t, struct batch *b, enum rank_do what)
{
    struct rank_call c = { b, what };
    if (!threaded(t)) {
        model_call(t->rank[0].model, &c);
        return;
    }
    pthread_mutex_lock(&t->lock);
    t->call[t->n_call % CALLS_MAX] = c;
    t->n_call++;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
}

/* Until every rank has done the first n_call calls. */
static enum status team_join(struct rank_team *t, uint64_t n_call)
{
    enum status st = ST_OK;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < t->n_rank; i++) {
        while (t->rank[i].n_done < n_call) pthread_cond_wait(&t->done, &t->lock);
        if (!st) st = t->rank[i].st;
    }
    pthread_mutex_unlock(&t->lock);
    return st;
}

static void team_submit(void *ctx, struct batch *b)
{
    struct rank_team *t = ctx;
    ASSERT_THREAD(THREAD_ENGINE);
    if (t->dead) return;
    CHECK(t->n_inflight < t->depth);
    t->n_inflight++;
    team_call(t, b, RANK_SUBMIT);
}

static void team_draw(void *ctx, struct batch *b)
{
    struct rank_team *t = ctx;
    ASSERT_THREAD(THREAD_ENGINE);
    if (!t->dead) team_call(t, b, RANK_DRAW);
}

static enum status team_wait(void *ctx, struct batch *b)
{
    struct rank_team *t = ctx;
    ASSERT_THREAD(THREAD_ENGINE);
    if (!t->n_inflight) {
        CHECK(t->dead);
        return ST_DEVICE;
    }
    t->n_inflight--;
    enum status st;
    if (threaded(t)) {
        if (t->async) team_call(t, b, RANK_WAIT);
        st = team_join(t, t->async ? t->n_call : t->n_call - t->n_inflight);
    } else {
        st = model_wait(t->rank[0].model, b);
    }
    if ((!st || st == ST_STEP) && !t->dead) return st;
    if (!t->dead) LOG_ERROR("rank: a batch of %u rows failed: %s, the device is given up", b->n_row, status_name(st));
    t->dead = true; /* what is still in flight is waited for all the same: its batch is in use until then */
    return st == ST_BROKEN ? st : ST_DEVICE;
}

/* ---------------------------------------------------------------- life */

static enum status team_start(struct rank_team *t)
{
    t->depth = t->async ? 2 : 1;
    if (t->cfg.depth) t->depth = t->cfg.depth;
    if (!threaded(t)) return t->rank[0].st = rank_load(&t->rank[0]);
    t->n_call = 1;
    for (uint32_t i = 0; i < t->n_rank; i++) {
        char name[16];
        snprintf(name, sizeof name, "rank%u", i);
        enum status st = thread_start(&t->rank[i].thread, THREAD_RANK, name, rank_main, &t->rank[i]);
        t->rank[i].has_thread = st == ST_OK;
        if (!st) continue;
        snprintf(t->rank[i].err, sizeof t->rank[i].err, "rank %u: no thread: %s", i, status_name(st));
        rank_done(&t->rank[i], st);
    }
    return team_join(t, 1);
}

/* The first that failed by itself; ST_DEVICE is said by those that another one has let down too. */
static enum status team_blame(const struct rank_team *t, char *err, size_t err_bytes)
{
    const struct rank *first = NULL;
    for (uint32_t i = 0; i < t->n_rank; i++) {
        const struct rank *r = &t->rank[i];
        if (r->st && (!first || (first->st == ST_DEVICE && r->st != ST_DEVICE))) first = r;
    }
    CHECK(first);
    snprintf(err, err_bytes, "%s", first->err);
    return first->st;
}

enum status rank_team_create(const struct model_spec *spec, const struct source *src, const struct rank_cfg *cfg,
                             uint32_t *n_block_out, struct rank_team **t_out, char *err, size_t err_bytes)
{
    uint32_t n_total = cfg->n_rank ? cfg->n_rank : 1, n_rank = cfg->n_local ? cfg->n_local : n_total;
    if (n_total > RANKS_MAX) {
        snprintf(err, err_bytes, "%u tensor-parallel ranks, at most %d", n_total, RANKS_MAX);
        return ST_CONFIG;
    }
    /* before a byte of device memory is taken */
    enum status st = model_check(spec, src, n_total, cfg->load.expert_parallel, err, err_bytes);
    if (st) return st;
    struct rank_team *t = calloc(1, sizeof *t + n_rank * sizeof t->rank[0]);
    if (!t) {
        snprintf(err, err_bytes, "no memory for %u ranks", n_rank);
        return ST_NOMEM;
    }
    t->n_rank = n_rank;
    t->n_total = n_total;
    t->spec = spec;
    t->src = src;
    t->cfg = *cfg;
    t->group = cfg->group;
    t->cfg.device = dev_resolve(cfg->device);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    for (uint32_t i = 0; i < n_rank; i++) {
        t->rank[i].team = t;
        t->rank[i].index = i;
    }
    if (n_total > 1 && !t->group && (st = dev_group_create(n_rank, &t->group)))
        snprintf(err, err_bytes, "no group of %u ranks: %s", n_rank, status_name(st));
    if (!st) st = team_plan(t, err, err_bytes);
    if (!st && cfg->agree) st = cfg->agree(cfg->agree_ctx, &t->cfg.load.n_block, t->comm_id, err, err_bytes);
    if (!st && (st = team_start(t))) st = team_blame(t, err, err_bytes);
    t->spec = NULL;
    t->src = NULL;
    if (st) {
        rank_team_free(t);
        return st;
    }
    *n_block_out = t->cfg.load.n_block;
    *t_out = t;
    return ST_OK;
}

/* A guest is the slices of all ranks, rank 0 first, as below the device. */
static bool team_guests(void *ctx, const struct eng_guests *g)
{
    struct rank_team *t = ctx;
    uint64_t          at = 0;
    for (uint32_t i = 0; i < t->n_rank; at += model_kv(t->rank[i++].model)->block_bytes) {
        if (!dev_reaches(t->rank[i].dev, g->first + at)) {
            LOG_ERROR("rank %u: its device cannot read the host's KV in place: it is not coherent with the host's "
                      "memory, and that is not pinned (ulimit -l?)",
                      t->cfg.first + i);
            return false;
        }
        model_kv_guests(t->rank[i].model, g->first + at, g->step, g->n);
    }
    return true;
}

static void team_graphs(void *ctx, struct dev_graphs *out)
{
    const struct rank_team *t = ctx;
    dev_graphs(t->rank[0].dev, out);
}

uint32_t rank_team_windows(const struct rank_team *t) { return t->cfg.load.n_window; }

const struct dev_kv *rank_team_window_pool(const struct rank_team *t, uint32_t i)
{
    return model_kv_window(t->rank[i].model);
}

struct eng_runner rank_team_runner(struct rank_team *t)
{
    return (struct eng_runner){ .ctx = t,
                                .submit = team_submit,
                                .wait = team_wait,
                                .draw = model_can_draw_late(t->rank[0].model) ? team_draw : NULL,
                                .depth = t->depth,
                                .computes = !threaded(t) && !t->async,
                                .graphs = team_graphs,
                                .guests = team_guests };
}

const float *rank_team_logits(struct rank_team *t) { return model_logits(t->rank[0].model); }

struct device *rank_team_device(struct rank_team *t) { return t->rank[0].dev; }

bool rank_team_place(const struct rank_team *t, uint32_t i, struct dev_place *out)
{
    return i < t->n_rank && dev_place(t->rank[i].dev, out);
}

void rank_team_ident(const struct rank_team *t, unsigned char out[32])
{
    unsigned char rank[RANKS_MAX][IDENT_BYTES];
    for (uint32_t i = 0; i < t->n_rank; i++) memcpy(rank[i], model_ident(t->rank[i].model), IDENT_BYTES);
    ident_ranks((const unsigned char(*)[IDENT_BYTES])rank, t->n_rank, out);
}

uint64_t rank_team_weight_bytes(const struct rank_team *t) { return t->weight_bytes * t->n_rank; }
uint64_t rank_team_work_bytes(const struct rank_team *t) { return t->work_bytes * t->n_rank; }

enum dtype rank_team_kv_dtype(const struct rank_team *t) { return model_kv(t->rank[0].model)->dtype; }

const struct xfer_ranks *rank_team_kv(struct rank_team *t, uint32_t *n_block_out)
{
    struct xfer_ranks *kv = &t->kv;
    if (t->n_rank < t->n_total) return NULL;
    *kv = (struct xfer_ranks){ .n = t->n_rank };
    for (uint32_t i = 0; i < t->n_rank; i++) {
        const struct dev_kv *pool = model_kv(t->rank[i].model);
        kv->rank[i] = (struct xfer_rank){ .dev = t->rank[i].dev, .base = pool->base, .bytes = pool->block_bytes };
        kv->block_bytes += pool->block_bytes;
        *n_block_out = pool->n_block; /* the same on all */
    }
    return kv;
}

const struct xfer_ranks *rank_team_kv_windows(struct rank_team *t, uint32_t *n_block_out)
{
    struct xfer_ranks *kv = &t->kv_windows;
    if (t->n_rank < t->n_total || !t->cfg.load.n_window) return NULL;
    *kv = (struct xfer_ranks){ .n = t->n_rank };
    for (uint32_t i = 0; i < t->n_rank; i++) {
        const struct dev_kv *pool = model_kv_window(t->rank[i].model);
        uint64_t             piece = model_kv(t->rank[i].model)->block_bytes;
        kv->rank[i] =
            (struct xfer_rank){ .dev = t->rank[i].dev, .base = pool->base, .bytes = pool->block_bytes, .piece = piece };
        if (piece > pool->block_bytes) return NULL;
        kv->block_bytes += pool->block_bytes;
        kv->piece_bytes += piece;
        *n_block_out = pool->n_block; /* the same on all */
    }
    uint64_t n = (kv->block_bytes + kv->piece_bytes - 1) / kv->piece_bytes;
    for (uint32_t i = 0; i < t->n_rank; i++)
        if (n * kv->rank[i].piece < kv->rank[i].bytes) return NULL; /* its slice has more pieces than the others' */
    return kv;
}

size_t rank_team_dump(struct rank_team *t, uint64_t now_us, char *text, size_t text_bytes)
{
    uint64_t done[RANKS_MAX] = { 0 }, n_call = 0;
    bool     known = pthread_mutex_trylock(&t->lock) == 0; /* whoever holds it may be what hangs */
    if (known) {
        n_call = t->n_call;
        for (uint32_t i = 0; i < t->n_rank; i++) done[i] = t->rank[i].n_done;
        pthread_mutex_unlock(&t->lock);
    }
    size_t at = 0;
    for (uint32_t i = 0; i < t->n_rank; i++) {
        char line[400], calls[80] = "", where[80] = "";
        if (known && threaded(t))
            snprintf(calls, sizeof calls, ", %" PRIu64 " of %" PRIu64 " calls done", done[i], n_call);
        if (t->rank[i].model) model_where(t->rank[i].model, where, sizeof where);
        size_t n = t->rank[i].dev ? dev_doing(t->rank[i].dev, now_us, line, sizeof line) : 0;
        int    k = snprintf(text + at, text_bytes - at, "rank %u: %s%s%.*s%s\n", t->cfg.first + i, where, n ? "; " : "",
                            (int)n, line, calls);
        if (k < 0 || (size_t)k >= text_bytes - at) break;
        at += (size_t)k;
    }
    return at;
}

void rank_team_free(struct rank_team *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->n_rank; i++)
        if (t->rank[i].has_thread) pthread_join(t->rank[i].thread, NULL);
    for (uint32_t i = 0; i < t->n_rank; i++) {
        model_free(t->rank[i].model);
        if (t->rank[i].dev) dev_close(t->rank[i].dev);
    }
    if (t->group && t->group != t->cfg.group) dev_group_free(t->group);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t);
}
