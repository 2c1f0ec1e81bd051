/* attn_runs: decode of runs, two to eight rows of a sequence at a time: drafts that are to be verified, nodes of a tree,
 * the end of a prompt.   Device code of attn_kernels.cuh.
 *
 * As k_attn_decode, but that the rows of a warp's mma are (row, head) pairs: of a group of 4 heads 4 rows, so that KV is
 * read once for all of them. Each row sees what is its own to see: history without a mask; tiles that only some see, in
 * which the newest tokens and the nodes of a tree lie, by a mask of 64 bits. A warp goes over the chunks that any of its
 * rows reaches. Where a row sees nothing of a chunk, its part says so in numbers that no sum takes notice of: the row is
 * put together from its own chunks alone, and has the bits that it has as a row alone and in a tile.
 *
 * A step that has such rows gives all its decode rows to this kernel: chunks of all sequences are then one list. */
#pragma once
#include "kernels/cuda/attn_parts.cuh"

/* What one warp works on: rows x .. x + n - 1 of the pairs (row, head), which begin with (row0, head0). */
struct attn_run_item {
    uint32_t seq, unit, row0, head0, group, x, n;
    uint32_t pos, first, chunk;    /* slots first .. pos are what any of its rows sees; chunk: tokens */
    uint32_t index;                /* of this chunk */
    uint32_t number, part0, n_row; /* number: of the counter; part0: where parts of row0 in chunk 0 lie, or would */
    __device__ __forceinline__ uint32_t rows(void) const { return n; }
    __device__ __forceinline__ uint32_t row(uint32_t i) const { return row0 + (x + i) / group; }
    __device__ __forceinline__ uint32_t head(uint32_t i) const { return head0 + (x + i) % group; }
    __device__ __forceinline__ uint32_t counter(void) const { return number; }
    __device__ __forceinline__ size_t   part(uint32_t chunk_index, uint32_t i) const
    {
        return part0 + chunk_index * n_row + (x + i) / group;
    }
    __device__ __forceinline__ uint32_t parts_apart(void) const { return n_row; }
};

static __device__ __forceinline__ uint64_t attn_tree(const struct attn_args &a, uint32_t row)
{
    return a.tree ? a.tree[row] : 0;
}
static __device__ __forceinline__ uint32_t attn_slot(const struct attn_args &a, uint32_t row)
{
    return tree_slot(a.pos[row], attn_tree(a, row));
}

/* Item i of the launch; false: there is no work in it. */
static __device__ __forceinline__ bool attn_run_item_of(const struct attn_args &a, uint32_t i, struct attn_run_item &w)
{
    uint32_t item = i / a.n_unit, per_group = a.n_unit / a.n_kv_head, run, nth, half = 0, chunk;
    w.unit = i % a.n_unit;
    if (a.cut.each) {
        uint32_t halves = a.cut.chunk ? 1 : 2;
        run = item / (a.cut.each * halves);
        half = item / a.cut.each % halves;
        nth = item % a.cut.each;
        chunk = a.cut.chunk;
    } else {
        run = a.plan.item_seq[item];
        if (run == UINT32_MAX) return false;
        nth = a.plan.item_chunk[item];
        chunk = *a.plan.chunk;
    }
    const struct cuda_attn_run r = a.plan.run[run];
    uint32_t                   end = r.row + r.n_row;
    w.seq = r.seq, w.n_row = r.n_row, w.row0 = r.row, w.group = a.group;
    w.number = 2 * run + half;
    if (a.cut.each &&
        !a.cut.chunk) { /* chunks of rows that the window holds whole are not as long as those of others */
        uint32_t row = r.row;
        while (row < end && attn_slot(a, row) < a.window) row++;
        if (half)
            w.row0 = row;
        else
            end = row;
        if (w.row0 == end) return false;
    }
    uint32_t per_row = a.group, x = w.unit % per_group * CUDA_ATTN_HEADS, all = (end - w.row0) * per_row;
    if (x >= all) return false; /* a shorter run than others */
    w.x = x, w.n = min(all - x, (uint32_t)CUDA_ATTN_HEADS);
    w.head0 = w.unit / per_group * a.group;
    w.chunk = chunk ? chunk : cuda_attn_chunk_fixed(attn_slot(a, end - 1) + 1, a.window);
    uint32_t index0 = a.cut.each ? attn_first(a, a.pos[w.row0]) / w.chunk : 0;
    w.index = index0 + nth;
    w.part0 = (a.cut.each ? r.before * a.cut.each : r.part) + w.row0 - r.row - index0 * r.n_row;
    w.first = attn_first(a, a.pos[w.row(0)]);
    w.pos = attn_slot(a, w.row(w.n - 1));
    return w.index * w.chunk <= w.pos && (w.index + 1) * w.chunk > w.first;
}

