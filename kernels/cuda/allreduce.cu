/* allreduce: sums, copies and columns among the ranks of one process. The protocol is in comm.h.   truth: kernels/ref
 * (host.c) Sums are in fp32 in rank order, rounded once: every rank computes the same bits, whatever the size of the
 * message. */
#include "kernels/cuda/comm.h"
#include "kernels/cuda/vec.cuh"

/* ---------------------------------------------------------------- one exchange of one block */

__device__ __forceinline__ size_t comm_at(const struct comm_view &v, uint32_t e, uint32_t from)
{
    return (((size_t)(e & 1) * v.n_rank + from) * COMM_BLOCKS + blockIdx.x) * COMM_TILE;
}

/* 16 bytes at p, of which `left` exist; any alignment unless wide. */
__device__ __forceinline__ uint4 comm_load(const char *p, size_t left, bool wide)
{
    if (wide && left >= 16) return *(const uint4 *)p;
    uint32_t w[4] = { 0, 0, 0, 0 };
#pragma unroll
    for (unsigned i = 0; i < 16; i++)
        if (i < left) w[i / 4] |= (uint32_t)(unsigned char)p[i] << (i % 4 * 8);
    return make_uint4(w[0], w[1], w[2], w[3]);
}

__device__ __forceinline__ void comm_store(char *p, size_t left, bool wide, uint4 v)
{
    if (wide && left >= 16) {
        *(uint4 *)p = v;
        return;
    }
    const uint32_t w[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
    for (unsigned i = 0; i < 16; i++)
        if (i < left) p[i] = (char)(w[i / 4] >> (i % 4 * 8));
}

/* Vector i of this block's tile to every peer; each rank begins with another one. */
__device__ __forceinline__ void comm_push(const struct comm_view &v, uint32_t e, uint32_t i, uint4 x)
{
    for (uint32_t k = 1; k < v.n_rank; k++) {
        uint32_t peer = v.rank + k < v.n_rank ? v.rank + k : v.rank + k - v.n_rank;
        st_peer16(v.slot[peer] + comm_at(v, e, v.rank) + (size_t)i * 16, x);
    }
}

/* Every thread of the block: what it pushed is there for the peers, and what they pushed is here. False: aborted. */
__device__ __forceinline__ bool comm_meet(const struct comm_view &v, uint32_t e)
{
    bool ok = true;
    __syncthreads(); /* all pushes of the block before its flag: release is cumulative over the barrier */
    if (threadIdx.x < v.n_rank && threadIdx.x != v.rank) {
        st_release_sys(v.flag[threadIdx.x] + (size_t)blockIdx.x * COMM_RANKS_MAX + v.rank, e);
        const uint32_t *mine = v.flag[v.rank] + (size_t)blockIdx.x * COMM_RANKS_MAX + threadIdx.x;
        for (uint32_t n = 1; (int32_t)(ld_acquire_sys(mine) - e) < 0; n++) { /* a fast peer may be one ahead */
            if (n % 512 == 0 && ld_acquire_sys(v.abort)) {
                ok = false;
                break;
            }
            spin_pause();
        }
    }
    return __syncthreads_and(ok) != 0;
}

/* ---------------------------------------------------------------- proof that what is written arrives */

enum { PROVE_THREADS = 64 };

/* What rank `from` writes in exchange e as vector i of this block's tile: every word another one. */
__device__ __forceinline__ uint4 comm_pattern(uint32_t from, uint32_t e, uint32_t i)
{
    uint32_t x = (((from * 2 + (e & 1)) * COMM_BLOCKS + blockIdx.x) * (COMM_THREADS * COMM_VECS) + i) * 4 + 1;
    return make_uint4(x * 0x9e3779b1u, (x + 1) * 0x9e3779b1u, (x + 2) * 0x9e3779b1u, (x + 3) * 0x9e3779b1u);
}

__global__ __launch_bounds__(PROVE_THREADS) void k_comm_prove_write(const __grid_constant__ struct comm_view v,
                                                                    uint32_t                                 e)
{
    pdl_wait();
    for (uint32_t i = threadIdx.x; i < COMM_THREADS * COMM_VECS; i += PROVE_THREADS)
        comm_push(v, e, i, comm_pattern(v.rank, e, i));
    __syncthreads();
    if (threadIdx.x < v.n_rank && threadIdx.x != v.rank)
        st_release_sys(v.flag[threadIdx.x] + (size_t)blockIdx.x * COMM_RANKS_MAX + v.rank, e);
}

__global__ __launch_bounds__(PROVE_THREADS) void k_comm_prove_read(const __grid_constant__ struct comm_view v,
                                                                   uint32_t e, uint32_t *n_wrong)
{
    pdl_wait();
    uint32_t bad = 0;
    for (uint32_t r = 0; r < v.n_rank; r++) {
        if (r == v.rank) continue;
        if (threadIdx.x == 0) bad += ld_acquire_sys(v.flag[v.rank] + (size_t)blockIdx.x * COMM_RANKS_MAX + r) != e;
        for (uint32_t i = threadIdx.x; i < COMM_THREADS * COMM_VECS; i += PROVE_THREADS) {
            uint4 want = comm_pattern(r, e, i), is = ld_volatile16(v.slot[v.rank] + comm_at(v, e, r) + (size_t)i * 16);
            bad += is.x != want.x || is.y != want.y || is.z != want.z || is.w != want.w;
        }
    }
    if (bad) atomicAdd(n_wrong, bad);
    if (threadIdx.x == 0) v.count[blockIdx.x] = e;
}

/* ---------------------------------------------------------------- what ranks exchange */

/* NR: ranks, so that their parts are all asked for before the first is added; 0: as many as v.n_rank says */
template <class T, int NR>
__global__ __launch_bounds__(COMM_THREADS) void k_comm_allreduce(const __grid_constant__ struct comm_view v, char *x,
                                                                 size_t bytes, bool wide)
{
    uint4 own[COMM_VECS];
    pdl_wait();
    const uint32_t n = NR ? NR : v.n_rank;
    const size_t   tile = (size_t)blockDim.x * COMM_VECS * 16;
    uint32_t       e = v.count[blockIdx.x];
    for (size_t at = blockIdx.x * tile; at < bytes; at += gridDim.x * tile) {
        e++;
#pragma unroll
        for (uint32_t j = 0; j < COMM_VECS; j++) {
            uint32_t i = j * blockDim.x + threadIdx.x;
            size_t   b = at + (size_t)i * 16;
            if (b >= bytes) continue;
            own[j] = comm_load(x + b, bytes - b, wide);
            comm_push(v, e, i, own[j]);
        }
        if (!comm_meet(v, e)) return;
#pragma unroll
        for (uint32_t j = 0; j < COMM_VECS; j++) {
            uint32_t i = j * blockDim.x + threadIdx.x;
            size_t   b = at + (size_t)i * 16;
            if (b >= bytes) continue;
            const char *in = v.slot[v.rank] + (size_t)i * 16;
            float       sum[VEC], f[VEC];
            if (NR) {
                uint4 part[NR ? NR : 1];
#pragma unroll
                for (int r = 0; r < NR; r++)
                    part[r] = (uint32_t)r == v.rank ? own[j] : ld_volatile16(in + comm_at(v, e, (uint32_t)r));
                act_load8<T>(sum, part[0]);
#pragma unroll
                for (int r = 1; r < NR; r++) {
                    act_load8<T>(f, part[r]);
#pragma unroll
                    for (int k = 0; k < VEC; k++) sum[k] += f[k];
                }
            } else {
                act_load8<T>(sum, v.rank == 0 ? own[j] : ld_volatile16(in + comm_at(v, e, 0)));
                for (uint32_t r = 1; r < n; r++) {
                    act_load8<T>(f, r == v.rank ? own[j] : ld_volatile16(in + comm_at(v, e, r)));
#pragma unroll
                    for (int k = 0; k < VEC; k++) sum[k] += f[k];
                }
            }
            comm_store(x + b, bytes - b, wide, act_store8<T>(sum));
        }
    }
    pdl_launch();
    if (threadIdx.x == 0) v.count[blockIdx.x] = e; /* the others have read it before the first meeting */
}

/* Rank 0 writes, the others only raise their flags, so that rank 0 does not run ahead of who still reads. */
__global__ __launch_bounds__(COMM_THREADS) void k_comm_broadcast(const __grid_constant__ struct comm_view v, char *x,
                                                                 size_t bytes, bool wide)
{
    pdl_wait();
    const size_t tile = (size_t)blockDim.x * COMM_VECS * 16;
    uint32_t     e = v.count[blockIdx.x];
    for (size_t at = blockIdx.x * tile; at < bytes; at += gridDim.x * tile) {
        e++;
        for (uint32_t i = threadIdx.x; i < blockDim.x * COMM_VECS; i += blockDim.x) {
            size_t b = at + (size_t)i * 16;
            if (v.rank == 0 && b < bytes) comm_push(v, e, i, comm_load(x + b, bytes - b, wide));
        }
        if (!comm_meet(v, e)) return;
        for (uint32_t i = threadIdx.x; i < blockDim.x * COMM_VECS; i += blockDim.x) {
            size_t b = at + (size_t)i * 16;
            if (v.rank != 0 && b < bytes)
                comm_store(x + b, bytes - b, wide, ld_volatile16(v.slot[v.rank] + comm_at(v, e, 0) + (size_t)i * 16));
        }
    }
    pdl_launch();
    if (threadIdx.x == 0) v.count[blockIdx.x] = e;
}

/* Elements [i, i + 4) of rank r's [m, n_local], of which `left` exist, to their places in [m, n_rank * n_local]. */
__device__ __forceinline__ void comm_place(float *out, uint32_t i, uint32_t left, uint32_t r, uint32_t n_rank,
                                           uint32_t n_local, uint4 x, bool wide)
{
    if (wide && left >= 4) { /* n_local % 4 == 0: the four are of one row */
        uint32_t row = i / n_local;
        *(uint4 *)(out + ((size_t)row * n_rank + r) * n_local + (i - row * n_local)) = x;
        return;
    }
    const uint32_t w[4] = { x.x, x.y, x.z, x.w };
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t row = (i + k) / n_local;
        if (k < left) out[((size_t)row * n_rank + r) * n_local + (i + k - row * n_local)] = __uint_as_float(w[k]);
    }
}

