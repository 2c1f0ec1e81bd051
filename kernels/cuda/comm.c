/* Over 500 lines: one protocol among ranks, with three ways to carry it that are chosen by size and kind. */
/* comm: who are the other ranks, and what carries a message to them.
 * Our own kernels (comm.h) carry what is small, between ranks of this process whose memory reaches each other's; NCCL
 * carries what is large, and everything between nodes. With --deterministic, sums that NCCL carries are gathered and
 * added in rank order like ours: its own order changes with the size of the message.
 * What NCCL carries lies in a window where there can be one (window.h): its symmetric kernels then sum in place. In
 * which order, with how many bits between, and in the switch or not, follows from the size of the message again, so
 * deterministic sums stay ours; a gather moves bytes and adds nothing, so it may be symmetric there too.
 * When a rank fails the group is aborted: the word in host memory that waiting kernels look at is set, and NCCL's
 * communicator is aborted, so that no stream waits for a rank that will never come. */
#include "kernels/cuda/comm.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernels/cuda/nccl_api.h"
#include "kernels/cuda/window.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STAGE = WINDOW_STAGE, INIT_LIMIT_US = 600 * 1000000, ABORT_S = 1 };

struct cuda_comm {
    uint32_t         index, n_local; /* of this rank in its group */
    bool             own;            /* our kernels reach every rank */
    size_t           own_max;        /* bytes: above, NCCL where there is one */
    struct comm_view view;
    uint32_t        *abort; /* pinned, mapped: view.abort is its device address */
    char            *stage; /* [STAGE] what NCCL gathered */

    const struct nccl_api *api;
    pthread_mutex_t        lock; /* nccl, against the abort by another thread */
    nccl_comm              nccl; /* NULL: none, or aborted */

    /* while the window is registered: what ranks decide together may end the wait */
    const struct dev_vote *vote; /* of the first rank of the process, where there are others */
    bool                   voting;
    unsigned char          next_id[DEV_COMM_ID];
};

/* Up to where one exchange beats NCCL on NVLink: at 4 ranks until 1 to 2 MB (14 against 23 us), at 8 until 256 KB. It
 * grows with the ranks what each must write. Sources: vllm#24532, #42324, #44079. Over PCIe there are no such figures:
 * there it is what two ranks write in the time that NCCL needs to begin. */
static size_t own_max(uint32_t n_rank, bool nvlink)
{
    if (!nvlink) return 128 << 10;
    if (n_rank <= 2) return 2 << 20;
    if (n_rank <= 4) return 1 << 20;
    return n_rank <= 8 ? 256 << 10 : 64 << 10;
}

static size_t slot_bytes(uint32_t n_rank) { return (size_t)2 * n_rank * COMM_BLOCKS * COMM_TILE; }
static bool   needed(const struct dev_cfg *cfg) { return cfg->n_rank > 1 || cfg->comm == DEV_COMM_NCCL; }
static bool   own_possible(const struct dev_cfg *cfg)
{
    return cfg->n_rank > 1 && cfg->n_rank <= COMM_RANKS_MAX && cfg->n_local == cfg->n_rank &&
           cfg->comm != DEV_COMM_NCCL;
}

bool cuda_comm_may_nccl(const struct dev_cfg *cfg)
{
    return needed(cfg) && !(own_possible(cfg) && (cfg->comm == DEV_COMM_OWN || cfg->deterministic));
}

enum {
    FLAG_BYTES = COMM_BLOCKS * COMM_RANKS_MAX * 4 + 4, /* and a count of what is wrong */
    COUNT_BYTES = COMM_BLOCKS * 4,
    SLACK = 4 * 256 /* of aligning each */
};

uint64_t cuda_comm_bytes(const struct dev_cfg *cfg)
{
    if (!needed(cfg)) return 0;
    return STAGE + SLACK + (own_possible(cfg) ? slot_bytes(cfg->n_rank) + FLAG_BYTES + COUNT_BYTES : 0);
}

/* ---------------------------------------------------------------- abort */

static bool comm_aborted(const struct cuda_comm *c) { return __atomic_load_n(c->abort, __ATOMIC_RELAXED) != 0; }

