/* sample: rows of logits to ids, their logprobs, ranks and the best few.   truth: kernels/ref/sample.c
 *   logits F32 [n, vocab]   the rest: kernels/device.h, op_sample and op_logprob; the id is bit for bit that of kernels/cpu/sample.c
 *
 * A row is cut into chunks of 4096 ids, a block each, so that one row does not wait for one SM. Every kernel finds out
 * on the device what its row asks for, so a captured launch serves any settings. Sums are integers and maxima carry the
 * id: no order of blocks shows.
 *   scan    the best of each chunk; clears the marks
 *   mark    which ids are banned, allowed, biased, in the history and how often
 *   adjust  the row's mask; raw weights of each chunk, its best few for logprobs; z, and the best z of each warp
 *   weigh   weights of each tile of 1024 ids; candidates of top-k and top-p to a list
 *   pick    one block per row: the survivors, from the list where it holds all candidates, else by radix select over
 *           z; the draw; logprobs
 *   rank    how many raw logits are higher
 * Results that other blocks add to (rank) lie in device memory. Scratch: d->work, nothing of which outlives the
 * call. */
#include "base/check.h"
#include "kernels/cuda/sample_pick.cuh"

__device__ __forceinline__ bool sample_penal(const struct op_sample_row &r)
{
    return r.n_hist && (r.repetition != 1.0f || r.frequency != 0.0f || r.presence != 0.0f);
}
__device__ __forceinline__ bool sample_lists(const struct op_sample_row &r)
{
    return r.n_allow || r.n_mask || r.n_ban || r.n_bias || sample_penal(r);
}
__device__ __forceinline__ bool             sample_cold(const struct op_sample_row &r) { return r.temperature < 1e-5f; }
__device__ __forceinline__ enum sample_kind sample_kind_of(const struct sample_job &j, uint32_t row)
{
    if (!j.o.row) return j.given[row] < j.o.vocab ? SAMPLE_GIVEN : SAMPLE_NONE;
    const struct op_sample_row &r = j.o.row[row];
    if (r.n_hist == UINT32_MAX) return SAMPLE_SKIP;
    return sample_cold(r) && !sample_lists(r) ? SAMPLE_GREEDY : SAMPLE_FULL;
}
__device__ __forceinline__ uint32_t sample_n_top(const struct sample_job &j, uint32_t row)
{
    uint32_t n = j.o.row ? j.o.row[row].n_top : j.n_top;
    return n < OP_SAMPLE_TOP_MAX ? n : (uint32_t)OP_SAMPLE_TOP_MAX;
}
/* 16 values of a chunk; what lies behind the vocabulary is -inf, and `in` says which do not */
__device__ __forceinline__ uint32_t sample_load(float v[SAMPLE_EACH], const float *x, uint32_t first, uint32_t vocab)
{
    uint32_t in = 0;
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++) {
        uint32_t id = first + (uint32_t)i * SAMPLE_THREADS;
        v[i] = id < vocab ? x[id] : -INFINITY;
        in |= (uint32_t)(id < vocab) << i;
    }
    return in;
}
/* The best of [n] partial bests, in every thread of a block of N */
template <int N> __device__ __forceinline__ u64 sample_best(const u64 *part, uint32_t n)
{
    u64 best = 0;
    for (uint32_t i = threadIdx.x; i < n; i += N) best = part[i] > best ? part[i] : best;
    return block_max_u64<N>(best);
}

/* ---------------------------------------------------------------- over all chunks */

__global__ void __launch_bounds__(SAMPLE_THREADS) k_sample_scan(const struct sample_job j)
{
    uint32_t row = blockIdx.y, chunk = blockIdx.x, first = chunk * SAMPLE_CHUNK + threadIdx.x;
    float    v[SAMPLE_EACH];
    pdl_wait();
    pdl_launch();
    enum sample_kind kind = sample_kind_of(j, row);
    if (kind == SAMPLE_SKIP || kind == SAMPLE_NONE) return;
    uint32_t in = sample_load(v, j.o.logits + (size_t)row * j.o.vocab, first, j.o.vocab);
    u64      best = 0;
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++) {
        u64 c = in >> i & 1 ? sample_order(v[i], first + (uint32_t)i * SAMPLE_THREADS) : 0;
        best = c > best ? c : best;
    }
    if (kind == SAMPLE_FULL && sample_lists(j.o.row[row])) {
        uint32_t *mark = (uint32_t *)(j.z + (size_t)row * j.o.vocab);
#pragma unroll
        for (int i = 0; i < SAMPLE_EACH; i++)
            if (in >> i & 1) mark[first + (uint32_t)i * SAMPLE_THREADS] = 0;
    }
    best = block_max_u64<SAMPLE_THREADS>(best);
    if (threadIdx.x == 0) {
        j.raw_best[(size_t)row * j.n_chunk + chunk] = best;
        if (chunk == 0) j.n_list[row] = 0;
    }
}