/* What the rows of the item see of slots [begin, end); sight: of the warp's 16 rows. */
template <int HD>
static __device__ __forceinline__ void attn_run_sees(const struct attn_args &a, const struct attn_run_item &w,
                                                     struct attn_run_rows<HD> &r, struct tree_sight *sight,
                                                     uint32_t begin, uint32_t end)
{
    uint32_t g = (threadIdx.x & 31) / 4, history = UINT32_MAX, late = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        struct tree_sight s = { 0, 0, 0 }; /* nothing */
        if (g + 8 * h < w.n) {
            uint32_t row = w.row(g + 8 * h), pos = a.pos[row], first = attn_first(a, pos);
            s = tree_sight_of(pos, attn_tree(a, row), first);
            history = min(history, s.base);
            late = max(late, first);
        }
        if ((threadIdx.x & 3) == 0) sight[g + 8 * h] = s;
    }
    r.sight = sight + g;
    __syncwarp();
#pragma unroll
    for (int m = 4; m < 32; m *= 2) {
        history = min(history, __shfl_xor_sync(0xffffffffu, history, m));
        late = max(late, __shfl_xor_sync(0xffffffffu, late, m));
    }
    r.seen_first = begin, r.seen_last = end - 1;
    r.all_first = history ? late : UINT32_MAX, r.all_last = history - 1;
}

/* Rows that see nothing of the chunk get sums of -0, which added to any number are that number. */
template <int HD>
static __device__ __forceinline__ void attn_run_blank(struct attn_run_rows<HD> &r, uint32_t begin, uint32_t end)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const struct tree_sight s = r.sight[8 * h];
        uint32_t                from = max(begin, s.base) - s.base, to = max(end, s.base) - s.base;
        if (max(begin, s.first) < min(end, s.base) || (s.bits & tree_ones(to) & ~tree_ones(from))) continue;
        r.m[0][h] = -INFINITY;
        r.l[0][h] = 0.0f;
#pragma unroll
        for (int j = 0; j < attn_dim<HD>::OUT / 8; j++) r.o[0][j][2 * h] = r.o[0][j][2 * h + 1] = -0.0f;
    }
}

/* Where rows of Q of an item lie. */
struct attn_q_run {
    const struct attn_args                    &a;
    const struct attn_run_item                &w;
    __device__ __forceinline__ const uint16_t *operator()(uint32_t i) const
    {
        return (const uint16_t *)a.qkv + ((size_t)w.row(i) * a.width + w.head(i)) * a.head_dim;
    }
};

template <class P, int HD>
__global__ void __launch_bounds__(attn_dim<HD>::PARTS * 32, 8 / attn_dim<HD>::PARTS)
    k_attn_runs(const struct attn_args a)
{
    typedef typename attn_pool<P>::element E;
    typedef typename attn_pool<P>::number  T;
    enum { PARTS = attn_dim<HD>::PARTS };
    DYN_SMEM(char, ring);
    __shared__ struct tree_sight sight[PARTS][16];
    uint32_t                     g = (threadIdx.x & 31) / 4, n = a.n_item * a.n_unit;
    bool                         back = false;
    for (uint32_t turn = 0; turn < n; turn += gridDim.x, back = !back) { /* to and fro, as k_attn_decode */
        uint32_t             i = turn + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        struct attn_run_item w;
        if (i >= n || !attn_run_item_of(a, i, w)) continue;
        uint32_t begin = max(w.index * w.chunk, w.first), end = min((w.index + 1) * w.chunk, w.pos + 1);

        struct attn_feed<E> f;
        attn_feed_of(a, f, ring, w.seq, w.head0, begin, end);
        attn_feed_early<HD, PARTS>(a, f, attn_slot(a, a.row_start[w.seq]));

        struct attn_query<HD, 1, PARTS> q;
        q.smem = ring + (attn_query<HD, 1, PARTS>::IN_REGISTERS ? attn_ring<E, HD>::FREE : attn_ring<E, HD>::BYTES);
        attn_q_rows<T, HD>(a, (char *)q.smem, attn_q_run{ a, w }, w.n);
        attn_q_take<HD, 1, PARTS>(q, q.smem);
        struct attn_run_rows<HD> r;
        attn_run_sees<HD>(a, w, r, sight[attn_share_of<HD>()], begin, end);
        attn_walk<T, HD, 1, PARTS>(a, f, q, r, NULL);
        if (PARTS == 1)
            __syncwarp();
        else
            __syncthreads(); /* the ring and Q are free */

        if (w.first / w.chunk == w.pos / w.chunk) {
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (g + 8 * h < w.n) attn_put_rows<HD, 1>(a, r, 0, h, w.row(g + 8 * h), w.head(g + 8 * h));
            continue;
        }
        attn_run_blank<HD>(r, begin, end);
        attn_partial<HD>(a, w, r);
        if (attn_last(a, w, PARTS)) attn_merge_parts<HD>(a, w);
    }
    pdl_wait(); /* those without work too: completion is passed on */
    pdl_launch();
}
