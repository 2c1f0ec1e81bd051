/* attn_kernels: decode and tiles of rows, over the walk of attn.cuh.   Device code and launches of attn.cu and
 * attn_kv8.cu, which instantiate them for the types that a pool P may have.
 *
 * Decode: a warp (two, where a head has more than 256 numbers) takes the heads of one group of one sequence (rows of
 * its mma) over one chunk of KV; blocks of one warp, as many as the SMs hold, walk the list of items on the device, so
 * the grid knows nothing of lengths. Parts go to plan.partial; the warp that arrives last at a (sequence, group) merges
 * them in order of the chunks and sets the counter back for the next launch.
 * Several decode rows of a sequence: attn_runs.cuh.
 * Tiles of rows: 64 rows of one sequence and one or two heads a block, 16 rows a warp. */
#pragma once
#include "base/check.h"
#include "kernels/cuda/attn_runs.cuh"

/* ---------------------------------------------------------------- decode */

/* What one warp works on: heads of a group of one row. */
struct attn_item {
    uint32_t seq, unit, head0, n_head; /* heads head0 .. of the group, at most 16 */
    uint32_t pos, first, chunk;        /* chunk: tokens */
    uint32_t index, part0;             /* index: of this chunk; part0: where parts of the sequence's first chunk lie */
    __device__ __forceinline__ uint32_t rows(void) const { return n_head; }
    __device__ __forceinline__ uint32_t row(uint32_t) const { return seq; }
    __device__ __forceinline__ uint32_t head(uint32_t i) const { return head0 + i; }
    __device__ __forceinline__ uint32_t counter(void) const { return seq; }
    __device__ __forceinline__ size_t   part(uint32_t chunk_index, uint32_t) const { return part0 + chunk_index; }
    __device__ __forceinline__ uint32_t parts_apart(void) const { return 1; }
};

/* Item i of the launch; false: there is no work in it. */
static __device__ __forceinline__ bool attn_item_of(const struct attn_args &a, uint32_t i, struct attn_item &w)
{
    uint32_t item = i / a.n_unit, per_group = a.n_unit / a.n_kv_head, chunk;
    w.unit = i % a.n_unit;
    if (a.cut.each) {
        w.seq = item / a.cut.each;
        w.part0 = w.seq * a.cut.each;
        if (a.plan.seq_item[w.seq] == a.plan.seq_item[w.seq + 1]) return false; /* padding */
        chunk = a.cut.chunk;
    } else {
        w.seq = a.plan.item_seq[item];
        if (w.seq == UINT32_MAX) return false;
        w.part0 = a.plan.seq_item[w.seq];
        chunk = *a.plan.chunk;
    }
    w.pos = a.pos[w.seq];
    w.first = attn_first(a, w.pos);
    w.chunk = chunk ? chunk : cuda_attn_chunk_fixed(w.pos + 1, a.window);
    w.index = a.cut.each ? w.first / w.chunk + (item - w.part0) : a.plan.item_chunk[item];
    w.part0 -= a.cut.each ? w.first / w.chunk : 0;
    uint32_t in_group = w.unit % per_group * CUDA_ATTN_HEADS;
    w.head0 = w.unit / per_group * a.group + in_group;
    w.n_head = min(a.group - in_group, (uint32_t)CUDA_ATTN_HEADS);
    return w.index * w.chunk <= w.pos;
}