__global__ void __launch_bounds__(SAMPLE_THREADS) k_sample_mark(const struct sample_job j)
{
    uint32_t row = blockIdx.y, first = blockIdx.x * SAMPLE_THREADS + threadIdx.x, step = gridDim.x * SAMPLE_THREADS;
    pdl_wait();
    pdl_launch();
    if (sample_kind_of(j, row) != SAMPLE_FULL) return;
    const struct op_sample_row &r = j.o.row[row];
    uint32_t                   *mark = (uint32_t *)(j.z + (size_t)row * j.o.vocab), vocab = j.o.vocab;
    for (uint32_t i = first; i < r.n_allow; i += step) {
        uint32_t id = j.o.allow[r.allow_start + i];
        if (id < vocab) atomicOr(&mark[id], (uint32_t)SAMPLE_ALLOWED);
    }
    for (uint32_t i = first; i < r.n_ban; i += step) {
        uint32_t id = j.o.ban[r.ban_start + i];
        if (id < vocab) atomicOr(&mark[id], (uint32_t)SAMPLE_BANNED);
    }
    for (uint32_t i = first; i < r.n_bias; i += step) {
        uint32_t id = j.o.bias[r.bias_start + i].id;
        if (id < vocab) atomicOr(&mark[id], SAMPLE_BIASED);
    }
    if (!sample_penal(r)) return;
    for (uint32_t i = first; i < r.n_hist; i += step) {
        uint32_t id = j.o.hist[r.hist_start + i];
        if (id >= vocab) continue;
        atomicOr(&mark[id], (uint32_t)SAMPLE_SEEN);
        if (i >= r.n_prompt) atomicAdd(&mark[id], 1u);
    }
}

/* May the id be drawn by the row's mask? */
__device__ __forceinline__ bool sample_masked(const struct sample_job &j, const struct op_sample_row &r, uint32_t id)
{
    return id / 32 < r.n_mask && j.o.mask[r.mask_start + id / 32] >> (id % 32) & 1;
}

/* Mask, bias, penalties, temperature: each one rounded operation, in the order of device.h. */
__device__ __forceinline__ float sample_adjust(const struct sample_job &j, const struct op_sample_row &r, float l,
                                               uint32_t id, uint32_t mark)
{
    float z = (r.n_allow && !(mark & SAMPLE_ALLOWED)) || (mark & SAMPLE_BANNED) ? -INFINITY : l;
    if (r.n_mask && !sample_masked(j, r, id)) z = -INFINITY;
    if (mark & SAMPLE_BIASED)
        for (uint32_t i = 0; i < r.n_bias; i++) {
            struct op_bias b = j.o.bias[r.bias_start + i];
            if (b.id == id) z = __fadd_rn(z, b.bias);
        }
    if (mark & SAMPLE_SEEN) {
        uint32_t n = mark & SAMPLE_COUNT;
        if (r.repetition != 1.0f) z = z > 0 ? __fdiv_rn(z, r.repetition) : __fmul_rn(z, r.repetition);
        if (n) z = __fsub_rn(z, __fadd_rn(__fmul_rn(r.frequency, (float)n), r.presence));
    }
    return sample_cold(r) ? z : __fdiv_rn(z, r.temperature);
}

