/* sample: rows of logits to ids, their logprobs, ranks and the best few.   truth: kernels/ref/sample.c
 *   logits F32 [n, vocab]   the rest: kernels/device.h, op_sample and op_logprob; the id is bit for bit that of kernels/cpu/sample.c
 *
 * A row is cut into chunks of 4096 ids, a block each, so that one row does not wait for one SM. Every kernel finds out on the device what
 * its row asks for, so a captured launch serves any settings. Sums are integers and maxima carry the id: no order of blocks shows.
 *   scan    the best of each chunk; clears the marks
 *   mark    which ids are banned, allowed, biased, in the history and how often
 *   adjust  raw weights of each chunk, its best few for logprobs; z, and the best z of each warp
 *   weigh   weights of each tile of 1024 ids; candidates of top-k and top-p to a list
 *   pick    one block per row: the survivors, from the list where it holds all candidates, else by radix select over z; the draw; logprobs
 *   rank    how many raw logits are higher
 * Results that other blocks add to (rank) lie in device memory. Scratch: d->work, nothing of which outlives the call. */
#include "base/check.h"
#include "kernels/cuda/sample.cuh"

enum {
    SAMPLE_THREADS = 256,
    SAMPLE_WARPS = SAMPLE_THREADS / WARP,
    SAMPLE_EACH = 16, /* ids per thread */
    SAMPLE_CHUNK = SAMPLE_THREADS * SAMPLE_EACH,
    SAMPLE_TILE = 1024,
    SAMPLE_TILES = SAMPLE_CHUNK / SAMPLE_TILE, /* per chunk: thread t has ids t, t + 256, ..: four of them lie in one tile */
    SAMPLE_VOCAB_MAX = 1 << 20,
    SAMPLE_CHUNKS_MAX = SAMPLE_VOCAB_MAX / SAMPLE_CHUNK, /* one per thread */
    SAMPLE_PICK = 1024,                                  /* threads of pick: one per tile, and per id of a tile */
    SAMPLE_MARK_BLOCKS = 4,
    SAMPLE_LIST = 2048,        /* candidates of a row that are sorted; two per thread */
    SAMPLE_BARS = 512,         /* warps whose best values tell where the k-th best must lie above */
    SAMPLE_BINS = 2048,        /* of the radix select */
    SAMPLE_LAST = 2047,        /* bin of all that is at least 31.98 below the best, and so weighs nothing */
    SAMPLE_COUNT = 0x0fffffff, /* marks: how often in the answer */
    SAMPLE_SEEN = 1 << 28,
    SAMPLE_ALLOWED = 1 << 29,
    SAMPLE_BANNED = 1 << 30,
};
#define SAMPLE_BIASED 0x80000000u

/* What a launch works on. A row of op_logprob is one whose id is given. */
struct sample_job {
    struct op_sample o; /* row NULL: given */
    const uint32_t  *given;
    uint32_t         n_top, n_chunk;
    u64             *raw_best, *raw_sum; /* [n][n_chunk] */
    u64             *top;                /* [n][n_chunk][OP_SAMPLE_TOP_MAX] falling; 0: no more */
    u64             *z_best;             /* [n][n_chunk][SAMPLE_WARPS] */
    u64             *tile;               /* [n][n_chunk][SAMPLE_TILES] */
    u64             *list;               /* [n][SAMPLE_LIST] */
    uint32_t        *n_list;             /* [n] above SAMPLE_LIST: some are missing */
    float           *bar;                /* [n] rank counts what is above */
    float           *z;                  /* [n][vocab]; marks until adjust */
};

enum sample_kind {
    SAMPLE_SKIP, /* padding */
    SAMPLE_NONE, /* no id was given */
    SAMPLE_GIVEN,
    SAMPLE_GREEDY, /* the best of the raw logits */
    SAMPLE_FULL,
};

