/* nccl: NCCL for the emulator. Ranks of one process or of several meet in a file in shared memory that is named by the communicator's
 * id. Work is enqueued as host functions, so captured graphs replay it. As with the real one, sums are not added in rank order, calls
 * do not block until the ranks have met, and nothing ends a wait for a rank that never comes but CommAbort.
 * EMU_NCCL_VERSION: the version that it claims. */
#include "kernels/cuda/nccl_api.h"
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
struct Shared {
    std::atomic<uint32_t> joined, arrived, turn;
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
} // namespace

struct ncclComm {
    Shared             *s;
    size_t              bytes;
    uint32_t            n, rank;
    char                path[64];
    std::atomic<bool>   aborted, ready;
    std::mutex          lock; /* of works */
    std::vector<Work *> works;
};

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
    for (size_t at = 0; at < w->count && !c->aborted.load(); at += most) {
        size_t k = w->count - at < most ? w->count - at : most;
        if (w->kind != 2 || c->rank == (uint32_t)w->root)
            memcpy(c->s->part + (size_t)c->rank * PART, (const char *)w->send + at * one, k * one);
        if (!meet(c)) return;
        if (w->kind == 1) {
            for (uint32_t r = 0; r < c->n; r++) memcpy((char *)w->recv + (r * w->count + at) * one, c->s->part + (size_t)r * PART, k * one);
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
    if (!c->ready.load() || c->aborted.load()) return 5; /* ncclInvalidUsage */
    Work                       *own = new Work(w);
    std::lock_guard<std::mutex> g(c->lock);
    c->works.push_back(own); /* a graph may run it again, until the communicator ends */
    return cudaLaunchHostFunc(stream, run, own) == cudaSuccess ? NCCL_OK : 1;
}

static int get_version(int *version)
{
    const char *v = getenv("EMU_NCCL_VERSION");
    *version = v ? (int)strtol(v, NULL, 10) : 23004;
    return NCCL_OK;
}
static int get_unique_id(struct nccl_id *id) { return getrandom(id->b, sizeof id->b, 0) == (ssize_t)sizeof id->b ? NCCL_OK : 2; }

static int comm_init(nccl_comm *out, int n, struct nccl_id id, int rank, struct nccl_config *config)
{
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
    c->s = (Shared *)p; /* a new file is zero, and so are its atomics */
    c->s->joined.fetch_add(1);
    *out = c;
    return NCCL_IN_PROGRESS;
}

static int async_error(nccl_comm c, int *error)
{
    *error = NCCL_OK;
    if (c->ready.load()) return NCCL_OK;
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
    c->aborted.store(true);
    (void)unlink(c->path);
    return NCCL_OK;
}

static const char *error_string(int) { return "emulated failure"; }
static const char *last_error(nccl_comm) { return "emulated failure"; }
static int         all_reduce(const void *send, void *recv, size_t count, int type, int op, nccl_comm c, cudaStream_t stream)
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

extern "C" const struct nccl_api *emu_nccl(void)
{
    static struct nccl_api api;
    static std::once_flag  once;
    std::call_once(once, [] {
        get_version(&api.version);
        api.GetVersion = get_version, api.GetUniqueId = get_unique_id, api.CommInitRankConfig = comm_init;
        api.CommGetAsyncError = async_error, api.CommAbort = comm_abort;
        api.GetErrorString = error_string, api.GetLastError = last_error;
        api.AllReduce = all_reduce, api.AllGather = all_gather, api.Broadcast = broadcast;
    });
    return &api;
}