static void comm_abort(void *ctx) /* any thread */
{
    struct cuda_dev  *d = ctx;
    struct cuda_comm *c = d->comm;
    __atomic_store_n(&d->lost, true, __ATOMIC_SEQ_CST); /* before a kernel ends without its peers */
    __atomic_store_n(c->abort, 1, __ATOMIC_SEQ_CST);    /* whoever holds the lock and waits sees this */
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += ABORT_S;
    bool held = pthread_mutex_timedlock(&c->lock, &limit) ==
                0; /* else the rank is stuck in a call, behind a full queue: free it */
    nccl_comm nccl = __atomic_exchange_n(&c->nccl, NULL, __ATOMIC_ACQ_REL);
    if (nccl) c->api->CommAbort(nccl);
    if (held) pthread_mutex_unlock(&c->lock);
}

/* ---------------------------------------------------------------- the group agrees */

/* True when every rank of this process says yes; all learn the same. ST_DEVICE: the group was aborted. */
static enum status agree(struct cuda_dev *d, bool yes, bool *all_out)
{
    struct cuda_comm *c = d->comm;
    bool              all = yes;
    if (c->n_local > 1) {
        group_publish(d->group, c->index, &yes, sizeof yes);
        if (!group_meet(d->group)) return ST_DEVICE;
        for (uint32_t r = 0; r < c->n_local; r++) all &= *(bool *)group_peek(d->group, r, sizeof yes);
        if (!group_meet(d->group)) return ST_DEVICE;
    }
    *all_out = all;
    return ST_OK;
}

/* ---------------------------------------------------------------- our own kernels */

struct hello {
    int       ordinal, n_sm;
    char     *slot;
    uint32_t *flag;
};

static bool reach(struct cuda_dev *d, int peer)
{
    int can = 0;
    if (peer == d->ordinal) return true;
    if (cudaDeviceCanAccessPeer(&can, d->ordinal, peer) != cudaSuccess || !can) return false;
    cudaError_t e = cudaDeviceEnablePeerAccess(peer, 0);
    (void)cudaGetLastError();
    return e == cudaSuccess || e == cudaErrorPeerAccessAlreadyEnabled;
}

/* Whether the link has atomics of its own: NVLink does, PCIe does not. */
static bool link_is_fast(const struct cuda_dev *d, int peer)
{
    int native = 0;
    if (peer == d->ordinal) return true;
    cudaError_t e = cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, d->ordinal, peer);
    (void)cudaGetLastError();
    return e == cudaSuccess && native;
}

/* One exchange of known words, all ranks at a time. That a GPU may reach another is what its driver believes; behind an
 * IOMMU, in some virtual machines and with patched drivers writes vanish or arrive wrong, and nothing says so.
 * wrong_out: how many pieces of 16 bytes and flags have not arrived here as they were sent. */
static enum status prove(struct cuda_dev *d, uint32_t e, uint32_t *wrong_out)
{
    struct cuda_comm *c = d->comm;
    uint32_t         *n_wrong = c->view.flag[c->view.rank] + COMM_BLOCKS * COMM_RANKS_MAX;
    comm_prove_write(d, &c->view, e);
    if (!cuda_wait(d, NULL, "a proof of peer access") || !group_meet(d->group)) return ST_DEVICE;
    comm_prove_read(d, &c->view, e, n_wrong);
    cuda_to_host(&d->impl.dev, wrong_out, n_wrong, sizeof *wrong_out);
    return d->lost || !group_meet(d->group) ? ST_DEVICE : ST_OK;
}

/* Both halves of the slots, as exchanges use them in turns. own_out: what is written arrives, at every rank. */
static enum status prove_all(struct cuda_dev *d, bool *own_out)
{
    uint32_t wrong = 0;
    for (uint32_t e = 1; e <= 2; e++) {
        enum status st = prove(d, e, &wrong);
        if (st) return st;
    }
    if (wrong)
        LOG_WARN(
            "dev: gpu %d: %u of %u pieces that other GPUs wrote into its memory are missing or wrong, though the driver says that "
            "they reach it (IOMMU, virtual machine?); our own kernels between ranks are off, NCCL carries everything",
            d->ordinal, wrong, 2 * COMM_BLOCKS * (COMM_THREADS * COMM_VECS + 1) * (d->impl.dev.n_rank - 1));
    return agree(d, !wrong, own_out);
}