__global__ void __launch_bounds__(SAMPLE_THREADS) k_sample_adjust(const struct sample_job j)
{
    uint32_t row = blockIdx.y, chunk = blockIdx.x, first = chunk * SAMPLE_CHUNK + threadIdx.x;
    size_t   at = (size_t)row * j.n_chunk + chunk;
    float    v[SAMPLE_EACH];
    pdl_wait();
    pdl_launch();
    enum sample_kind kind = sample_kind_of(j, row);
    if (kind == SAMPLE_SKIP || kind == SAMPLE_NONE) return;
    uint32_t in = sample_load(v, j.o.logits + (size_t)row * j.o.vocab, first, j.o.vocab), n_top = sample_n_top(j, row);
    u64      best = sample_best<SAMPLE_THREADS>(j.raw_best + (size_t)row * j.n_chunk, j.n_chunk), sum = 0;
    if (!sample_sane(best)) return;
    float max = sample_z(best);
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++) sum += sample_weigh(v[i], max, 0.0f);
    sum = block_sum_u64<SAMPLE_THREADS>(sum);
    if (threadIdx.x == 0) j.raw_sum[at] = sum;

    u64 last = ~0ull; /* best few: each time the best of those behind the last */
    for (uint32_t k = 0; k < n_top; k++) {
        best = 0;
#pragma unroll
        for (int i = 0; i < SAMPLE_EACH; i++) {
            u64 c = v[i] > -INFINITY ? sample_order(v[i], first + (uint32_t)i * SAMPLE_THREADS) : 0;
            best = c < last && c > best ? c : best;
        }
        last = block_max_u64<SAMPLE_THREADS>(best);
        if (threadIdx.x == 0) j.top[at * OP_SAMPLE_TOP_MAX + k] = last;
    }
    if (kind != SAMPLE_FULL) return;
    const struct op_sample_row &r = j.o.row[row];
    float                      *z = j.z + (size_t)row * j.o.vocab;
    bool                        lists = sample_lists(r);
    best = 0;
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++) {
        uint32_t id = first + (uint32_t)i * SAMPLE_THREADS;
        if (!(in >> i & 1)) continue;
        float y = sample_adjust(j, r, v[i], id, lists ? __float_as_uint(z[id]) : 0);
        z[id] = y;
        u64 c = sample_order(y, id);
        best = c > best ? c : best;
    }
    best = warp_max_u64(best);
    if (threadIdx.x % WARP == 0) j.z_best[at * SAMPLE_WARPS + threadIdx.x / WARP] = best;
}

/* Where the candidates of a row end: each has a key of at least `key` and is at most `below` under the best. The others
 * are not needed: behind the k-th best of some ids there are no top k; what weighs less than (1 - top_p) / vocab of
 * some of the ids weighs, all together, less than top-p leaves out; and 31 below the best everything weighs nothing.
 * mine: the best of some of the row's warps, a different one in each thread; 0: none. */
__device__ __forceinline__ void sample_bar(const struct sample_job &j, const struct op_sample_row &r, float max,
                                           u64 mine, uint32_t *key_out, float *below_out)
{
    uint32_t bar = 0;
    *below_out = 31.0f;
    if (!sample_is_k(j, r)) {
        float sum =
            (float)block_sum_u64<SAMPLE_THREADS>(mine ? sample_weigh(sample_z(mine), max, sample_min_p(r)) : 0) *
            0x1p-42f;
        float part = r.top_p > 0.0f ? r.top_p : 0.0f, e = (1.0f - part) * sum / (float)j.o.vocab * 0.99f - 0x1p-42f;
        if (e > 1e-13f) *below_out = fminf(0.05f - logf(e), 31.0f);
    } else if (r.top_k <= SAMPLE_THREADS) { /* bit by bit; the last 12 would bring few candidates less */
        for (uint32_t bit = 1u << 31; bit >= 1u << 12; bit >>= 1)
            if ((uint32_t)__syncthreads_count((uint32_t)(mine >> 32) >= (bar | bit)) >= r.top_k) bar |= bit;
    }
    *key_out = bar;
}

