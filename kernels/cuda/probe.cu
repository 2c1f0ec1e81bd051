/* probe: what this GPU can do at best, for tools/bench_ops: reading, copying and adding memory, and what lies between
 * two kernels of a graph that do nothing. Buffers are the unused end of the arena, larger than any cache. */
#include "kernels/cuda/common.cuh"
#include <math.h>
#include <stdlib.h>

enum { PROBE_THREADS = 256, PROBE_UNROLL = 8, PROBE_NODES = 200, PROBE_RUNS = 15 };
#ifdef CUDA_EMU
static const size_t PROBE_BYTES = 1 << 20;
#else
static const size_t PROBE_BYTES = (size_t)1 << 30;
#endif

/* dst, a, b: n vectors of 16 bytes. READ: sums that nobody wants but that the compiler cannot drop. */
template <int WHAT>
__global__ void __launch_bounds__(PROBE_THREADS) k_probe_memory(float4 *dst, const float4 *a, const float4 *b, size_t n)
{
    size_t at = (size_t)blockIdx.x * PROBE_THREADS * PROBE_UNROLL + threadIdx.x,
           step = (size_t)gridDim.x * PROBE_THREADS * PROBE_UNROLL;
    float sum = 0.0f;
    for (; at < n; at += step) {
        float4 v[PROBE_UNROLL];
#pragma unroll
        for (int j = 0; j < PROBE_UNROLL; j++)
            if (at + (size_t)j * PROBE_THREADS < n) v[j] = a[at + (size_t)j * PROBE_THREADS];
#pragma unroll
        for (int j = 0; j < PROBE_UNROLL; j++) {
            size_t i = at + (size_t)j * PROBE_THREADS;
            if (i >= n) continue;
            if (WHAT == DEV_PROBE_READ) {
                sum += v[j].x + v[j].y + v[j].z + v[j].w;
            } else if (WHAT == DEV_PROBE_COPY) {
                dst[i] = v[j];
            } else {
                float4 w = b[i];
                dst[i] =
                    make_float4(v[j].x + 3.0f * w.x, v[j].y + 3.0f * w.y, v[j].z + 3.0f * w.z, v[j].w + 3.0f * w.w);
            }
        }
    }
    if (WHAT == DEV_PROBE_READ && sum == 12345.678f) dst[threadIdx.x].x = sum;
}

__global__ void __launch_bounds__(32) k_probe_nothing(uint32_t *x)
{
    pdl_wait();
    pdl_launch();
    if (x && threadIdx.x == 1000) *x = 1;
}

static int probe_order(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

/* Median seconds between two events around `go`. */
template <class F> static double probe_time(struct cuda_dev *d, F go)
{
    cudaEvent_t from = NULL, to = NULL;
    double      s[PROBE_RUNS];
    if (!cuda_ok(d, cudaEventCreate(&from), "probe") || !cuda_ok(d, cudaEventCreate(&to), "probe")) return NAN;
    for (int i = -2; i < PROBE_RUNS; i++) {
        float ms = 0;
        cudaEventRecord(from, d->stream);
        go();
        cudaEventRecord(to, d->stream);
        if (!cuda_ok(d, cudaEventSynchronize(to), "probe") || !cuda_ok(d, cudaEventElapsedTime(&ms, from, to), "probe"))
            return NAN;
        if (i >= 0) s[i] = (double)ms * 1e-3;
    }
    cudaEventDestroy(from), cudaEventDestroy(to);
    qsort(s, PROBE_RUNS, sizeof *s, probe_order);
    return s[PROBE_RUNS / 2];
}

/* GB/s, bytes read and written counted alike */
template <int WHAT> static double probe_memory(struct cuda_dev *d, int streams)
{
    size_t used = (d->used + 255) / 256 * 256, bytes = d->size > used ? (d->size - used) / 3 / 256 * 256 : 0;
    if (bytes > PROBE_BYTES) bytes = PROBE_BYTES;
    if (bytes < 1 << 16) return NAN;
    float4  *a = (float4 *)(d->arena + used), *b = a + bytes / 16, *c = b + bytes / 16;
    size_t   n = bytes / 16, each = (size_t)PROBE_THREADS * PROBE_UNROLL;
    unsigned grid = (unsigned)((n + each - 1) / each);
    if (grid > (unsigned)d->n_sm * 16) grid = (unsigned)d->n_sm * 16;
    cudaMemsetAsync(a, 0x3d, 3 * bytes, d->stream); /* small numbers */
    double s = probe_time(d, [=] { LAUNCH(k_probe_memory<WHAT>, grid, PROBE_THREADS, 0, d->stream, c, a, b, n); });
    return (double)bytes * streams / s * 1e-9;
}

/* Median seconds of a replay of what `record` enqueues; NAN: it cannot be captured. */
template <class F> static double probe_graph(struct cuda_dev *d, F record)
{
    cudaGraph_t     graph = NULL;
    cudaGraphExec_t exec = NULL;
    if (!cuda_ok(d, cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeThreadLocal), "probe")) return NAN;
    record();
    bool ok = cuda_ok(d, cudaStreamEndCapture(d->stream, &graph), "probe") &&
              cuda_ok(d, cudaGraphInstantiate(&exec, graph, 0), "probe");
    double s = ok ? probe_time(d, [=] { cudaGraphLaunch(exec, d->stream); }) : (double)NAN;
    if (exec) cudaGraphExecDestroy(exec);
    if (graph) cudaGraphDestroy(graph);
    return s;
}

/* us per kernel of a graph of PROBE_NODES that do nothing */
static double probe_gap(struct cuda_dev *d, bool pdl)
{
    bool was = d->pdl;
    if (pdl && d->arch < PDL_ARCH_MIN) return NAN;
    d->pdl = pdl;
    double s = probe_graph(d, [=] {
        for (int i = 0; i < PROBE_NODES; i++) LAUNCH(k_probe_nothing, 1, 32, 0, d, (uint32_t *)NULL);
    });
    d->pdl = was;
    return s * 1e6 / PROBE_NODES;
}

extern "C" double cuda_time(struct device *dev, uint32_t n, void (*fn)(void *arg, uint32_t i), void *arg)
{
    struct cuda_dev *d = cuda_of(dev);
    cuda_bind(d);
    fn(arg, 0); /* code is loaded at its first launch, which a capture does not like */
    if (cuda_sync(dev) != ST_OK) return NAN;
    return probe_graph(d,
                       [=] {
                           for (uint32_t i = 0; i < n; i++) fn(arg, i);
                       }) /
           n;
}

extern "C" double cuda_probe(struct device *dev, enum dev_probe what)
{
    struct cuda_dev *d = cuda_of(dev);
    cuda_bind(d);
    switch (what) {
    case DEV_PROBE_READ: return probe_memory<DEV_PROBE_READ>(d, 1);
    case DEV_PROBE_COPY: return probe_memory<DEV_PROBE_COPY>(d, 2);
    case DEV_PROBE_TRIAD: return probe_memory<DEV_PROBE_TRIAD>(d, 3);
    case DEV_PROBE_GAP: return probe_gap(d, false);
    case DEV_PROBE_GAP_PDL: return probe_gap(d, true);
    }
    return NAN;
}
