/* attn_parts: chunks of KV that warps have computed apart: where what they found lies, and how the last of them puts it
 * together.   Device code of attn_kernels.cuh and attn_runs.cuh, whose items ITEM say which rows of which heads the rows
 * of a warp's mma are. */
#pragma once
#include "kernels/cuda/attn.cuh"

/* The part of row i of a warp's mma in a chunk. */
template <class ITEM>
static __device__ __forceinline__ float *attn_part(const struct attn_args &a, const ITEM &w, uint32_t index, uint32_t i)
{
    return a.plan.partial + (w.part(index, i) * a.n_head + w.head(i)) * cuda_attn_part(a.head_dim);
}

template <int HD, class ITEM>
static __device__ __forceinline__ void attn_partial(const struct attn_args &a, const ITEM &w,
                                                    const struct attn_rows<HD, 1> &r)
{
    uint32_t g = (threadIdx.x & 31) / 4, c = attn_column<HD>() + (threadIdx.x & 3) * 2, wide = (a.head_dim + 3) / 4 * 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (g + 8 * h >= w.rows()) continue;
        float *to = attn_part(a, w, w.index, g + 8 * h);
        if (c == 0) *(float2 *)(to + wide) = make_float2(r.m[0][h], r.l[0][h]);
#pragma unroll
        for (int j = 0; j < attn_dim<HD>::OUT / 8; j++)
            if (j * 8 + c < wide) *(float2 *)(to + j * 8 + c) = make_float2(r.o[0][j][2 * h], r.o[0][j][2 * h + 1]);
    }
}

/* How the rows of an item lie in a warp that merges: LANES hold a row's numbers, 4 VECS each, and a lane has SIDE
 * rows. DEPTH parts of all of them are under way at a time. */
static constexpr int attn_merge_lanes(int dim)
{
    if (dim <= 32) return 8;
    return dim <= 64 ? 16 : 32;
}
template <int HD> struct attn_merge_dim {
    enum {
        LANES = attn_merge_lanes(HD),
        ACROSS = 32 / LANES,
        VECS = (HD + LANES * 4 - 1) / (LANES * 4),
        SIDE = 4 / ACROSS / VECS,
        HEADS = SIDE * ACROSS,
        DEPTH = SIDE == 1 ? 8 : 4
    };
};
template <int HD> struct attn_sums {
    float  m[attn_merge_dim<HD>::SIDE], l[attn_merge_dim<HD>::SIDE];
    float4 o[attn_merge_dim<HD>::SIDE][attn_merge_dim<HD>::VECS];
};
/* Parts i .. i + DEPTH - 1 of n are taken up. They come past L1, for another SM wrote them, and all loads stand before
 * all arithmetic, without a branch between: one way to L2 and back for all. ALL: they are all there; else what is not
 * is read from the last and counts as nothing, not even for an infinity. */
template <int HD, bool ALL>
static __device__ __forceinline__ void attn_take_parts(const struct attn_args &a, struct attn_sums<HD> &s,
                                                       const float *const *from, const uint32_t *at, size_t step,
                                                       uint32_t i, uint32_t n)
{
    enum { SIDE = attn_merge_dim<HD>::SIDE, VECS = attn_merge_dim<HD>::VECS, DEPTH = attn_merge_dim<HD>::DEPTH };
    float2   ml[DEPTH][SIDE];
    float4   o[DEPTH][SIDE][VECS];
    uint32_t wide = (a.head_dim + 3) / 4 * 4;
#pragma unroll
    for (uint32_t u = 0; u < DEPTH; u++)
#pragma unroll
        for (int h = 0; h < SIDE; h++)
#pragma unroll
            for (int v = 0; v < VECS; v++)
                o[u][h][v] = __ldcg((const float4 *)(from[h] + (ALL ? i + u : min(i + u, n - 1)) * step + at[v]));
#pragma unroll
    for (uint32_t u = 0; u < DEPTH; u++) /* last, for arithmetic begins with them */
#pragma unroll
        for (int h = 0; h < SIDE; h++)
            ml[u][h] = __ldcg((const float2 *)(from[h] + (ALL ? i + u : min(i + u, n - 1)) * step + wide));
#pragma unroll
    for (uint32_t u = 0; u < DEPTH; u++) {
        bool there = ALL || i + u < n;
#pragma unroll
        for (int h = 0; h < SIDE; h++) {
            float m = there ? ml[u][h].x : -INFINITY, l = there ? ml[u][h].y : 0.0f, to = fmaxf(s.m[h], m);
            float was = attn_weight(s.m[h], to, a.scale), is = attn_weight(m, to, a.scale);
            s.m[h] = to;
            s.l[h] = __fmaf_rn(l, is, __fmul_rn(s.l[h], was));
#pragma unroll
            for (int v = 0; v < VECS; v++) {
                float4 x = o[u][h][v];
                if (!there) x = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
                s.o[h][v].x = __fmaf_rn(x.x, is, __fmul_rn(s.o[h][v].x, was));
                s.o[h][v].y = __fmaf_rn(x.y, is, __fmul_rn(s.o[h][v].y, was));
                s.o[h][v].z = __fmaf_rn(x.z, is, __fmul_rn(s.o[h][v].z, was));
                s.o[h][v].w = __fmaf_rn(x.w, is, __fmul_rn(s.o[h][v].w, was));
            }
        }
    }
}
/* All chunks of the rows of an item, in order, as attn_merge does it: sums begin with -0, which added to any number is
 * that number. */