__global__ void __launch_bounds__(SAMPLE_THREADS) k_sample_weigh(const struct sample_job j)
{
    __shared__ u64      part[SAMPLE_TILES][SAMPLE_WARPS];
    __shared__ uint32_t base;
    uint32_t            row = blockIdx.y, chunk = blockIdx.x, first = chunk * SAMPLE_CHUNK + threadIdx.x,
             warp = threadIdx.x / WARP;
    float v[SAMPLE_EACH];
    pdl_wait();
    pdl_launch();
    if (sample_kind_of(j, row) != SAMPLE_FULL) return;
    const struct op_sample_row &r = j.o.row[row];
    const u64                  *z_best = j.z_best + (size_t)row * j.n_chunk * SAMPLE_WARPS;
    if (sample_cold(r)) return;
    if (!sample_sane(sample_best<SAMPLE_THREADS>(j.raw_best + (size_t)row * j.n_chunk, j.n_chunk))) return;
    uint32_t in = sample_load(v, j.z + (size_t)row * j.o.vocab, first, j.o.vocab);
    u64      mine = 0;
    for (uint32_t i = threadIdx.x; i < j.n_chunk * SAMPLE_WARPS; i += SAMPLE_THREADS)
        mine = z_best[i] > mine ? z_best[i] : mine;
    u64 best = block_max_u64<SAMPLE_THREADS>(mine);
    if (!sample_sane(best)) return;
    float max = sample_z(best), min = sample_min_p(r);
#pragma unroll
    for (int t = 0; t < SAMPLE_TILES; t++) {
        u64 sum = 0;
#pragma unroll
        for (int i = 0; i < SAMPLE_EACH / SAMPLE_TILES; i++)
            sum += sample_weigh(v[t * (SAMPLE_EACH / SAMPLE_TILES) + i], max, min);
        sum = warp_sum_u64(sum);
        if (threadIdx.x % WARP == 0) part[t][warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < SAMPLE_TILES) {
        u64 sum = 0;
        for (int w = 0; w < SAMPLE_WARPS; w++) sum += part[threadIdx.x][w];
        j.tile[((size_t)row * j.n_chunk + chunk) * SAMPLE_TILES + threadIdx.x] = sum;
    }
    if (!sample_is_k(j, r) && !sample_is_p(r)) return;

    u64      n_all;
    float    below;
    uint32_t key, is = 0;
    sample_bar(j, r, max, mine, &key, &below);
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++)
        is |= (uint32_t)((in >> i & 1) && max - v[i] <= below && sample_key(v[i]) >= key) << i;
    uint32_t to = (uint32_t)block_scan_u64<SAMPLE_THREADS>((u64)__popc(is), &n_all);
    if (n_all == 0) return;
    if (threadIdx.x == 0) base = atomicAdd(&j.n_list[row], (uint32_t)n_all);
    __syncthreads();
    to += base;
    if (base + n_all > SAMPLE_LIST) return; /* pick will not look at the list */
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++)
        if (is >> i & 1)
            j.list[(size_t)row * SAMPLE_LIST + to++] = sample_order(v[i], first + (uint32_t)i * SAMPLE_THREADS);
}

/* ---------------------------------------------------------------- one block per row */

__global__ void __launch_bounds__(SAMPLE_PICK, 1) k_sample_pick(const struct sample_job j)
{
    DYN_SMEM(struct sample_shared, s);
    uint32_t row = blockIdx.x, vocab = j.o.vocab, id = UINT32_MAX;
    pdl_wait();
    pdl_launch();
    enum sample_kind kind = sample_kind_of(j, row);
    if (kind == SAMPLE_SKIP) return;
    u64  best = kind == SAMPLE_NONE ? 0 : sample_best<SAMPLE_PICK>(j.raw_best + (size_t)row * j.n_chunk, j.n_chunk);
    bool sane = sample_sane(best);
    if (sane && kind == SAMPLE_GIVEN) id = j.given[row];
    if (sane && kind == SAMPLE_GREEDY) id = sample_id(best);
    if (sane && kind == SAMPLE_FULL) {
        u64 z = sample_best<SAMPLE_PICK>(j.z_best + (size_t)row * j.n_chunk * SAMPLE_WARPS, j.n_chunk * SAMPLE_WARPS);
        if (sample_sane(z)) id = sample_cold(j.o.row[row]) ? sample_id(z) : sample_draw(s, j, row, sample_z(z));
    }
    sane = sane && id < vocab;

    /* what the raw logits say about it */
    float  max = sample_z(best);
    double lse = 0;
    if (sane) {
        u64 sum = threadIdx.x < j.n_chunk ? j.raw_sum[(size_t)row * j.n_chunk + threadIdx.x] : 0;
        sum = block_sum_u64<SAMPLE_PICK>(sum);
        if (threadIdx.x == 0) lse = (double)max + weigh_log(sum); /* who writes the results */
    }
    if (threadIdx.x == 0) {
        float l = sane ? j.o.logits[(size_t)row * vocab + id] : 0.0f;
        if (j.o.row) j.o.id[row] = id;
        j.o.logprob[row] = sane ? weigh_logprob(l, lse) : -INFINITY;
        j.o.rank[row] = sane ? 1 : 0; /* and the kernel behind adds the others */
        j.bar[row] = sane && l < max ? l : INFINITY;
    }
    uint32_t n_top = sample_n_top(j, row);
    u64      last = ~0ull;
    for (uint32_t k = 0; k < n_top; k++) {
        u64 c = 0;
        for (uint32_t i = threadIdx.x; sane && i < j.n_chunk * n_top; i += SAMPLE_PICK) {
            u64 t = j.top[((size_t)row * j.n_chunk + i / n_top) * OP_SAMPLE_TOP_MAX + i % n_top];
            c = t < last && t > c ? t : c;
        }
        last = block_max_u64<SAMPLE_PICK>(c);
        if (threadIdx.x == 0) {
            j.o.top_id[(size_t)row * OP_SAMPLE_TOP_MAX + k] = last ? sample_id(last) : UINT32_MAX;
            j.o.top_logprob[(size_t)row * OP_SAMPLE_TOP_MAX + k] =
                last ? weigh_logprob(sample_z(last), lse) : -INFINITY;
        }
    }
}