/* Takes slots and flags and learns where the others have theirs. asked: more than two ranks use them over PCIe too.
 * distinct_out: no two ranks share a GPU. */
static enum status own_init(struct cuda_dev *d, bool possible, bool asked, bool *distinct_out)
{
    struct cuda_comm *c = d->comm;
    struct hello      me = { .ordinal = d->ordinal, .n_sm = d->n_sm };
    uint32_t         *count = NULL;
    void             *p = NULL;
    enum status       st = ST_OK;
    *distinct_out = true;
    if (possible) {
        st = cuda_take(d, slot_bytes(d->impl.dev.n_rank), &p);
        me.slot = p;
        if (!st) st = cuda_alloc(&d->impl.dev, FLAG_BYTES, &p);
        me.flag = p;
        if (!st) st = cuda_alloc(&d->impl.dev, COUNT_BYTES, &p);
        count = p;
        if (!st && !cuda_wait(d, NULL, "clearing the flags of the ranks"))
            st = ST_DEVICE; /* before a peer raises one */
        if (st) return st;
    }
    if (c->n_local == 1) return ST_OK;
    group_publish(d->group, c->index, &me, sizeof me);
    if (!group_meet(d->group)) return ST_DEVICE;
    bool ok = possible, fast = true;
    c->view.blocks = COMM_BLOCKS;
    for (uint32_t r = 0; r < c->n_local; r++) {
        const struct hello *h = group_peek(d->group, r, sizeof me);
        for (uint32_t s = 0; s < r; s++)
            if (((const struct hello *)group_peek(d->group, s, sizeof me))->ordinal == h->ordinal)
                *distinct_out = false;
        if ((uint32_t)h->n_sm < c->view.blocks) c->view.blocks = (uint32_t)h->n_sm;
        if (!ok) continue;
        ok = reach(d, h->ordinal);
        fast = fast && link_is_fast(d, h->ordinal);
        c->view.slot[r] = h->slot;
        c->view.flag[r] = h->flag;
    }
    if (!group_meet(d->group)) return ST_DEVICE; /* all have read it */
    c->view.count = count;
    c->view.rank = d->impl.dev.rank;
    c->view.n_rank = d->impl.dev.n_rank;
    enum status st_links = agree(d, fast, &fast);
    if (!st_links) st_links = agree(d, ok && (fast || c->n_local == 2 || asked), &c->own);
    c->own_max = own_max(d->impl.dev.n_rank, fast);
    if (st_links || !c->own) return st_links;
    return prove_all(d, &c->own);
}

/* ---------------------------------------------------------------- NCCL */

/* What all ranks have decided so far. */
static enum dev_ballot verdict(struct cuda_dev *d)
{
    struct cuda_comm *c = d->comm;
    return d->group ? group_verdict(d->group, c->index, c->n_local, c->vote, c->next_id) : DEV_BALLOT_OPEN;
}

/* True: enqueued. Calls return before they are done (NCCL_CONFIG), so an abort is always seen. The lock is held. */
static bool nccl_done(struct cuda_dev *d, int r)
{
    struct cuda_comm *c = d->comm;
    uint64_t          begin = clock_us();
    nccl_comm         nccl;
    while (r == NCCL_IN_PROGRESS && !comm_aborted(c) && (nccl = __atomic_load_n(&c->nccl, __ATOMIC_ACQUIRE)) &&
           clock_us() - begin < INIT_LIMIT_US && !(c->voting && verdict(d) != DEV_BALLOT_OPEN)) {
        struct timespec t = { .tv_nsec = 20000 };
        if (clock_us() - begin > 200) nanosleep(&t, NULL);
        int now = NCCL_OK;
        r = c->api->CommGetAsyncError(nccl, &now);
        if (r == NCCL_OK) r = now;
    }
    return r == NCCL_OK && !comm_aborted(c);
}