__global__ __launch_bounds__(COMM_THREADS) void k_comm_allgather(const __grid_constant__ struct comm_view v, float *out,
                                                                 const float *x, uint32_t n, uint32_t n_local,
                                                                 bool wide_in, bool wide_out)
{
    pdl_wait();
    const uint32_t tile = blockDim.x * COMM_VECS * 4; /* elements */
    uint32_t       e = v.count[blockIdx.x];
    for (size_t at = (size_t)blockIdx.x * tile; at < n; at += (size_t)gridDim.x * tile) {
        e++;
        for (uint32_t i = threadIdx.x; i < blockDim.x * COMM_VECS; i += blockDim.x) {
            size_t k = at + (size_t)i * 4;
            if (k >= n) continue;
            uint4 own = comm_load((const char *)(x + k), (n - k) * 4, wide_in);
            comm_push(v, e, i, own);
            comm_place(out, (uint32_t)k, (uint32_t)(n - k), v.rank, v.n_rank, n_local, own, wide_out);
        }
        if (!comm_meet(v, e)) return;
        for (uint32_t i = threadIdx.x; i < blockDim.x * COMM_VECS; i += blockDim.x) {
            size_t k = at + (size_t)i * 4;
            if (k >= n) continue;
            for (uint32_t r = 0; r < v.n_rank; r++)
                if (r != v.rank)
                    comm_place(out, (uint32_t)k, (uint32_t)(n - k), r, v.n_rank, n_local,
                               ld_volatile16(v.slot[v.rank] + comm_at(v, e, r) + (size_t)i * 16), wide_out);
        }
    }
    pdl_launch();
    if (threadIdx.x == 0) v.count[blockIdx.x] = e;
}