__global__ void __launch_bounds__(SAMPLE_THREADS) k_sample_rank(const struct sample_job j)
{
    uint32_t row = blockIdx.y, first = blockIdx.x * SAMPLE_CHUNK + threadIdx.x, n = 0;
    float    v[SAMPLE_EACH];
    pdl_wait();
    pdl_launch();
    if (sample_kind_of(j, row) == SAMPLE_SKIP) return;
    float bar = j.bar[row];
    if (bar == INFINITY) return;
    (void)sample_load(v, j.o.logits + (size_t)row * j.o.vocab, first, j.o.vocab);
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++) n += v[i] > bar;
    n = __reduce_add_sync(0xffffffffu, n);
    if (threadIdx.x % WARP == 0 && n) atomicAdd(&j.o.rank[row], n);
}

/* ---------------------------------------------------------------- host */

/* Scratch for n rows; returns its bytes. base NULL: the bytes alone. */
static size_t sample_layout(struct sample_job *j, char *base, size_t n, size_t vocab)
{
    size_t at = 0, n_chunk = (vocab + SAMPLE_CHUNK - 1) / SAMPLE_CHUNK;
    auto   take = [&](size_t bytes) {
        size_t was = at;
        at += (bytes + 255) / 256 * 256;
        return base + was;
    };
    j->n_chunk = (uint32_t)n_chunk;
    j->raw_best = (u64 *)take(n * n_chunk * sizeof(u64));
    j->raw_sum = (u64 *)take(n * n_chunk * sizeof(u64));
    j->top = (u64 *)take(n * n_chunk * OP_SAMPLE_TOP_MAX * sizeof(u64));
    j->z_best = (u64 *)take(n * n_chunk * SAMPLE_WARPS * sizeof(u64));
    j->tile = (u64 *)take(n * n_chunk * SAMPLE_TILES * sizeof(u64));
    j->list = (u64 *)take(n * SAMPLE_LIST * sizeof(u64));
    j->n_list = (uint32_t *)take(n * sizeof(uint32_t));
    j->bar = (float *)take(n * sizeof(float));
    j->z = (float *)take(n * vocab * sizeof(float));
    return at;
}

extern "C" uint64_t cuda_sample_work_bytes(const struct cuda_dev *d, const struct dev_limits *lim)
{
    struct sample_job j;
    (void)d;
    return sample_layout(&j, NULL, lim->logit_rows_max, lim->vocab);
}

static void sample_launch(struct cuda_dev *d, struct sample_job *j, const char *op)
{
    uint32_t n = j->o.n, vocab = j->o.vocab;
    if (n == 0) return;
    CHECK(vocab > 0 && vocab <= SAMPLE_VOCAB_MAX && n <= 65535);
    CHECK(sample_layout(j, d->work, n, vocab) <= d->work_bytes);
    dim3 grid(j->n_chunk, n);
    LAUNCH(k_sample_scan, grid, SAMPLE_THREADS, 0, d, *j);
    if (j->o.row) LAUNCH(k_sample_mark, dim3(SAMPLE_MARK_BLOCKS, n), SAMPLE_THREADS, 0, d, *j);
    LAUNCH(k_sample_adjust, grid, SAMPLE_THREADS, 0, d, *j);
    if (j->o.row) LAUNCH(k_sample_weigh, grid, SAMPLE_THREADS, 0, d, *j);
    LAUNCH(k_sample_pick, n, SAMPLE_PICK, sizeof(struct sample_shared), d, *j);
    LAUNCH(k_sample_rank, grid, SAMPLE_THREADS, 0, d, *j);
    cuda_launched(d, op);
}

extern "C" void cuda_sample(struct device *dev, const struct op_sample *o)
{
    struct sample_job j = {};
    j.o = *o;
    sample_launch(cuda_of(dev), &j, "sample");
}

extern "C" void cuda_logprob(struct device *dev, const struct op_logprob *o)
{
    struct sample_job j = {};
    j.o.logits = o->logits, j.o.n = o->n, j.o.vocab = o->vocab;
    j.o.logprob = o->logprob, j.o.rank = o->rank, j.o.top_id = o->top_id, j.o.top_logprob = o->top_logprob;
    j.given = o->id, j.n_top = o->n_top;
    sample_launch(cuda_of(dev), &j, "logprob");
}