static void nccl_failed(struct cuda_dev *d, const char *what)
{
    struct cuda_comm *c = d->comm;
    if (comm_aborted(c)) {
        __atomic_store_n(&d->lost, true, __ATOMIC_RELAXED);
        return;
    }
    if (cuda_lose(d))
        LOG_ERROR("dev: gpu %d: NCCL %s failed: %s; the device is given up, all requests fail", d->ordinal, what,
                  c->nccl ? c->api->GetLastError(c->nccl) : "no communicator");
}

/* CALL: one of the collectives on `comm`. */
#define NCCL_RUN(d, what, CALL)                                \
    do {                                                       \
        struct cuda_comm *c_ = (d)->comm;                      \
        pthread_mutex_lock(&c_->lock);                         \
        nccl_comm comm = c_->nccl;                             \
        bool      ok_ = comm && nccl_done((d), c_->api->CALL); \
        pthread_mutex_unlock(&c_->lock);                       \
        if (!ok_) nccl_failed(d, what);                        \
    } while (0)

/* The name of the communicator: `given` to this rank or (one process) to all, or drawn by the first rank of the
 * process. */
static enum status nccl_id(struct cuda_dev *d, const unsigned char *given, struct nccl_id *id_out)
{
    struct cuda_comm *c = d->comm;
    enum status       st = ST_OK;
    if (given)
        memcpy(id_out->b, given, sizeof id_out->b);
    else if (c->index == 0 && c->api->GetUniqueId(id_out) != NCCL_OK)
        st = ST_CONFIG;
    if (c->n_local == 1) return st;
    bool ok = false;
    if (agree(d, st == ST_OK, &ok)) return ST_DEVICE;
    if (!ok) return ST_CONFIG;
    group_publish(d->group, c->index, id_out, sizeof *id_out);
    if (!group_meet(d->group)) return ST_DEVICE;
    if (c->index) *id_out = *(const struct nccl_id *)group_peek(d->group, 0, sizeof *id_out);
    return group_meet(d->group) ? ST_OK : ST_DEVICE;
}

/* ok_out: every rank of the process is in a communicator of that name. */
static enum status nccl_connect(struct cuda_dev *d, const struct dev_cfg *cfg, const unsigned char *given, bool *ok_out)
{
    struct cuda_comm  *c = d->comm;
    struct nccl_config config = NCCL_CONFIG;
    struct nccl_id     id = { { 0 } };
    enum status        st = nccl_id(d, given, &id);
    if (st == ST_CONFIG) LOG_ERROR("dev: gpu %d: NCCL gives no name for a communicator, cannot start", d->ordinal);
    if (st) return st;
    cuda_bind(d);
    pthread_mutex_lock(&c->lock);
    bool ok = nccl_done(d, c->api->CommInitRankConfig(&c->nccl, (int)cfg->n_rank, id, (int)cfg->rank, &config));
    pthread_mutex_unlock(&c->lock);
    if (!ok && !comm_aborted(c))
        LOG_ERROR("dev: gpu %d: NCCL %d does not connect rank %u of %u: %s", d->ordinal, c->api->version, cfg->rank,
                  cfg->n_rank, c->nccl ? c->api->GetLastError(c->nccl) : "no communicator");
    return agree(d, ok, ok_out);
}

static void nccl_drop(struct cuda_comm *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->nccl) c->api->CommAbort(c->nccl);
    c->nccl = NULL;
    pthread_mutex_unlock(&c->lock);
}

/* Whether windows are tried. What it looks at is the same on all ranks: NCCL connects no two versions, and nodes no two
 * options. */
static bool windows_wanted(const struct cuda_dev *d, const struct dev_cfg *cfg, char *why, size_t why_bytes)
{
    if (cfg->symmetric == DEV_SYMMETRIC_OFF) {
        snprintf(why, why_bytes, "they are off");
    } else if (!d->window) {
        snprintf(why, why_bytes, "no memory was planned for them");
    } else {
        return nccl_has_windows(d->comm->api, why, why_bytes);
    }
    return false;
}

/* All ranks at a time. What this rank came to; why: one line where it is not HAVE. A communicator in which it FAILED is
 * of no more use (NCCL takes no call after an error), and ranks that wait in it for the one that failed come out by the
 * verdict. */
