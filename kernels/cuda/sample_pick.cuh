/* sample_pick: the survivors of one row and the draw among them, by one block of SAMPLE_PICK threads.   Device code of
 * sample.cu. z [vocab] of the row; max: the best of it; min: min-p. A set of survivors is all that is at least some
 * order (sample.cuh). */
#pragma once
#include "kernels/cuda/sample.cuh"

enum {
    SAMPLE_BINS = 2048,
    SAMPLE_LAST = SAMPLE_BINS - 1, /* bin of all that is at least 31.98 below the best, and so weighs nothing */
    SAMPLE_AHEAD = 4,              /* values that a thread asks for at once */
};

/* What the threads share. */
struct sample_shared {
    union {
        u64 bin[SAMPLE_BINS];
        u64 key[SAMPLE_LIST];
    };
    u64      tile[SAMPLE_PICK];
    u64      found_before, found_sum;
    uint32_t found;
};

/* One step of a cumulative search: v of each thread in order; the one where the sum first exceeds `place` leaves its
 * number, returned with the sum before it. All threads; place < sum of all v. */
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
__device__ __forceinline__ uint32_t sample_walk(struct sample_shared *s, const float *z, uint32_t vocab, float max,
                                                float min, u64 floor, uint32_t random)
{
    u64 sum = s->tile[threadIdx.x], total = block_sum_u64<SAMPLE_PICK>(sum), place = weigh_place(total, random), before;
    uint32_t id = sample_find(s, sum, place, &before) * SAMPLE_TILE + threadIdx.x;
    u64      w = id < vocab && sample_order(z[id], id) >= floor ? sample_weigh(z[id], max, min) : 0;
    return id - threadIdx.x + sample_find(s, w, place - before, &before);
}

/* s->tile: what of each tile is at least `floor` in order. A warp per tile. Returns the sum. */
__device__ __forceinline__ u64 sample_tiles(struct sample_shared *s, const float *z, uint32_t vocab, float max,
                                            float min, u64 floor)
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

/* Pass 0 settles the distance from the best. Each later pass settles these bits of the order, from this bit on. */
__device__ __forceinline__ int sample_shift(int pass)
{
    if (pass == 1) return 53;
    if (pass == 2) return 42;
    if (pass == 3) return 32;
    return pass == 4 ? 10 : 0;
}
__device__ __forceinline__ u64 sample_digits(int pass)
{
    if (pass == 0) return 0;
    return pass <= 2 ? 2047 : 1023;
}

/* The last of those at least `floor` in order that together count (or weigh) `need`, best first: 1 <= need <= all there
 * is. Radix select: first by distance from the best, which spreads what matters over many bins, then by the bits of the
 * order, those of the value and those of the id, so that one id is left. */