/* Of k_attn_decode. Without a number of blocks ptxas keeps short heads to 128 registers, and spills on an L40S and a
 * B200. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 890 || __CUDA_ARCH__ / 100 == 10)
#define ATTN_DECODE_BOUNDS(HD) __launch_bounds__(attn_dim<HD>::PARTS * 32, HD <= 64 ? 12 : 1)
#else
#define ATTN_DECODE_BOUNDS(HD) __launch_bounds__(attn_dim<HD>::PARTS * 32)
#endif

template <class P, int HD> __global__ void ATTN_DECODE_BOUNDS(HD) k_attn_decode(const struct attn_args a)
{
    typedef typename attn_pool<P>::element E;
    typedef typename attn_pool<P>::number  T;
    enum { PARTS = attn_dim<HD>::PARTS };
    DYN_SMEM(char, ring);
    uint32_t g = (threadIdx.x & 31) / 4, n = a.n_item * a.n_unit;
    bool     back = false;
    /* to and fro over the list, whose longest items come first: who had the longest of one turn has the shortest of the
     * next */
    for (uint32_t turn = 0; turn < n; turn += gridDim.x, back = !back) {
        uint32_t         i = turn + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        struct attn_item w;
        if (i >= n || !attn_item_of(a, i, w)) continue;
        uint32_t begin = max(w.index * w.chunk, w.first), end = min((w.index + 1) * w.chunk, w.pos + 1);
        if (begin >= end) continue; /* the whole chunk is behind the window */

        struct attn_feed<E> f;
        attn_feed_of(a, f, ring, w.seq, w.head0, begin, end);
        attn_feed_early<HD, PARTS>(a, f, w.pos);

        struct attn_query<HD, 1, PARTS> q;
        q.smem = ring + (attn_query<HD, 1, PARTS>::IN_REGISTERS ? attn_ring<E, HD>::FREE : attn_ring<E, HD>::BYTES);
        attn_q_rows<T, HD>(a, (char *)q.smem, attn_q_even{ attn_q_row(a, w.seq, w.head0), a.head_dim }, w.n_head);
        attn_q_take<HD, 1, PARTS>(q, q.smem);
        struct attn_rows<HD, 1> r;
        r.first[0] = r.first[1] = r.seen_first = r.all_first = begin;
        r.last[0] = r.last[1] = r.seen_last = r.all_last = end - 1;
        attn_walk<T, HD, 1, PARTS>(a, f, q, r, NULL);
        if (PARTS == 1)
            __syncwarp();
        else
            __syncthreads(); /* the ring and Q are free */

        if (w.first / w.chunk == w.pos / w.chunk) {
            if (g < w.n_head) attn_put_rows<HD, 1>(a, r, 0, 0, w.seq, w.head0 + g);
            if (g + 8 < w.n_head) attn_put_rows<HD, 1>(a, r, 0, 1, w.seq, w.head0 + g + 8);
            continue;
        }
        attn_partial<HD>(a, w, r);
        if (attn_last(a, w, PARTS)) attn_merge_parts<HD>(a, w);
    }
    pdl_wait(); /* those without work too: completion is passed on */
    pdl_launch();
}

/* ---------------------------------------------------------------- tiles of rows */

/* Rows row0 .. row0 + n of the batch are of the block's tile; row i is row i % 16 of warp i / 16. */
template <int HD, int MT>
static __device__ __forceinline__ void attn_sees(const struct attn_args &a, struct attn_rows<HD, MT> &r, uint32_t row,
                                                 uint32_t end)
{
    uint32_t g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        r.first[h] = 1, r.last[h] = 0; /* nothing */
        if (row + g + 8 * h >= end) continue;
        r.last[h] = a.pos[row + g + 8 * h];
        r.first[h] = attn_first(a, r.last[h]);
    }
    r.seen_first = r.all_first = UINT32_MAX, r.seen_last = r.all_last = 0;
    if (row >= end) return;
    uint32_t p0 = a.pos[row], p1 = a.pos[min(row + 16, end) - 1];
    r.seen_first = attn_first(a, p0);
    r.all_first = attn_first(a, p1);
    r.seen_last = p1, r.all_last = p0;
}

/* A block has MT heads and 16 rows for each of its warps, or for each two that share rows; where that is less than a
 * tile of the plan, several blocks share it. */