static enum dev_ballot window_try(struct cuda_dev *d, char *why, size_t why_bytes)
{
    struct cuda_comm   *c = d->comm;
    struct cuda_window *w = d->window;
    if (!w->from) { /* the others find out while they register */
        snprintf(why, why_bytes, "%s", w->why);
        LOG_WARN("dev: %s", why);
        return DEV_BALLOT_FAILED;
    }
    pthread_mutex_lock(&c->lock);
    c->voting = true;
    bool ok =
        c->nccl && nccl_done(d, c->api->CommWindowRegister(c->nccl, w->base, w->bytes, &w->win, NCCL_WINDOW_SYMMETRIC));
    c->voting = false;
    const char *cause;
    if (ok)
        cause = "NCCL says that these GPUs cannot (NVLink or P2P between all, and NCCL_CUMEM_ENABLE not 0)";
    else if (verdict(d) != DEV_BALLOT_OPEN)
        cause = "another rank failed";
    else
        cause = c->nccl ? c->api->GetLastError(c->nccl) : "no communicator";
    snprintf(why, why_bytes, "%s", cause);
    pthread_mutex_unlock(&c->lock);
    if (!ok && !comm_aborted(c) && verdict(d) == DEV_BALLOT_OPEN)
        LOG_WARN("dev: gpu %d: NCCL registers no window of %zu bytes: %s", d->ordinal, w->bytes, why);
    if (!ok) return DEV_BALLOT_FAILED;
    return w->win ? DEV_BALLOT_HAVE : DEV_BALLOT_NONE;
}

/* The window is registered on every rank, or on none. ok_out: there is a communicator. */
static enum status windows_init(struct cuda_dev *d, const struct dev_cfg *cfg, bool *ok_out)
{
    struct cuda_comm *c = d->comm;
    char              why[300] = "";
    bool              wanted = windows_wanted(d, cfg, why, sizeof why);
    enum dev_ballot   mine = wanted ? window_try(d, why, sizeof why) : DEV_BALLOT_NONE, all = mine;
    *ok_out = true;
    if (wanted && d->group) {
        group_cast(d->group, mine);
        while ((all = verdict(d)) == DEV_BALLOT_OPEN && !comm_aborted(c)) {
            struct timespec t = { .tv_nsec = 50000 };
            nanosleep(&t, NULL);
        }
    }
    if (all == DEV_BALLOT_OPEN) return ST_DEVICE; /* aborted */
    if (mine == DEV_BALLOT_HAVE) snprintf(why, sizeof why, "not every rank could have one");
    if (all == DEV_BALLOT_HAVE) {
        if (c->index == 0)
            LOG_INFO("dev: NCCL %d: what ranks add up lies in a symmetric window of %zu MiB", c->api->version,
                     d->window->bytes >> 20);
        return ST_OK;
    }
    if (cfg->symmetric == DEV_SYMMETRIC_ON) {
        bool none;
        (void)agree(d, false,
                    &none); /* who leaves with an error aborts the others: first all are here, then one says why */
        if (c->index == 0) LOG_ERROR("dev: --nccl-symmetric on: no symmetric windows: %s, cannot start", why);
        return ST_CONFIG;
    }
    if (c->index == 0)
        LOG_INFO("dev: NCCL %d: no symmetric windows: %s; sums go through NCCL's own buffers", c->api->version, why);
    if (all == DEV_BALLOT_NONE) return ST_OK;
    nccl_drop(c); /* and its windows */
    if (d->window) d->window->win = NULL;
    return nccl_connect(d, cfg, cfg->comm_id && c->index == 0 ? c->next_id : NULL, ok_out);
}