/* ---------------------------------------------------------------- behind NCCL: what it gathered */

template <class T> __global__ __launch_bounds__(256) void k_comm_sum(T *x, const T *all, uint32_t n_rank, size_t n)
{
    pdl_wait();
    size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) {
        float sum = act_load(all[i]);
        for (uint32_t r = 1; r < n_rank; r++) sum += act_load(all[(size_t)r * n + i]);
        x[i] = act_store<T>(sum);
    }
    pdl_launch();
}

__global__ __launch_bounds__(256) void k_comm_spread(float *out, const float *all, uint32_t n_rank, size_t at, size_t n,
                                                     uint32_t n_local)
{
    pdl_wait();
    size_t i = (size_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) {
        size_t row = (at + i) / n_local, col = (at + i) % n_local;
        for (uint32_t r = 0; r < n_rank; r++) out[(row * n_rank + r) * n_local + col] = all[(size_t)r * n + i];
    }
    pdl_launch();
}

/* ---------------------------------------------------------------- launches: the same shape on every rank, from the
 * sizes alone */

struct comm_shape {
    unsigned block, grid;
};
/* Small messages in small blocks: several SMs write at a time. All blocks of all ranks must be able to run at once. */
static struct comm_shape comm_shape(const struct comm_view *v, size_t bytes)
{
    size_t   vecs = (bytes + 15) / 16;
    unsigned block = vecs <= 2048 ? 128 : COMM_THREADS;
    if (vecs <= 64) block = 32;
    size_t grid = (vecs + (size_t)block * COMM_VECS - 1) / ((size_t)block * COMM_VECS);
    return (struct comm_shape){ block, grid < v->blocks ? (unsigned)grid : v->blocks };
}
static bool comm_wide(const void *p) { return ((uintptr_t)p & 15) == 0; }

