/* nccl: NCCL for the emulator. Ranks of one process or of several meet in a file in shared memory that is named by the
 * communicator's id. Work is enqueued as host functions, so captured graphs replay it. As with the real one, sums are
 * not added in rank order, calls do not block until the ranks have met, and nothing ends a wait for a rank that never
 * comes but CommAbort.
 * Windows are checked, not used: which one a pointer lies in and where, on every rank, at every run. What NCCL's
 * documentation forbids (different windows or offsets, a window on some ranks alone, one that is no longer registered,
 * memory given back under one) fails that call and all that follow in that communicator, and its result is NaN.
 * EMU_NCCL_VERSION, EMU_NCCL_WINDOWS: as emu_nccl_be. */
#include "nccl.h"
#include "kernels/cuda/nccl_api.h"
#include "rt.h"
#include <atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <fcntl.h>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <vector>

namespace
{
enum { PART = 1 << 18 }; /* bytes of a rank's message that are exchanged at a time */
enum { RANKS_MAX = 64, WINDOWS_MAX = 4, GRANULE = 2 << 20, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
struct Place { /* of a buffer: window 0 is none */
    uint64_t window, offset;
    bool     operator==(const Place &o) const { return window == o.window && offset == o.offset; }
};
struct Shared {
    std::atomic<uint32_t> joined, arrived, turn;
    struct {
        std::atomic<uint32_t> arrived, wrong;
        std::atomic<uint64_t> bytes;
    } window[WINDOWS_MAX];
    Place place[RANKS_MAX][2];        /* of what a rank sends and receives in the call that is running */
    alignas(64) unsigned char part[]; /* [n_rank][PART] */
};
struct Work {
    struct ncclComm *comm;
    int              kind; /* 0: all-reduce, 1: all-gather, 2: broadcast */
    const void      *send;
    void            *recv;
    size_t           count;
    int              type, root;
};
size_t size_of(int type) { return type == NCCL_INT8 ? 1 : type == NCCL_F32 ? 4 : 2; }

std::mutex             all_lock; /* what follows */
struct emu_nccl_counts counts;
struct Memory {
    char  *p;
    size_t bytes;
};
std::vector<Memory> &memories = *new std::vector<Memory>(); /* of MemAlloc */
std::vector<Memory> &gone = *new std::vector<Memory>();     /* that were registered, and are not any more */
int                  be_version;
bool                 be_windows = true;

int misuse(const char *what)
{
    std::lock_guard<std::mutex> g(all_lock);
    counts.misuse++;
    fprintf(stderr, "emu nccl: %s\n", what);
    return INVALID_USAGE;
}
} // namespace

struct nccl_win_s {
    struct ncclComm *comm;
    char            *p;
    size_t           bytes;
    uint32_t         number; /* from 1, as all ranks count them */
    bool             live;
};

struct ncclComm {
    Shared             *s;
    size_t              bytes;
    uint32_t            n, rank;
    char                path[64];
    std::atomic<bool>   aborted, ready;
    std::atomic<int>    error; /* not 0: for good */
    std::mutex          lock;  /* of what follows */
    std::vector<Work *> works;
    uint32_t            n_window;
    nccl_window         window[WINDOWS_MAX];
    nccl_window        *pending; /* where the window goes that is being registered */
};

static bool inside(const void *p, size_t n, const char *base, size_t bytes)
{
    return (const char *)p >= base && (const char *)p < base + bytes && n <= bytes - (size_t)((const char *)p - base);
}

/* Where a buffer lies; false: it may not be used at all. */
static bool place(ncclComm *c, const void *p, size_t bytes, Place *out)
{
    std::lock_guard<std::mutex> g(c->lock);
    *out = { 0, 0 };
    for (uint32_t i = 0; i < c->n_window; i++) {
        nccl_window w = c->window[i];
        if (!w || !w->live || !inside(p, 1, w->p, w->bytes)) continue;
        if (!inside(p, bytes, w->p, w->bytes)) return misuse("a buffer reaches beyond its window"), false;
        *out = { w->number, (uint64_t)((const char *)p - w->p) };
        return true;
    }
    std::lock_guard<std::mutex> h(all_lock);
    for (const Memory &m : gone)
        if (inside(p, 1, m.p, m.bytes)) {
            counts.misuse++;
            fprintf(stderr, "emu nccl: a buffer lies in a window that is deregistered\n");
            return false;
        }
    return true;
}

static bool meet(ncclComm *c)
{
    uint32_t turn = c->s->turn.load();
    if (c->s->arrived.fetch_add(1) + 1 == c->n) {
        c->s->arrived.store(0);
        c->s->turn.fetch_add(1);
        return true;
    }
    for (int i = 0; c->s->turn.load() == turn; i++) {
        if (c->aborted.load()) return false;
        struct timespec t = { 0, 20000 };
        if (i > 50) nanosleep(&t, NULL);
    }
    return true;
}

static float number(float x) { return x; }
static float number(__nv_bfloat16 x) { return __bfloat162float(x); }
static float number(__half x) { return __half2float(x); }
static void  round(float x, float *out) { *out = x; }
static void  round(float x, __nv_bfloat16 *out) { *out = __float2bfloat16_rn(x); }
static void  round(float x, __half *out) { *out = __float2half_rn(x); }

template <class T> static void sum(ncclComm *c, T *out, size_t n, size_t at)
{
    for (size_t i = 0; i < n; i++) {
        float    x = 0;
        uint32_t first = (uint32_t)((at + i) / 64 % c->n); /* a ring begins elsewhere for each piece */
        for (uint32_t k = 0; k < c->n; k++) {
            T y;
            memcpy(&y, c->s->part + (size_t)((first + k) % c->n) * PART + i * sizeof y, sizeof y);
            x += number(y);
        }
        round(x, &out[i]);
    }
}

static void run(void *arg)
{
    Work     *w = (Work *)arg;
    ncclComm *c = w->comm;
    size_t    one = size_of(w->type), most = PART / one;
    size_t    received = w->count * one * (w->kind == 1 ? c->n : 1);
    bool      sends = w->kind != 2 || c->rank == (uint32_t)w->root;
    Place     mine[2] = { { 0, 0 }, { 0, 0 } };
    if (!w->count || c->error.load()) return;
    bool may_write = place(c, w->recv, received, &mine[1]),
         ok = may_write && (!sends || place(c, w->send, w->count * one, &mine[0]));
    memcpy(c->s->place[c->rank], mine, sizeof mine);
    if (!meet(c)) return;
    if (w->kind != 2) /* a broadcast is never symmetric: root sends, the others receive */
        for (uint32_t r = 0; ok && r < c->n; r++)
            if (!(c->s->place[r][0] == mine[0]) || !(c->s->place[r][1] == mine[1])) {
                misuse("the ranks' buffers lie in different windows, or at different offsets");
                ok = false;
            }
    if (!ok) {
        if (may_write) memset(w->recv, 0xff, received);
        c->error.store(INVALID_USAGE);
    }
    if (!meet(c) || !ok) return; /* all have looked */
    {
        std::lock_guard<std::mutex> g(all_lock);
        bool                        in = mine[0].window && mine[1].window;
        if (w->kind == 0) (in ? counts.reduce_in : counts.reduce_out)++;
        if (w->kind == 1) (in ? counts.gather_in : counts.gather_out)++;
    }
    for (size_t at = 0; at < w->count && !c->aborted.load(); at += most) {
        size_t k = w->count - at < most ? w->count - at : most;
        if (w->kind != 2 || c->rank == (uint32_t)w->root)
            memcpy(c->s->part + (size_t)c->rank * PART, (const char *)w->send + at * one, k * one);
        if (!meet(c)) return;
        if (w->kind == 1) {
            for (uint32_t r = 0; r < c->n; r++)
                memcpy((char *)w->recv + (r * w->count + at) * one, c->s->part + (size_t)r * PART, k * one);
        } else if (w->kind == 2) {
            memcpy((char *)w->recv + at * one, c->s->part + (size_t)w->root * PART, k * one);
        } else if (w->type == NCCL_BF16) {
            sum(c, (__nv_bfloat16 *)w->recv + at, k, at);
        } else if (w->type == NCCL_F16) {
            sum(c, (__half *)w->recv + at, k, at);
        } else {
            sum(c, (float *)w->recv + at, k, at);
        }
        if (!meet(c)) return;
    }
}

static int enqueue(ncclComm *c, const Work &w, cudaStream_t stream)
{
    if (!c->ready.load() || c->aborted.load()) return INVALID_USAGE;
    if (c->error.load()) return c->error.load();
    Work *own = new Work(w);
    {
        std::lock_guard<std::mutex> g(c->lock);
        if (c->pending) return delete own, INVALID_ARGUMENT;
        c->works.push_back(own); /* a graph may run it again, until the communicator ends */
    }
    if (cudaLaunchHostFunc(stream, run, own) != cudaSuccess) return 1;
    return c->error.load();
}

static int get_version(int *version) /* set while nobody asks */
{
    const char *v = getenv("EMU_NCCL_VERSION");
    *version = be_version ? be_version : v ? (int)strtol(v, NULL, 10) : 23203;
    return NCCL_OK;
}
static int get_unique_id(struct nccl_id *id)
{
    return getrandom(id->b, sizeof id->b, 0) == (ssize_t)sizeof id->b ? NCCL_OK : 2;
}

static int comm_init(nccl_comm *out, int n, struct nccl_id id, int rank, struct nccl_config *config)
{
    if (n > RANKS_MAX) return INVALID_ARGUMENT;
    if (config->size != sizeof *config || config->magic != 0xcafebeefu || config->blocking != 0) return 4;
    ncclComm *c = new ncclComm();
    c->n = (uint32_t)n, c->rank = (uint32_t)rank, c->bytes = sizeof(Shared) + (size_t)n * PART;
    int at = snprintf(c->path, sizeof c->path, "/dev/shm/spillway-emu-");
    for (int i = 0; i < 16; i++) at += snprintf(c->path + at, sizeof c->path - (size_t)at, "%02x", id.b[i]);
    int   fd = open(c->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *p = MAP_FAILED;
    if (fd >= 0 && !ftruncate(fd, (off_t)c->bytes)) p = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (p == MAP_FAILED) {
        delete c;
        return 2;
    }
    static std::mutex               kept_lock;
    static std::vector<ncclComm *> &kept = *new std::vector<ncclComm *>(); /* until the process ends, see CommAbort */
    {
        std::lock_guard<std::mutex> g(kept_lock);
        kept.push_back(c);
    }
    {
        std::lock_guard<std::mutex> g(all_lock);
        counts.communicators++;
    }
    c->s = (Shared *)p; /* a new file is zero, and so are its atomics */
    c->s->joined.fetch_add(1);
    *out = c;
    return NCCL_IN_PROGRESS;
}

/* ---------------------------------------------------------------- windows */

static int mem_alloc(void **p, size_t bytes)
{
    *p = NULL;
    if (!bytes || rt::planned("ncclMemAlloc") != cudaSuccess) return bytes ? 1 : INVALID_ARGUMENT;
    size_t rounded = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    if (cudaMalloc(p, rounded) != cudaSuccess) return 1;
    std::lock_guard<std::mutex> g(all_lock);
    memories.push_back({ (char *)*p, rounded });
    counts.memories++, counts.bytes += rounded;
    return NCCL_OK;
}

static std::vector<nccl_window> &live = *new std::vector<nccl_window>(); /* all_lock */

static int mem_free(void *p)
{
    {
        std::lock_guard<std::mutex> g(all_lock);
        size_t                      i = 0;
        while (i < memories.size() && memories[i].p != p) i++;
        bool held = false;
        for (nccl_window w : live) held |= i < memories.size() && inside(w->p, 1, memories[i].p, memories[i].bytes);
        if (i == memories.size() || held) {
            counts.misuse++;
            fprintf(stderr, held ? "emu nccl: memory is given back under its window\n"
                                 : "emu nccl: no memory of MemAlloc is given back\n");
            return INVALID_USAGE;
        }
        counts.memories--, counts.bytes -= memories[i].bytes;
        for (size_t k = gone.size();
             k-- > 0;) /* the address may be given out anew, and whoever else comes there is found as any such */
            if (inside(gone[k].p, 1, memories[i].p, memories[i].bytes)) gone.erase(gone.begin() + (ptrdiff_t)k);
        memories.erase(memories.begin() + (ptrdiff_t)i);
    }
    return cudaFree(p) == cudaSuccess ? NCCL_OK : 1;
}

static int failed(ncclComm *c, int error)
{
    c->error.store(error);
    return error;
}

static int window_register(ncclComm *c, void *p, size_t bytes, nccl_window *out, int flags)
{
    *out = NULL;
    if (!c->ready.load() || c->aborted.load() || c->error.load() || c->pending) return INVALID_USAGE;
    if (!p || !bytes || flags != NCCL_WINDOW_SYMMETRIC) return failed(c, INVALID_ARGUMENT);
    const char *v = getenv("EMU_NCCL_WINDOWS");
    if (!be_windows || (v && *v == '0')) return NCCL_OK; /* as NCCL: OK, and none */
    if (rt::capturing) return failed(c, misuse("a window is registered while a graph is captured"));
    if (rt::planned("ncclCommWindowRegister") != cudaSuccess) return failed(c, 1);
    bool ours = false;
    {
        std::lock_guard<std::mutex> g(all_lock);
        for (const Memory &m : memories)
            ours |= inside(p, bytes, m.p, m.bytes) && ((char *)p - m.p) % NCCL_WINDOW_ALIGN == 0;
    }
    if (!ours) return failed(c, misuse("a window that is no memory of MemAlloc, or begins at an odd place"));
    std::lock_guard<std::mutex> g(c->lock);
    if (c->n_window == WINDOWS_MAX) return failed(c, INVALID_USAGE);
    auto    &w = c->s->window[c->n_window];
    uint64_t none = 0;
    if (!w.bytes.compare_exchange_strong(none, bytes) && none != bytes) w.wrong.store(1);
    w.arrived.fetch_add(1);
    c->window[c->n_window] = new nccl_win_s{ c, (char *)p, bytes, c->n_window + 1, false };
    c->n_window++;
    c->pending = out;
    return NCCL_IN_PROGRESS;
}

/* How far that is: done when all ranks have come. */
static int registered(ncclComm *c)
{
    std::lock_guard<std::mutex> g(c->lock);
    if (!c->pending) return NCCL_OK;
    auto &w = c->s->window[c->n_window - 1];
    if (w.wrong.load()) return failed(c, misuse("windows of different sizes"));
    if (w.arrived.load() < c->n) return NCCL_IN_PROGRESS;
    nccl_window own = c->window[c->n_window - 1];
    own->live = true;
    *c->pending = own, c->pending = NULL;
    std::lock_guard<std::mutex> h(all_lock);
    live.push_back(own);
    counts.windows++;
    return NCCL_OK;
}

static void end(nccl_window w) /* all_lock, and its communicator's */
{
    if (!w->live) return;
    w->live = false;
    for (size_t i = live.size(); i-- > 0;)
        if (live[i] == w) live.erase(live.begin() + (ptrdiff_t)i);
    gone.push_back({ w->p, w->bytes });
    counts.windows--;
}

static int window_deregister(ncclComm *c, nccl_window w)
{
    if (!w) return NCCL_OK;
    if (c->aborted.load() || w->comm != c || !w->live) return misuse("a window is deregistered that is not registered");
    std::lock_guard<std::mutex> g(c->lock);
    std::lock_guard<std::mutex> h(all_lock);
    end(w);
    return NCCL_OK;
}

static int async_error(nccl_comm c, int *error)
{
    *error = c->error.load();
    if (*error) return NCCL_OK;
    if (c->ready.load()) {
        *error = registered(c);
        return NCCL_OK;
    }
    if (c->s->joined.load() < c->n) {
        *error = NCCL_IN_PROGRESS;
        return NCCL_OK;
    }
    c->ready.store(true);
    (void)unlink(c->path); /* all have it open */
    return NCCL_OK;
}

/* Its memory stays: a stream may still be within it. */
static int comm_abort(nccl_comm c)
{
    if (c->aborted.exchange(true)) return misuse("a communicator is aborted twice");
    (void)unlink(c->path);
    std::lock_guard<std::mutex> g(c->lock);
    std::lock_guard<std::mutex> h(all_lock);
    for (uint32_t i = 0; i < c->n_window; i++)
        if (c->window[i]) end(c->window[i]);
    c->pending = NULL;
    counts.communicators--;
    return NCCL_OK;
}

static const char *error_string(int) { return "emulated failure"; }
static const char *last_error(nccl_comm) { return "emulated failure"; }
static int all_reduce(const void *send, void *recv, size_t count, int type, int op, nccl_comm c, cudaStream_t stream)
{
    return op == NCCL_SUM ? enqueue(c, Work{ c, 0, send, recv, count, type, 0 }, stream) : 4;
}
static int all_gather(const void *send, void *recv, size_t count, int type, nccl_comm c, cudaStream_t stream)
{
    return enqueue(c, Work{ c, 1, send, recv, count, type, 0 }, stream);
}
static int broadcast(const void *send, void *recv, size_t count, int type, int root, nccl_comm c, cudaStream_t stream)
{
    return enqueue(c, Work{ c, 2, send, recv, count, type, root }, stream);
}

/* Two tables: those who have one keep it while the other is given out. */
extern "C" const struct nccl_api *emu_nccl(void)
{
    static struct nccl_api      api[2];
    static bool                 made[2];
    std::lock_guard<std::mutex> g(all_lock);
    int                         version = 0;
    get_version(&version);
    int i = version < NCCL_WINDOWS_VERSION;
    if (made[i] && api[i].version == version) return &api[i];
    struct nccl_api &a = api[i];
    a.GetVersion = get_version, a.GetUniqueId = get_unique_id, a.CommInitRankConfig = comm_init;
    a.CommGetAsyncError = async_error, a.CommAbort = comm_abort;
    a.GetErrorString = error_string, a.GetLastError = last_error;
    a.AllReduce = all_reduce, a.AllGather = all_gather, a.Broadcast = broadcast;
    if (i == 0) {
        a.MemAlloc = mem_alloc, a.MemFree = mem_free;
        a.CommWindowRegister = window_register, a.CommWindowDeregister = window_deregister;
    }
    a.version = version, made[i] = true;
    return &a;
}

/* ---------------------------------------------------------------- what tests see */

extern "C" struct emu_nccl_counts emu_nccl_counts(void)
{
    std::lock_guard<std::mutex> g(all_lock);
    return counts;
}
extern "C" void emu_nccl_forget(void)
{
    std::lock_guard<std::mutex> g(all_lock);
    counts.reduce_in = counts.reduce_out = counts.gather_in = counts.gather_out = counts.misuse = 0;
}
extern "C" void emu_nccl_be(int version, bool windows)
{
    std::lock_guard<std::mutex> g(all_lock);
    be_version = version, be_windows = windows;
}