static enum status nccl_init(struct cuda_dev *d, const struct dev_cfg *cfg)
{
    struct cuda_comm *c = d->comm;
    char              why[300];
    bool              all = false, must = !c->own;
    void             *p;
    c->api = nccl_api_get(why, sizeof why);
    if (!c->api) {
        if (!must && cfg->rank == 0)
            LOG_INFO("dev: no NCCL (%s): our own kernels carry everything between the ranks", why);
        if (!must) return ST_OK;
        LOG_ERROR("dev: gpu %d: NCCL is needed between these ranks: %s, cannot start", d->ordinal, why);
        return ST_CONFIG;
    }
    uint64_t    begin = clock_us();
    enum status st = nccl_connect(d, cfg, cfg->comm_id, &all);
    if (!st && all) st = windows_init(d, cfg, &all);
    if (st) return st;
    if (!all && must) return ST_CONFIG;
    if (!all) { /* it was for speed alone */
        if (cfg->rank == 0) LOG_WARN("dev: no NCCL: our own kernels carry everything between the ranks");
        nccl_drop(c);
        return ST_OK;
    }
    if (cfg->n_local < cfg->n_rank && !d->eager && nccl_graphs_hang(c->api->version)) {
        if (c->index == 0)
            LOG_WARN(
                "dev: NCCL %d hangs when graphs are replayed on several nodes: graphs are off; 2.30.4 or newer has them on",
                c->api->version);
        d->eager = true;
    }
    if (cfg->rank == 0)
        LOG_INFO("dev: NCCL %d, %u ranks, connected in %.1f s", c->api->version, cfg->n_rank,
                 (double)(clock_us() - begin) / 1e6);
    if (d->window && d->window->win && !nccl_gather_hangs(c->api->version, cfg->n_rank)) {
        c->stage = d->window->base;
        return ST_OK;
    }
    if ((st = cuda_take(d, STAGE, &p))) return st;
    c->stage = p;
    return ST_OK;
}

enum status cuda_comm_id(unsigned char id_out[DEV_COMM_ID])
{
    static_assert((int)DEV_COMM_ID == (int)NCCL_ID_BYTES, "one is carried as the other");
    char                   why[300];
    struct nccl_id         id;
    const struct nccl_api *api = nccl_api_get(why, sizeof why);
    if (!api || api->GetUniqueId(&id) != NCCL_OK) {
        LOG_ERROR("dev: NCCL is needed between nodes: %s",
                  api ? "it gives no name for a communicator (is NCCL_SOCKET_IFNAME right?)" : why);
        return ST_CONFIG;
    }
    memcpy(id_out, id.b, sizeof id.b);
    return ST_OK;
}

/* ---------------------------------------------------------------- life */

/* Windows are asked for where NCCL adds nothing. */
static enum status no_sums_of_nccl(struct cuda_dev *d)
{
    bool none;
    if (d->comm) (void)agree(d, false, &none); /* as in windows_init */
    if (d->impl.dev.rank == 0)
        LOG_ERROR(
            "dev: --nccl-symmetric on: NCCL carries nothing here: %s, cannot start",
            d->comm
                ? "our own kernels carry all (--deterministic or --collectives own in one machine, GPUs that are shared, or no NCCL)"
                : "there is one rank");
    return ST_CONFIG;
}

static enum status comm_start(struct cuda_dev *d, const struct dev_cfg *cfg)
{
    struct cuda_comm *c = d->comm;
    void             *p = NULL;
    cudaError_t       e = cudaHostAlloc(&p, sizeof *c->abort, cudaHostAllocMapped | cudaHostAllocPortable);
    if (e != cudaSuccess) {
        cuda_ok(d, e, "pinning a word");
        return ST_NOMEM;
    }
    c->abort = p;
    *c->abort = 0;
    if (!cuda_ok(d, cudaHostGetDevicePointer(&p, c->abort, 0), "mapping a word")) return ST_DEVICE;
    c->view.abort = p;
    if (d->group) group_at_abort(d->group, c->index, comm_abort, d);
    bool        distinct;
    enum status st = own_init(d, own_possible(cfg), cfg->comm == DEV_COMM_OWN || cfg->deterministic, &distinct);
    if (st) return st;
    if (!c->own && !distinct) {
        LOG_ERROR("dev: gpu %d: ranks share it, which NCCL refuses; give every rank a GPU of its own, cannot start",
                  d->ordinal);
        return ST_CONFIG;
    }
    bool want = !c->own || (cfg->comm == DEV_COMM_AUTO && distinct && !d->deterministic);
    if (want && (st = nccl_init(d, cfg))) return st;
    return c->stage || cfg->symmetric != DEV_SYMMETRIC_ON ? ST_OK : no_sums_of_nccl(d);
}