template <class P, int HD, int MT, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, HD > 128 ? 1 : 3 - (MT == 2)) k_attn_tile(const struct attn_args a)
{
    typedef typename attn_pool<P>::element E;
    typedef typename attn_pool<P>::number  T;
    typedef attn_smem<E, HD, MT, WARPS>    parts;
    enum { ROWS = WARPS / attn_dim<HD>::PARTS * 16 };
    DYN_SMEM(char, smem);
    uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32 / attn_dim<HD>::PARTS, g = lane / 4,
             n_unit = a.n_head / MT;
    uint32_t tile = blockIdx.x / n_unit, head0 = blockIdx.x % n_unit * MT, part = tile % (CUDA_ATTN_ROWS / ROWS) * ROWS;
    tile /= CUDA_ATTN_ROWS / ROWS;
    uint32_t seq = a.plan.tile_seq[tile], row0 = a.plan.tile_row[tile] + part;
    uint32_t end = seq == UINT32_MAX ? 0 : min(a.row_start[seq + 1], row0 + ROWS);
    if (row0 >= end || seq == UINT32_MAX) {
        pdl_wait();
        pdl_launch();
        return;
    }
    struct attn_rows<HD, MT> r;
    uint32_t                 p0 = a.pos[row0], row = row0 + warp * 16;
    attn_sees(a, r, row, end);

    struct attn_feed<E> f;
    attn_feed_of(a, f, smem, seq, head0, attn_first(a, p0), a.pos[end - 1] + 1);
    attn_feed_early<HD, WARPS>(a, f, a.pos[a.row_start[seq]]);

    struct attn_query<HD, MT, WARPS> q;
    /* a part of the ring that nobody has asked for yet holds the rows while fragments are made of them */
    char *q_warp = smem + (attn_query<HD, MT, WARPS>::IN_REGISTERS ? attn_ring<E, HD>::FREE : attn_ring<E, HD>::BYTES) +
                   warp * MT * 16 * attn_dim<HD>::STRIDE;
    q.smem = q_warp;
#pragma unroll
    for (int i = 0; i < MT; i++) {
        uint32_t from = min(row, end - 1);
        attn_q_rows<T, HD>(a, q_warp + i * 16 * attn_dim<HD>::STRIDE,
                           attn_q_even{ attn_q_row(a, from, head0 + i), (size_t)a.width * a.head_dim }, end - from);
    }
    attn_q_take<HD, MT, WARPS>(q, q_warp);
    float *fold = a.fixed ? (float *)(smem + parts::RING + parts::Q) : NULL;
    attn_walk<T, HD, MT, WARPS>(a, f, q, r, fold);
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (row + g + 8 * h >= end) continue;
            uint32_t chunk = cuda_attn_chunk_fixed(r.last[h] + 1, a.window);
            if (fold && r.first[h] / chunk != r.last[h] / chunk)
                attn_merge<HD, MT, WARPS * 32>(r, i, h, r.l[i][h], fold, false, false, a.scale);
            attn_put_rows<HD, MT>(a, r, i, h, row + g + 8 * h, head0 + i);
        }
}

/* ---------------------------------------------------------------- launches */

template <class P, int HD, int MT, int WARPS> static bool attn_tile(struct cuda_dev *d, const struct attn_args &a)
{
    typedef attn_smem<typename attn_pool<P>::element, HD, MT, WARPS> parts;
    size_t smem = parts::RING + parts::Q + (a.fixed ? parts::FOLD : 0);
    if (a.group % MT || smem > cuda_attn_smem(d->arch)) return false;
    enum { ROWS = WARPS / attn_dim<HD>::PARTS * 16 };
    LAUNCH((k_attn_tile<P, HD, MT, WARPS>), a.plan.n_tile * (CUDA_ATTN_ROWS / ROWS) * (a.n_head / MT), WARPS * 32, smem,
           d, a);
    return true;
}

/* Shared memory of a block of decode. */
template <class P, int HD> static constexpr size_t attn_decode_smem()
{
    return attn_ring<typename attn_pool<P>::element, HD>::BYTES +
           (attn_query<HD, 1, attn_dim<HD>::PARTS>::IN_REGISTERS ? 0 : 16 * attn_dim<HD>::STRIDE);
}

