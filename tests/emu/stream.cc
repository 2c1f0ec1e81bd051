/* stream: streams, events, kernels and graphs of the emulated runtime.   See rt.h. */
#include "rt.h"
#include <algorithm>
#include <emu_kernel.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct CUgraph_st {
    std::vector<rt::Work>                    node;
    std::vector<std::shared_ptr<rt::Stream>> member; /* streams that give to it while it is open */
    cudaStreamCaptureMode                    mode;
    bool                                     invalid;
};
struct CUgraphExec_st {
    std::shared_ptr<const std::vector<rt::Work>> node;
};
struct CUevent_st {
    std::shared_ptr<rt::Stream> stream; /* of the last record; empty: never recorded */
    uint64_t                    ticket;
    bool                        timing;
    std::shared_ptr<double>     at; /* seconds */
    CUgraph_st                 *cap;
    uint64_t                    cap_n;
};

namespace rt
{
static std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
static std::map<const void *, int>                     smem_max; /* of a kernel, by cudaFuncSetAttribute */
static std::atomic<uint64_t>                           n_launch{ 0 };
static struct {
    uint64_t skip;
    double   factor;
} slow = { UINT64_MAX, 1 };
static __thread double stalling; /* the operation that has just run is to be run again, then */

static void run_kernel(int dev, const std::shared_ptr<const emu::Launch> &l, const std::shared_ptr<emu::Grid> &begun)
{
    cudaError_t fault = planned("kernel"); /* found by whoever waits */
    if ((stalling = stall_end(fault)) > 0) return;
    if (fault != cudaSuccess) return lose(dev, fault);
    n_launch++;
    double begin = now();
    emu::finish(l, begun);
    if (n_launch > slow.skip) usleep((useconds_t)((now() - begin) * (slow.factor - 1) * 1e6));
}
/* Runs w. The kernel behind it, which may begin early, begins first; *begun: what of w has begun, then of `next`. */
static void run_work(int dev, const Work &w, const Work *next, std::shared_ptr<emu::Grid> *begun)
{
    std::shared_ptr<emu::Grid> mine = std::move(*begun);
    begun->reset();
    if (w.kernel && next && next->kernel && emu::begins_early(*next->kernel)) *begun = emu::begin_early(next->kernel);
    if (w.kernel)
        run_kernel(dev, w.kernel, mine);
    else
        w.op();
}

std::shared_ptr<Stream> stream_of(cudaStream_t s)
{
    std::lock_guard<std::mutex> g(lock);
    if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread) {
        Device &d = device[current];
        if (!d.legacy) d.legacy = std::make_shared<Stream>(), d.legacy->device = current;
        return d.legacy;
    }
    auto it = streams.find(s);
    return it == streams.end() ? NULL : it->second;
}
double now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* Runs what lies before ticket `upto`. A device that is lost runs nothing more. One that stalls is waited for where the
 * call waits. */
static void drain(Stream &s, uint64_t upto, bool wait = true)
{
    if (s.done >= upto) return;
    std::lock_guard<std::recursive_mutex> m(s.m);
    while (s.done < upto) {
        if (now() < s.stall_until) {
            if (!wait) return;
            usleep(1000);
            continue;
        }
        Work w, next;
        {
            std::lock_guard<std::mutex> q(s.qm);
            if (s.q.empty()) return; /* within an operation of this very stream */
            w = std::move(s.q.front());
            s.q.pop_front();
            if (!s.q.empty()) next.kernel = s.q.front().kernel;
        }
        stalling = 0;
        if (lost(s.device) == cudaSuccess)
            run_work(s.device, w, &next, &s.begun);
        else
            s.begun.reset();
        if (stalling > 0) {
            s.begun.reset();
            std::lock_guard<std::mutex> q(s.qm);
            s.stall_until = stalling;
            s.q.push_front(std::move(w));
            continue;
        }
        s.done++;
    }
}
static uint64_t pushed(Stream &s)
{
    std::lock_guard<std::mutex> q(s.qm);
    return s.pushed;
}
static std::vector<std::shared_ptr<Stream>> all_of(int dev)
{
    std::lock_guard<std::mutex>          g(lock);
    std::vector<std::shared_ptr<Stream>> v;
    for (auto &p : streams)
        if (p.second->device == dev) v.push_back(p.second);
    if (device[dev].legacy) v.push_back(device[dev].legacy);
    return v;
}
void drain_device(int dev, bool blocking_only)
{
    for (auto &s : all_of(dev))
        if (s->blocking || !blocking_only) drain(*s, pushed(*s));
}
static cudaError_t enqueue_on(const std::shared_ptr<Stream> &s, Work w, uint64_t *ticket)
{
    if (s->cap) {
        if (s->cap->invalid) return cudaErrorStreamCaptureInvalidated;
        s->cap->node.push_back(std::move(w));
        s->cap_n++;
        return cudaSuccess;
    }
    bool legacy = s == device[s->device].legacy, stays = emu::stays() && w.kernel && !legacy;
    if (legacy) drain_device(s->device, true);
    uint64_t upto;
    {
        std::lock_guard<std::mutex> q(s->qm);
        s->q.push_back(std::move(w));
        upto = ++s->pushed;
    }
    if (ticket) *ticket = upto;
    if (!lazy || legacy) drain(*s, upto - stays, legacy); /* a kernel stays until what follows it is known */
    return cudaSuccess;
}
cudaError_t enqueue(cudaStream_t h, Op op)
{
    std::shared_ptr<Stream> s = stream_of(h);
    return s ? enqueue_on(s, Work{ std::move(op), NULL }, NULL) : cudaErrorInvalidResourceHandle;
}
/* Has it passed? In lazy mode a question moves the stream on by one piece; after a stall, and where a kernel has stayed,
 * by all there is. */