enum status cuda_comm_init(struct cuda_dev *d, const struct dev_cfg *cfg)
{
    if (!needed(cfg)) return cfg->symmetric == DEV_SYMMETRIC_ON ? no_sums_of_nccl(d) : ST_OK;
    struct cuda_comm *c = d->comm = calloc(1, sizeof *c);
    if (!c) return ST_NOMEM;
    pthread_mutex_init(&c->lock, NULL);
    c->index = cfg->rank - cfg->first;
    c->n_local = cfg->n_local ? cfg->n_local : cfg->n_rank;
    c->vote = c->index == 0 ? cfg->vote : NULL;
    return comm_start(d, cfg);
}

void cuda_comm_free(struct cuda_dev *d)
{
    struct cuda_comm *c = d->comm;
    if (!c) return;
    if (d->group) group_at_abort(d->group, c->index, NULL, NULL);
    if (c->nccl && d->window && d->window->win)
        (void)c->api->CommWindowDeregister(c->nccl, d->window->win); /* its graphs are gone */
    if (c->nccl)
        c->api->CommAbort(c->nccl); /* the process ends: nobody is asked first, so nobody can keep us waiting */
    if (c->abort) (void)cudaFreeHost(c->abort);
    pthread_mutex_destroy(&c->lock);
    free(c);
    d->comm = NULL;
}

/* ---------------------------------------------------------------- ops */

static bool by_own(const struct cuda_comm *c, size_t bytes) { return c->own && (bytes <= c->own_max || !c->stage); }

void cuda_allreduce(struct device *dev, void *x, size_t n)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct cuda_comm *c = d->comm;
    if (!c || !n || d->lost) return;
    if (by_own(c, n * 2)) {
        comm_allreduce(d, &c->view, x, n);
        return;
    }
    int type = dev->act == DT_F16 ? NCCL_F16 : NCCL_BF16;
    if (!d->deterministic) {
        NCCL_RUN(d, "all-reduce", AllReduce(x, x, n, type, NCCL_SUM, comm, d->stream));
        return;
    }
    size_t most = STAGE / 2 / dev->n_rank;
    for (size_t at = 0; at < n && !d->lost; at += most) {
        size_t k = n - at < most ? n - at : most;
        char  *y = (char *)x + at * 2;
        NCCL_RUN(d, "all-gather", AllGather(y, c->stage, k, type, comm, d->stream));
        comm_sum(d, y, c->stage, dev->n_rank, k);
    }
}

void cuda_broadcast(struct device *dev, void *x, size_t bytes)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct cuda_comm *c = d->comm;
    if (!c || !bytes || d->lost) return;
    if (by_own(c, bytes))
        comm_broadcast(d, &c->view, x, bytes);
    else
        NCCL_RUN(d, "broadcast", Broadcast(x, x, bytes, NCCL_INT8, 0, comm, d->stream));
}

void cuda_allgather(struct device *dev, float *out, const float *x, uint32_t m, uint32_t n_local)
{
    struct cuda_dev  *d = cuda_of(dev);
    struct cuda_comm *c = d->comm;
    size_t            n = (size_t)m * n_local;
    if (!n || d->lost) return;
    if (!c) {
        cuda_ok(d, cudaMemcpyAsync(out, x, n * sizeof *x, cudaMemcpyDeviceToDevice, d->stream), "allgather");
        return;
    }
    if (c->own) { /* of any size: NCCL would have to be followed by a pass over it all */
        CHECK(n <= UINT32_MAX - COMM_TILE);
        comm_allgather(d, &c->view, out, x, m, n_local);
        return;
    }
    size_t most = STAGE / sizeof *x / dev->n_rank;
    for (size_t at = 0; at < n && !d->lost; at += most) {
        size_t k = n - at < most ? n - at : most;
        NCCL_RUN(d, "all-gather", AllGather(x + at, c->stage, k, NCCL_F32, comm, d->stream));
        comm_spread(d, out, (const float *)(const void *)c->stage, dev->n_rank, at, k, n_local);
    }
}