/* How many blocks of decode an SM runs at a time when it gives shared memory all that it can; 0: it does not say. */
template <class P, int HD> static uint32_t attn_resident(const struct cuda_dev *d)
{
    const void *k = (const void *)k_attn_decode<P, HD>;
    size_t      smem = attn_decode_smem<P, HD>();
    int         n = 0;
    if (smem > cuda_attn_smem(d->arch)) return 0;
    cudaError_t e = cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    if (e == cudaSuccess) e = cudaFuncSetAttribute(k, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (e == cudaSuccess)
        e = cudaFuncSetAttribute((const void *)k_attn_runs<P, HD>, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (e == cudaSuccess) e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, k, attn_dim<HD>::PARTS * 32, smem);
    (void)cudaGetLastError();
    return e == cudaSuccess && n > 0 ? (uint32_t)n : 0;
}

template <class P, int HD> static void attn_launch(struct cuda_dev *d, const struct attn_args &a)
{
    if (a.n_item > 0) {
        uint32_t n = a.n_item * a.n_unit, slots = a.n_slot;
        size_t   smem = attn_decode_smem<P, HD>();
        CHECK(smem <= cuda_attn_smem(d->arch)); /* 256 numbers a head need more than 100 KB */
        if (a.plan.n_run)
            LAUNCH((k_attn_runs<P, HD>), n < slots ? n : slots, attn_dim<HD>::PARTS * 32, smem, d, a);
        else
            LAUNCH((k_attn_decode<P, HD>), n < slots ? n : slots, attn_dim<HD>::PARTS * 32, smem, d, a);
    }
    if (a.plan.n_tile == 0) return;
    if (sizeof(typename attn_pool<P>::element) > 1 &&
        cuda_attn_hopper(d, a, attn_type<typename attn_pool<P>::number>::LARGEST == 0x7c00u))
        return;
    /* Two heads a block halve what is read of K and V. It takes all registers that two blocks an SM may have; and with
     * room to fold, 128 numbers a head leave room for one only, so there one head it is. Rows of 8 bits are half already. */
    enum { PAIR = sizeof(typename attn_pool<P>::element) > 1 && (HD == 64 || HD == 128) ? 2 : 1 };
    if (PAIR == 2 && (HD == 64 || !a.fixed) && attn_tile<P, HD, PAIR, 4>(d, a)) return;
    if (attn_tile<P, HD, 1, 4>(d, a)) return;
    if (HD > 128 && attn_tile<P, HD, 1, (HD <= 128 ? 4 : 2)>(d, a)) return;
    CHECK(!"attention has no kernel for this device"); /* the same */
}

/* By the dims that kernels exist for. */
template <class P> static void attn_launch_as(struct cuda_dev *d, const struct attn_args &a)
{
    switch (cuda_attn_dim(a.head_dim)) {
    case 32: attn_launch<P, 32>(d, a); break;
    case 64: attn_launch<P, 64>(d, a); break;
    case 80: attn_launch<P, 80>(d, a); break;
    case 96: attn_launch<P, 96>(d, a); break;
    case 128: attn_launch<P, 128>(d, a); break;
    case 256: attn_launch<P, 256>(d, a); break;
    default: attn_launch<P, 512>(d, a); break;
    }
}
template <class P> static uint32_t attn_resident_as(const struct cuda_dev *d, uint32_t head_dim)
{
    switch (cuda_attn_dim(head_dim)) {
    case 32: return attn_resident<P, 32>(d);
    case 64: return attn_resident<P, 64>(d);
    case 80: return attn_resident<P, 80>(d);
    case 96: return attn_resident<P, 96>(d);
    case 128: return attn_resident<P, 128>(d);
    case 256: return attn_resident<P, 256>(d);
    default: return attn_resident<P, 512>(d);
    }
}