__device__ __forceinline__ bool sample_penal(const struct op_sample_row &r)
{
    return r.n_hist && (r.repetition != 1.0f || r.frequency != 0.0f || r.presence != 0.0f);
}
__device__ __forceinline__ bool sample_lists(const struct op_sample_row &r) { return r.n_allow || r.n_ban || r.n_bias || sample_penal(r); }
__device__ __forceinline__ bool sample_cold(const struct op_sample_row &r) { return r.temperature < 1e-5f; }
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

/* Mask, bias, penalties, temperature: each one rounded operation, in the order of device.h. */
__device__ __forceinline__ float sample_adjust(const struct sample_job &j, const struct op_sample_row &r, float l, uint32_t id,
                                               uint32_t mark)
{
    float z = (r.n_allow && !(mark & SAMPLE_ALLOWED)) || (mark & SAMPLE_BANNED) ? -INFINITY : l;
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

__device__ __forceinline__ bool sample_is_k(const struct sample_job &j, const struct op_sample_row &r)
{
    return r.top_k && r.top_k < j.o.vocab;
}
__device__ __forceinline__ float sample_min_p(const struct op_sample_row &r) { return r.min_p < 1.0f ? r.min_p : 1.0f; }

/* Where the candidates of a row end: each is at least `order` and at most `below` under the best. What is left out is not needed:
 * behind the k-th best of some ids there are no top k; what weighs less than (1 - top_p) / vocab weighs, all together, less than top-p
 * leaves out; and 31 below the best everything weighs nothing. Is the same in all blocks, but need not be. */
__device__ __forceinline__ void sample_bar(const struct sample_job &j, const struct op_sample_row &r, const u64 *z_best, u64 *order_out,
                                           float *below_out)
{
    __shared__ u64 bar[SAMPLE_BARS], found;
    uint32_t       n = j.n_chunk * SAMPLE_WARPS;
    *below_out = 31.0f, *order_out = 0;
    if (!sample_is_k(j, r)) {
        float part = r.top_p > 0.0f ? r.top_p : 0.0f, e = (1.0f - part) / (float)j.o.vocab * 0.99f - 0x1p-42f;
        if (e > 1e-13f) *below_out = fminf(0.05f - logf(e), 31.0f);
        return;
    }
    if (r.top_k > n || n > SAMPLE_BARS) return;
    for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS) bar[i] = z_best[i];
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += SAMPLE_THREADS) {
        uint32_t ahead = 0;
        for (uint32_t k = 0; k < n; k++) ahead += bar[k] > bar[i];
        if (ahead == r.top_k - 1 && bar[i]) found = bar[i];
    }
    __syncthreads();
    *order_out = found;
}