template <int HD, class ITEM>
static __device__ __forceinline__ void attn_merge_parts(const struct attn_args &a, const ITEM &w)
{
    enum { SIDE = attn_merge_dim<HD>::SIDE, VECS = attn_merge_dim<HD>::VECS, DEPTH = attn_merge_dim<HD>::DEPTH };
    enum { LANES = attn_merge_dim<HD>::LANES, ACROSS = attn_merge_dim<HD>::ACROSS };
    uint32_t lane = threadIdx.x & 31, index0 = w.first / w.chunk, n = w.pos / w.chunk - index0 + 1;
    uint32_t wide = (a.head_dim + 3) / 4 * 4, e = lane % LANES * 4, at[VECS];
    size_t   step = (size_t)w.parts_apart() * a.n_head * cuda_attn_part(a.head_dim);
#pragma unroll
    for (int v = 0; v < VECS; v++) at[v] = min(e + v * LANES * 4, wide - 4);
#pragma unroll 1
    for (uint32_t i0 = lane / LANES; i0 < w.rows() + lane / LANES; i0 += attn_merge_dim<HD>::HEADS) {
        const float         *from[SIDE];
        struct attn_sums<HD> s;
#pragma unroll
        for (int h = 0; h < SIDE; h++) {
            from[h] = attn_part(a, w, index0, min(i0 + h * ACROSS, w.rows() - 1));
            s.m[h] = -INFINITY;
            s.l[h] = 0.0f;
#pragma unroll
            for (int v = 0; v < VECS; v++) s.o[h][v] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
        }
        uint32_t i = 0;
#pragma unroll 1
        for (; i + DEPTH <= n; i += DEPTH) attn_take_parts<HD, true>(a, s, from, at, step, i, n);
        if (i < n) attn_take_parts<HD, false>(a, s, from, at, step, i, n);
#pragma unroll
        for (int h = 0; h < SIDE; h++) {
            if (i0 + h * ACROSS >= w.rows()) continue;
            uint32_t row = w.row(i0 + h * ACROSS), head = w.head(i0 + h * ACROSS);
            float    by = attn_share(a, head, s.m[h], s.l[h]);
#pragma unroll
            for (int v = 0; v < VECS; v++) {
                float4 x = s.o[h][v];
                attn_put2(a, row, head, e + v * LANES * 4, __fmul_rn(x.x, by), __fmul_rn(x.y, by));
                attn_put2(a, row, head, e + v * LANES * 4 + 2, __fmul_rn(x.z, by), __fmul_rn(x.w, by));
            }
        }
    }
}

/* Is this the last warp of all chunks of an item's rows to arrive? parts: warps of a chunk. What the others wrote
 * before is seen then: lane 0 publishes what its warp wrote before the meeting, and the warp sees behind the other what
 * lane 0 has acquired. */
template <class ITEM>
static __device__ __forceinline__ bool attn_last(const struct attn_args &a, const ITEM &w, uint32_t parts)
{
    uint32_t n = (w.pos / w.chunk - w.first / w.chunk + 1) * parts, before = 0,
             *arrived = a.plan.arrived + (size_t)w.counter() * a.n_head + w.unit;
    __syncwarp();
    if ((threadIdx.x & 31) == 0) {
        before = atom_add_acq_rel_gpu(arrived, 1u);
        if (before == n - 1) *arrived = 0;
    }
    before = __shfl_sync(0xffffffffu, before, 0);
    __syncwarp();
    return before == n - 1;
}