static bool passed(Stream &s, uint64_t ticket)
{
    if (s.done < ticket && s.m.try_lock()) {
        drain(s, lazy ? s.done + 1 : ticket, false);
        s.m.unlock();
    }
    return s.done >= ticket;
}
} // namespace rt
using namespace rt;

/* ---------------------------------------------------------------- kernels */

void emu::enqueue_kernel(cudaStream_t h, const void *func, dim3 grid, dim3 block, size_t smem, bool pdl,
                         uint32_t cluster, std::function<void()> body)
{
    cudaError_t             e = enter("launch");
    std::shared_ptr<Stream> s = stream_of(h);
    size_t                  threads = (size_t)block.x * block.y * block.z, most = 48 << 10;
    if (e == cudaSuccess && (!s || s->device != current)) e = cudaErrorInvalidResourceHandle;
    if (e == cudaSuccess) {
        std::lock_guard<std::mutex> g(lock);
        auto                        it = smem_max.find(func);
        if (it != smem_max.end()) most = (size_t)it->second;
    }
    auto blocks_max = [&] {
        size_t per_sm = std::min<size_t>(2048 / threads, smem ? (228 << 10) / (smem + 1024) : 32);
        return std::max<size_t>((size_t)device[s->device].cfg.n_sm * std::max<size_t>(per_sm, 1), cluster);
    };
    bool grid_ok = grid.x && grid.y && grid.z && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535;
    if (e == cudaSuccess && (!grid_ok || threads < 1 || threads > 1024 || block.z > 64))
        e = cudaErrorInvalidConfiguration;
    if (e == cudaSuccess && cluster != 1 &&
        (cluster < 1 || cluster > CLUSTER_MAX || grid.x % cluster || device[s->device].cfg.arch < 90))
        e = cudaErrorInvalidConfiguration;
    if (e == cudaSuccess && smem > most) e = cudaErrorInvalidValue;
    if (e == cudaSuccess)
        e = enqueue_on(s,
                       Work{ NULL, std::make_shared<const Launch>(
                                       Launch{ func, grid, block, smem, pdl, cluster, blocks_max(), body }) },
                       NULL);
    fail(e);
}
uint64_t   emu_launches(void) { return n_launch; }
void       emu_set_slow(uint64_t skip, double factor) { slow = { n_launch + skip, factor }; }
static int occupancy;
void       emu_set_occupancy(int blocks) { occupancy = blocks; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *func, int threads, size_t smem)
{
    RT_ENTER("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    if (!func || threads < 1 || smem > 227 << 10) return fail(cudaErrorInvalidValue);
    *n = occupancy ? occupancy : 32;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    RT_ENTER("cudaFuncSetAttribute");
    if (attr == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        if (value < 0 || value > 227 << 10) return fail(cudaErrorInvalidValue);
        std::lock_guard<std::mutex> g(lock);
        smem_max[func] = value;
    }
    return cudaSuccess;
}

/* ---------------------------------------------------------------- streams */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    RT_ENTER("cudaStreamCreate");
    std::shared_ptr<Stream> s = std::make_shared<Stream>();
    s->device = current;
    s->blocking = flags != cudaStreamNonBlocking;
    std::lock_guard<std::mutex> g(lock);
    *out = (cudaStream_t)(void *)s.get();
    streams[*out] = s;
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    (void)priority;
    return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    RT_ENTER("cudaDeviceGetStreamPriorityRange");
    *least = 0, *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t h)
{
    std::shared_ptr<Stream> s = h ? stream_of(h) : NULL; /* a lost device's streams are given back too */
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    drain(*s, pushed(*s), false);
    if (s->stall_until > 0) { /* what stands still for ever holds the stream that holds it */
        std::lock_guard<std::mutex> q(s->qm);
        s->q.clear();
    }
    {
        std::lock_guard<std::mutex> g(lock);
        streams.erase(h);
    }
    RT_ENTER("cudaStreamDestroy");
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t h)
{
    RT_ENTER("cudaStreamSynchronize");
    std::shared_ptr<Stream> s = stream_of(h);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (s->cap) s->cap->invalid = true;
    if (s->cap || unsafe_now()) return fail(cudaErrorStreamCaptureUnsupported);
    if (s == device[s->device].legacy) drain_device(s->device, true);
    drain(*s, pushed(*s));
    return fail(lost(s->device));
}
cudaError_t cudaStreamQuery(cudaStream_t h)
{
    RT_ENTER("cudaStreamQuery");
    std::shared_ptr<Stream> s = stream_of(h);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    if (s->cap) s->cap->invalid = true;
    if (s->cap || unsafe_now()) return fail(cudaErrorStreamCaptureUnsupported);
    bool ok = passed(*s, pushed(*s));
    if (lost(s->device) != cudaSuccess) return fail(lost(s->device));
    return fail(ok ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void *arg)
{
    RT_ENTER("cudaLaunchHostFunc");
    return fail(enqueue(s, [fn, arg] { fn(arg); }));
}

/* ---------------------------------------------------------------- events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags)
{
    RT_ENTER("cudaEventCreate");
    *e = new CUevent_st{ NULL, 0, !(flags & cudaEventDisableTiming), std::make_shared<double>(0.0), NULL, 0 };
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    if (!e) return fail(cudaErrorInvalidResourceHandle);
    delete e;
    RT_ENTER("cudaEventDestroy");
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t h)
{
    RT_ENTER("cudaEventRecord");
    std::shared_ptr<Stream> s = stream_of(h);
    if (!e || !s) return fail(cudaErrorInvalidResourceHandle);
    if (s->cap) {
        e->cap = s->cap, e->stream = s, e->cap_n = s->cap_n;
        return cudaSuccess;
    }
    std::shared_ptr<double> at = e->at;
    e->cap = NULL, e->stream = s;
    return fail(enqueue_on(s, Work{ [at] { *at = now(); }, NULL }, &e->ticket));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t h, cudaEvent_t e, unsigned flags)
{
    (void)flags;
    RT_ENTER("cudaStreamWaitEvent");
    std::shared_ptr<Stream> s = stream_of(h);
    if (!e || !s) return fail(cudaErrorInvalidResourceHandle);
    if (e->cap) { /* within a capture: s joins it, or comes back to it */
        if (s->cap && s->cap != e->cap) return fail(cudaErrorStreamCaptureMerge);
        if (!s->cap) {
            s->cap = e->cap, s->cap_n = 0, s->cap_joined = 0, s->cap_origin = false;
            s->cap->member.push_back(s);
            s->cap_n = 1; /* to be waited for, even when it does nothing */
        }
        if (e->stream != s && e->stream->cap == s->cap)
            e->stream->cap_joined = std::max(e->stream->cap_joined, e->cap_n);
        return cudaSuccess;
    }
    if (s->cap) return fail(e->stream ? cudaErrorStreamCaptureIsolation : cudaSuccess);
    if (!e->stream) return cudaSuccess;
    std::shared_ptr<Stream> of = e->stream;
    uint64_t                ticket = e->ticket;
    return fail(enqueue_on(s, Work{ [of, ticket] { drain(*of, ticket); }, NULL }, NULL));
}
static cudaError_t event_check(cudaEvent_t e)
{
    if (!e) return cudaErrorInvalidResourceHandle;
    if (e->cap) return cudaErrorCapturedEvent;
    if (unsafe_now()) return cudaErrorStreamCaptureUnsupported;
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    RT_ENTER("cudaEventQuery");
    cudaError_t st = event_check(e);
    if (st != cudaSuccess || !e->stream) return fail(st);
    bool ok = passed(*e->stream, e->ticket);
    if (lost(e->stream->device) != cudaSuccess) return fail(lost(e->stream->device));
    return fail(ok ? cudaSuccess : cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    RT_ENTER("cudaEventSynchronize");
    cudaError_t st = event_check(e);
    if (st != cudaSuccess || !e->stream) return fail(st);
    drain(*e->stream, e->ticket);
    return fail(lost(e->stream->device));
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    RT_ENTER("cudaEventElapsedTime");
    if (!from || !to || !from->timing || !to->timing || !from->stream || !to->stream)
        return fail(cudaErrorInvalidResourceHandle);
    if (from->stream->done < from->ticket || to->stream->done < to->ticket) return fail(cudaErrorNotReady);
    *ms = (float)((*to->at - *from->at) * 1e3);
    return cudaSuccess;
}

/* ---------------------------------------------------------------- graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t h, enum cudaStreamCaptureMode mode)
{
    RT_ENTER("cudaStreamBeginCapture");
    std::shared_ptr<Stream> s = h ? stream_of(h) : NULL;
    if (!s) return fail(cudaErrorStreamCaptureUnsupported); /* the legacy stream cannot be captured */
    if (s->cap) return fail(cudaErrorInvalidValue);
    s->cap = new CUgraph_st{ {}, { s }, mode, false };
    s->cap_n = s->cap_joined = 0, s->cap_origin = true;
    if (mode == cudaStreamCaptureModeGlobal) capturing_global++;
    if (mode == cudaStreamCaptureModeThreadLocal) capturing++;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t h, cudaGraph_t *out)
{
    *out = NULL;
    std::shared_ptr<Stream> s = stream_of(h);
    if (!s || !s->cap) return fail(cudaErrorInvalidValue);
    if (!s->cap_origin) return fail(cudaErrorStreamCaptureUnmatched);
    CUgraph_st *g = s->cap;
    cudaError_t e = g->invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
    for (auto &m : g->member) {
        if (e == cudaSuccess && m != s && m->cap_joined < m->cap_n) e = cudaErrorStreamCaptureUnjoined;
        m->cap = NULL;
    }
    g->member.clear();
    if (g->mode == cudaStreamCaptureModeGlobal) capturing_global--;
    if (g->mode == cudaStreamCaptureModeThreadLocal) capturing--;
    cudaError_t fault = enter("cudaStreamEndCapture");
    if (e == cudaSuccess) e = fault;
    if (e != cudaSuccess)
        delete g;
    else
        *out = g;
    return fail(e);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t h, enum cudaStreamCaptureStatus *status)
{
    RT_ENTER("cudaStreamIsCapturing");
    std::shared_ptr<Stream> s = stream_of(h);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    *status = !s->cap           ? cudaStreamCaptureStatusNone
              : s->cap->invalid ? cudaStreamCaptureStatusInvalidated
                                : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
static __thread cudaStreamCaptureMode capture_mode;
cudaError_t                           cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    std::swap(capture_mode, *mode);
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags)
{
    (void)flags;
    RT_ENTER("cudaGraphInstantiate");
    if (!g) return fail(cudaErrorInvalidValue);
    *x = new CUgraphExec_st{ std::make_shared<const std::vector<Work>>(g->node) };
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags)
{
    return cudaGraphInstantiate(x, g, flags);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n)
{
    RT_ENTER("cudaGraphGetNodes");
    if (!g || nodes) return fail(cudaErrorInvalidValue); /* only the count */
    *n = g->node.size();
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t s)
{
    (void)s;
    RT_ENTER("cudaGraphUpload");
    return fail(x ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t s)
{
    RT_ENTER("cudaGraphLaunch");
    if (!x) return fail(cudaErrorInvalidValue);
    std::shared_ptr<const std::vector<Work>> node = x->node;
    std::shared_ptr<size_t>                  at = std::make_shared<size_t>(0);
    int                                      dev = current;
    std::shared_ptr<emu::Grid>               none;
    return fail(enqueue(s, [node, at, dev, begun = none]() mutable {
        for (; *at < node->size(); ++*at) {
            const Work *next = *at + 1 < node->size() ? &(*node)[*at + 1] : NULL;
            run_work(dev, (*node)[*at], next, &begun);
            if (stalling > 0) return begun.reset();
        }
    }));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    delete x;
    RT_ENTER("cudaGraphExecDestroy");
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    RT_ENTER("cudaGraphDestroy");
    return cudaSuccess;
}