__global__ void __launch_bounds__(SAMPLE_THREADS) k_sample_weigh(const struct sample_job j)
{
    __shared__ u64      part[SAMPLE_TILES][SAMPLE_WARPS];
    __shared__ uint32_t base;
    uint32_t            row = blockIdx.y, chunk = blockIdx.x, first = chunk * SAMPLE_CHUNK + threadIdx.x, warp = threadIdx.x / WARP;
    float               v[SAMPLE_EACH];
    pdl_wait();
    pdl_launch();
    if (sample_kind_of(j, row) != SAMPLE_FULL) return;
    const struct op_sample_row &r = j.o.row[row];
    const u64                  *z_best = j.z_best + (size_t)row * j.n_chunk * SAMPLE_WARPS;
    if (sample_cold(r)) return;
    if (!sample_sane(sample_best<SAMPLE_THREADS>(j.raw_best + (size_t)row * j.n_chunk, j.n_chunk))) return;
    uint32_t in = sample_load(v, j.z + (size_t)row * j.o.vocab, first, j.o.vocab);
    u64      best = sample_best<SAMPLE_THREADS>(z_best, j.n_chunk * SAMPLE_WARPS);
    if (!sample_sane(best)) return;
    float max = sample_z(best), min = sample_min_p(r);
#pragma unroll
    for (int t = 0; t < SAMPLE_TILES; t++) {
        u64 sum = 0;
#pragma unroll
        for (int i = 0; i < SAMPLE_EACH / SAMPLE_TILES; i++) sum += sample_weigh(v[t * (SAMPLE_EACH / SAMPLE_TILES) + i], max, min);
        sum = warp_sum_u64(sum);
        if (threadIdx.x % WARP == 0) part[t][warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < SAMPLE_TILES) {
        u64 sum = 0;
        for (int w = 0; w < SAMPLE_WARPS; w++) sum += part[threadIdx.x][w];
        j.tile[((size_t)row * j.n_chunk + chunk) * SAMPLE_TILES + threadIdx.x] = sum;
    }
    if (!sample_is_k(j, r) && !(r.top_p < 1.0f)) return;

    u64      order, n_all;
    float    below;
    uint32_t is = 0;
    sample_bar(j, r, z_best, &order, &below);
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++)
        is |= (uint32_t)((in >> i & 1) && max - v[i] <= below && sample_order(v[i], first + (uint32_t)i * SAMPLE_THREADS) >= order) << i;
    uint32_t to = (uint32_t)block_scan_u64<SAMPLE_THREADS>((u64)__popc(is), &n_all);
    if (n_all == 0) return;
    if (threadIdx.x == 0) base = atomicAdd(&j.n_list[row], (uint32_t)n_all);
    __syncthreads();
    to += base;
    if (base + n_all > SAMPLE_LIST) return; /* pick will not look at the list */
#pragma unroll
    for (int i = 0; i < SAMPLE_EACH; i++)
        if (is >> i & 1) j.list[(size_t)row * SAMPLE_LIST + to++] = sample_order(v[i], first + (uint32_t)i * SAMPLE_THREADS);
}

/* ---------------------------------------------------------------- one block per row */

/* What the threads of pick share. One at a time: bins of the select, or keys of the list. */
struct sample_shared {
    u64      bin[SAMPLE_BINS]; /* SAMPLE_LIST keys */
    u64      tile[SAMPLE_PICK];
    u64      found_before, found_sum;
    uint32_t found;
};

/* One step of a cumulative search: v of each thread in order; the one where the sum first exceeds `place` leaves its number,
 * returned with the sum before it. All threads; place < sum of all v. */
__device__ __forceinline__ uint32_t sample_find(struct sample_shared *s, u64 v, u64 place, u64 *before_out)
{
    u64 total, before = block_scan_u64<SAMPLE_PICK>(v, &total);
    if (before <= place && place < before + v) s->found = threadIdx.x, s->found_before = before;
    __syncthreads();
    uint32_t found = s->found;
    *before_out = s->found_before;
    __syncthreads();
    return found;
}

/* The draw over all that is at least `floor` in order, by ids. s->tile: what the tiles weigh. */
__device__ __forceinline__ uint32_t sample_walk(struct sample_shared *s, const float *z, uint32_t vocab, float max, float min, u64 floor,
                                                uint32_t random)
{
    u64      sum = s->tile[threadIdx.x], total = block_sum_u64<SAMPLE_PICK>(sum), place = weigh_place(total, random), before;
    uint32_t id = sample_find(s, sum, place, &before) * SAMPLE_TILE + threadIdx.x;
    u64      w = id < vocab && sample_order(z[id], id) >= floor ? sample_weigh(z[id], max, min) : 0;
    return id - threadIdx.x + sample_find(s, w, place - before, &before);
}

/* s->tile: what of each tile is at least `floor` in order. A warp per tile. Returns the sum. */
__device__ __forceinline__ u64 sample_tiles(struct sample_shared *s, const float *z, uint32_t vocab, float max, float min, u64 floor)
{
    uint32_t lane = threadIdx.x % WARP;
    __syncthreads();
    for (uint32_t tile = threadIdx.x / WARP; tile < SAMPLE_PICK; tile += SAMPLE_PICK / WARP) {
        u64 sum = 0;
        for (uint32_t id = tile * SAMPLE_TILE + lane; id < vocab && id < (tile + 1) * SAMPLE_TILE; id += WARP)
            if (sample_order(z[id], id) >= floor) sum += sample_weigh(z[id], max, min);
        if (tile * SAMPLE_TILE < vocab) sum = warp_sum_u64(sum);
        if (lane == 0) s->tile[tile] = sum;
    }
    __syncthreads();
    return block_sum_u64<SAMPLE_PICK>(s->tile[threadIdx.x]);
}