__device__ __forceinline__ u64 sample_select(struct sample_shared *s, const float *z, uint32_t vocab, float max,
                                             float min, u64 floor, bool by_weight, u64 need)
{
    u64      value = 0, known = 0; /* bits of the order that are settled */
    uint32_t bin0 = 0;
    for (int pass = 0; pass < 6; pass++) {
        const int shift = sample_shift(pass);
        const u64 digits = sample_digits(pass);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < SAMPLE_BINS; i += SAMPLE_PICK) s->bin[i] = 0;
        __syncthreads();
        for (uint32_t first = threadIdx.x; first - threadIdx.x < vocab; first += SAMPLE_AHEAD * SAMPLE_PICK) {
            float y[SAMPLE_AHEAD];
#pragma unroll
            for (uint32_t q = 0; q < SAMPLE_AHEAD; q++)
                y[q] = first + q * SAMPLE_PICK < vocab ? z[first + q * SAMPLE_PICK] : -INFINITY;
#pragma unroll
            for (uint32_t q = 0; q < SAMPLE_AHEAD; q++) { /* whole warps: they add together what falls into one bin */
                uint32_t id = first + q * SAMPLE_PICK, bin = 0,
                         near = (uint32_t)fminf((max - y[q]) * 64.0f, (float)SAMPLE_LAST);
                u64 c = sample_order(y[q], id), w = 0;
                if (id < vocab && c >= floor && (pass == 0 || (near == bin0 && (c & known) == value))) {
                    w = by_weight ? sample_weigh(y[q], max, min) : 1;
                    bin = pass == 0 ? near : (uint32_t)(digits - (c >> shift & digits));
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

/* The weight of a key of the list: an order, or its halves swapped */
__device__ __forceinline__ u64 sample_key_weight(u64 key, bool swapped, float max, float min)
{
    return sample_weigh(sample_unkey((uint32_t)(swapped ? key : key >> 32)), max, min);
}
/* Of s->key[n], each thread `each` in a row: the sum of this thread's */
__device__ __forceinline__ u64 sample_list_sum(const struct sample_shared *s, uint32_t n, uint32_t each, bool swapped,
                                               float max, float min)
{
    u64 sum = 0;
    for (uint32_t i = threadIdx.x * each; i < n && i < (threadIdx.x + 1) * each; i++)
        sum += sample_key_weight(s->key[i], swapped, max, min);
    return sum;
}
/* and the first with which the sum exceeds `place` */
__device__ __forceinline__ uint32_t sample_list_find(struct sample_shared *s, u64 sum, uint32_t each, bool swapped,
                                                     float max, float min, u64 place)
{
    u64      before;
    uint32_t i = sample_find(s, sum, place, &before) * each;
    while ((before += sample_key_weight(s->key[i], swapped, max, min)) <= place) i++;
    return i;
}

/* Survivors and draw from the list of candidates: sorted by order, cut, sorted by id, walked. total: what all ids
 * weigh. */
__device__ __forceinline__ uint32_t sample_pick_list(struct sample_shared *s, const struct sample_job &j, uint32_t row,
                                                     uint32_t n, float max, u64 total, uint32_t random)
{
    const struct op_sample_row &r = j.o.row[row];
    u64                        *key = s->key, sum;
    float                       min = sample_min_p(r);
    uint32_t                    m = 2;
    while (m < n) m *= 2;
    uint32_t each = m > SAMPLE_PICK ? m / SAMPLE_PICK : 1;
    for (uint32_t k = threadIdx.x; k < m; k += SAMPLE_PICK) key[k] = k < n ? j.list[(size_t)row * SAMPLE_LIST + k] : 0;
    block_sort_u64<SAMPLE_PICK>(key, m);
    if (sample_is_k(j, r) && r.top_k < n) n = r.top_k;
    if (sample_is_p(r)) {
        sum = sample_list_sum(s, n, each, false, max, min);
        if (sample_is_k(j, r)) total = block_sum_u64<SAMPLE_PICK>(sum);
        n = sample_list_find(s, sum, each, false, max, min, weigh_part(total, r.top_p) - 1) + 1;
        __syncthreads();
    }
    for (uint32_t k = threadIdx.x; k < m; k += SAMPLE_PICK)
        key[k] = k < n ? key[k] << 32 | key[k] >> 32 : 0; /* lower ids first */
    block_sort_u64<SAMPLE_PICK>(key, m);
    sum = sample_list_sum(s, n, each, true, max, min);
    total = block_sum_u64<SAMPLE_PICK>(sum);
    return ~(uint32_t)(key[sample_list_find(s, sum, each, true, max, min, weigh_place(total, random))] >> 32);
}

__device__ __forceinline__ uint32_t sample_draw(struct sample_shared *s, const struct sample_job &j, uint32_t row,
                                                float max)
{
    const struct op_sample_row &r = j.o.row[row];
    const float                *z = j.z + (size_t)row * j.o.vocab;
    uint32_t random = rng_philox(r.seed, r.stream, r.counter).x[0], n_tile = j.n_chunk * SAMPLE_TILES;
    bool     is_k = sample_is_k(j, r), is_p = sample_is_p(r);
    float    min = sample_min_p(r);
    u64      floor = 0;
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