template <class T> static void comm_launch(struct cuda_dev *d, const struct comm_view *v, char *x, size_t bytes)
{
    struct comm_shape s = comm_shape(v, bytes);
    bool              wide = comm_wide(x);
    switch (v->n_rank) {
    case 2: LAUNCH((k_comm_allreduce<T, 2>), s.grid, s.block, 0, d, *v, x, bytes, wide); break;
    case 4: LAUNCH((k_comm_allreduce<T, 4>), s.grid, s.block, 0, d, *v, x, bytes, wide); break;
    case 8: LAUNCH((k_comm_allreduce<T, 8>), s.grid, s.block, 0, d, *v, x, bytes, wide); break;
    default: LAUNCH((k_comm_allreduce<T, 0>), s.grid, s.block, 0, d, *v, x, bytes, wide); break;
    }
}

extern "C" void comm_prove_write(struct cuda_dev *d, const struct comm_view *v, uint32_t e)
{
    LAUNCH(k_comm_prove_write, COMM_BLOCKS, PROVE_THREADS, 0, d, *v, e);
    cuda_launched(d, "a proof of peer access");
}

extern "C" void comm_prove_read(struct cuda_dev *d, const struct comm_view *v, uint32_t e, uint32_t *n_wrong)
{
    LAUNCH(k_comm_prove_read, COMM_BLOCKS, PROVE_THREADS, 0, d, *v, e, n_wrong);
    cuda_launched(d, "a proof of peer access");
}

extern "C" void comm_allreduce(struct cuda_dev *d, const struct comm_view *v, void *x, size_t n)
{
    if (!n) return;
    if (d->impl.dev.act == DT_F16)
        comm_launch<__half>(d, v, (char *)x, n * 2);
    else
        comm_launch<__nv_bfloat16>(d, v, (char *)x, n * 2);
    cuda_launched(d, "allreduce");
}

extern "C" void comm_broadcast(struct cuda_dev *d, const struct comm_view *v, void *x, size_t bytes)
{
    if (!bytes) return;
    struct comm_shape s = comm_shape(v, bytes);
    LAUNCH(k_comm_broadcast, s.grid, s.block, 0, d, *v, (char *)x, bytes, comm_wide(x));
    cuda_launched(d, "broadcast");
}

extern "C" void comm_allgather(struct cuda_dev *d, const struct comm_view *v, float *out, const float *x, uint32_t m,
                               uint32_t n_local)
{
    if (!m || !n_local) return;
    struct comm_shape s = comm_shape(v, (size_t)m * n_local * 4);
    LAUNCH(k_comm_allgather, s.grid, s.block, 0, d, *v, out, x, m * n_local, n_local, comm_wide(x),
           comm_wide(out) && n_local % 4 == 0);
    cuda_launched(d, "allgather");
}

extern "C" void comm_sum(struct cuda_dev *d, void *x, const void *all, uint32_t n_rank, size_t n)
{
    if (!n) return;
    unsigned grid = (unsigned)((n + 255) / 256);
    if (d->impl.dev.act == DT_F16)
        LAUNCH(k_comm_sum<__half>, grid, 256, 0, d, (__half *)x, (const __half *)all, n_rank, n);
    else
        LAUNCH(k_comm_sum<__nv_bfloat16>, grid, 256, 0, d, (__nv_bfloat16 *)x, (const __nv_bfloat16 *)all, n_rank, n);
    cuda_launched(d, "allreduce");
}

extern "C" void comm_spread(struct cuda_dev *d, float *out, const float *all, uint32_t n_rank, size_t at, size_t n,
                            uint32_t n_local)
{
    if (!n) return;
    LAUNCH(k_comm_spread, (unsigned)((n + 255) / 256), 256, 0, d, out, all, n_rank, at, n, n_local);
    cuda_launched(d, "allgather");
}