/* The last of those at least `floor` in order that together count (or weigh) `need`, best first: 1 <= need <= all there is.
 * Radix select: first by distance from the best, which spreads what matters over many bins, then by the bits of the order,
 * those of the value and those of the id, so that one id is left. */
__device__ u64 sample_select(struct sample_shared *s, const float *z, uint32_t vocab, float max, float min, u64 floor, bool by_weight,
                             u64 need)
{
    u64      value = 0, known = 0; /* bits of the order that are settled */
    uint32_t bin0 = 0;
    for (int pass = 0; pass < 6; pass++) {
        const int shift = pass == 1 ? 53 : pass == 2 ? 42 : pass == 3 ? 32 : pass == 4 ? 10 : 0;
        const u64 digits = pass == 0 ? 0 : pass <= 2 ? 2047 : 1023;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < SAMPLE_BINS; i += SAMPLE_PICK) s->bin[i] = 0;
        __syncthreads();
        for (uint32_t first = 0; first < vocab; first += SAMPLE_PICK) { /* whole warps: they add together what falls into one bin */
            uint32_t id = first + threadIdx.x, bin = SAMPLE_BINS;
            u64      w = 0;
            if (id < vocab) {
                float    y = z[id];
                u64      c = sample_order(y, id);
                uint32_t b = (uint32_t)fminf((max - y) * 64.0f, (float)SAMPLE_LAST);
                if (c >= floor && (pass == 0 || (b == bin0 && (c & known) == value))) {
                    w = by_weight ? sample_weigh(y, max, min) : 1;
                    bin = pass == 0 ? b : (uint32_t)(digits - (c >> shift & digits));
                }
            }
            uint32_t busy = __ballot_sync(0xffffffffu, w != 0);
            if (!busy) continue;
            uint32_t one = __shfl_sync(0xffffffffu, bin, __ffs((int)busy) - 1);
            if (__all_sync(0xffffffffu, w == 0 || bin == one)) {
                w = warp_sum_u64(w), bin = one;
                if (threadIdx.x % WARP) w = 0;
            }
            if (w) atomicAdd(&s->bin[bin], w);
        }
        __syncthreads();
        u64      a = s->bin[2 * threadIdx.x], b = s->bin[2 * threadIdx.x + 1], before;
        uint32_t hit = sample_find(s, a + b, need - 1, &before) * 2;
        need -= before;
        if (s->bin[hit] < need) need -= s->bin[hit], hit++;
        if (pass == 0)
            bin0 = hit;
        else
            value |= (digits - hit) << shift, known |= digits << shift;
    }
    return value | (u64)(uint32_t) ~(SAMPLE_VOCAB_MAX - 1); /* the upper bits of ~id */
}

/* Survivors and draw from the list of candidates: sorted by order, cut, sorted by id, walked. total: what all ids weigh. */
__device__ __forceinline__ uint32_t sample_pick_list(struct sample_shared *s, const struct sample_job &j, uint32_t row, uint32_t n,
                                                     float max, u64 total, uint32_t random)
{
    const struct op_sample_row &r = j.o.row[row];
    u64                        *key = s->bin, before;
    float                       min = sample_min_p(r);
    uint32_t                    m = 2, i = 2 * threadIdx.x;
    while (m < n) m *= 2;
    for (uint32_t k = threadIdx.x; k < m; k += SAMPLE_PICK) key[k] = k < n ? j.list[(size_t)row * SAMPLE_LIST + k] : 0;
    block_sort_u64<SAMPLE_PICK>(key, m);
    if (sample_is_k(j, r) && r.top_k < n) n = r.top_k;
    u64 a = i < n ? sample_weigh(sample_z(key[i]), max, min) : 0, b = i + 1 < n ? sample_weigh(sample_z(key[i + 1]), max, min) : 0;
    if (sample_is_k(j, r)) total = block_sum_u64<SAMPLE_PICK>(a + b);
    if (r.top_p < 1.0f) {
        u64 need = weigh_part(total, r.top_p);
        n = sample_find(s, a + b, need - 1, &before) * 2;
        n += before + sample_weigh(sample_z(key[n]), max, min) >= need ? 1 : 2;
    }
    __syncthreads();
    for (uint32_t k = threadIdx.x; k < m; k += SAMPLE_PICK) key[k] = k < n ? key[k] << 32 | key[k] >> 32 : 0; /* lower ids first */
    block_sort_u64<SAMPLE_PICK>(key, m);
    a = i < n ? sample_weigh(sample_unkey((uint32_t)key[i]), max, min) : 0;
    b = i + 1 < n ? sample_weigh(sample_unkey((uint32_t)key[i + 1]), max, min) : 0;
    u64      place = weigh_place(block_sum_u64<SAMPLE_PICK>(a + b), random);
    uint32_t at = sample_find(s, a + b, place, &before) * 2;
    if (before + sample_weigh(sample_unkey((uint32_t)key[at]), max, min) <= place) at++;
    return ~(uint32_t)(key[at] >> 32);
}

__device__ __forceinline__ uint32_t sample_draw(struct sample_shared *s, const struct sample_job &j, uint32_t row, float max)
{
    const struct op_sample_row &r = j.o.row[row];
    const float                *z = j.z + (size_t)row * j.o.vocab;
    uint32_t                    random = rng_philox(r.seed, r.stream, r.counter).x[0], n_tile = j.n_chunk * SAMPLE_TILES;
    bool                        is_k = sample_is_k(j, r), is_p = r.top_p < 1.0f;
    float                       min = sample_min_p(r);
    u64                         floor = 0;
    s->tile[threadIdx.x] = threadIdx.x < n_tile ? j.tile[(size_t)row * n_tile + threadIdx.x] : 0;
    __syncthreads();
    u64 total = block_sum_u64<SAMPLE_PICK>(s->tile[threadIdx.x]);
    if (is_k || is_p) {
        uint32_t n = j.n_list[row];
        if (n <= SAMPLE_LIST) return sample_pick_list(s, j, row, n, max, total, random);
        if (is_k) {
            floor = sample_select(s, z, j.o.vocab, max, min, 0, false, r.top_k);
            total = sample_tiles(s, z, j.o.vocab, max, min, floor);
        }
        if (is_p) {
            floor = sample_select(s, z, j.o.vocab, max, min, floor, true, weigh_part(total, r.top_p));
            sample_tiles(s, z, j.o.vocab, max, min, floor);
        }
    }
    return sample_walk(s, z, j.o.vocab, max, min, floor, random);
}

__global__ void __launch_bounds__(SAMPLE_PICK, 1) k_sample_pick(const struct sample_job j)
{
    __shared__ struct sample_shared s;
    uint32_t                        row = blockIdx.x, vocab = j.o.vocab, id = UINT32_MAX;
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
        if (sample_sane(z)) id = sample_cold(j.o.row[row]) ? sample_id(z) : sample_draw(&s, j, row, sample_z(z));
    }
    sane = sane && id < vocab;

    /* what the raw logits say about it */
    float  max = sample_z(best);
    double lse = 0;
    if (sane) {
        u64 sum = threadIdx.x < j.n_chunk ? j.raw_sum[(size_t)row * j.n_chunk + threadIdx.x] : 0;
        lse = (double)max + weigh_log(block_sum_u64<SAMPLE_PICK>(sum));
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
            j.o.top_logprob[(size_t)row * OP_SAMPLE_TOP_MAX + k] = last ? weigh_logprob(sample_z(last), lse) : -INFINITY;
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
    LAUNCH(k_sample_pick, n, SAMPLE_PICK, 0, d, *j);
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
