/* attn_feed: what attention computes from, and how it comes to a warp: K and V from the pool to shared memory, rows of Q
 * to fragments.   Device code of attn.cuh, attn_hopper.cu and mutual.cu.
 *
 * K and V come through a ring of three slots in shared memory, a tile of K or of V each: while one is worked on two are
 * under way. Where they come from is a feed's to know (struct attn_feed: from the pool). Tokens that no row of the block
 * sees are zero there, so weight zero times what lies behind a sequence stays zero. */
#pragma once
#include "kernels/cuda/common.cuh"

enum { ATTN_GROUP = 16 /* tokens: rows of a fragment */, ATTN_NOWHERE = -1 };

static constexpr float ATTN_LOG2E = 1.44269504088896341f; /* log2(e): weights are powers of two */

struct attn_args {
    const void           *qkv; /* act */
    void                 *out;
    const void           *pool; /* K of head 0, token 0 in this layer: of block 0, or of the first guest if that lies
                                 * before the pool */
    size_t                block_stride, v_offset; /* elements of the pool */
    uint32_t              n_block;                /* blocks from here on are guests */
    long long             first, guest; /* elements from pool to block 0; to where number 0 of the guests would lie */
    size_t                guest_stride;
    uint32_t              block_tokens, head_dim, n_head, n_kv_head, group, window;
    uint32_t              width;           /* heads of a row of qkv */
    float                 scale;           /* times log2(e) */
    float                 cap_in, cap_out; /* of attn_cap: 2 scale log2(e) / cap, -2 cap; cap_out 0: no cap */
    const float          *sinks;           /* [n_head] or NULL */
    float                 sink_less;       /* times log2(e): what attn_cap leaves out of all scores */
    bool                  f16;             /* act */
    bool                  fast;            /* head_dim is the template's, and 16 tokens lie behind each other */
    bool                  wide_q; /* heads of qkv are of whole 16 bytes, aligned so, and of the template's dim */
    bool                  fixed;  /* tiles of rows: fold where decode would split */
    const uint32_t       *pos, *row_start, *page_start, *page;
    const uint64_t       *tree;    /* [n_row] or NULL */
    bool                  chunked; /* as in op_attn */
    struct cuda_attn_plan plan;
    struct cuda_attn_cut  cut;    /* with a window, in place of the plan's items; each 0: none */
    uint32_t              n_item; /* bound, of the plan or of the cut */
    uint32_t              n_unit;
    uint32_t              n_slot; /* the host's: blocks of decode that run at a time */
};

/* The first key that the row at `pos` sees. */
static __device__ __forceinline__ uint32_t attn_first(const struct attn_args &a, uint32_t pos)
{
    if (a.chunked) return pos - pos % a.window;
    return a.window && pos >= a.window ? pos - a.window + 1 : 0;
}

template <int HD> struct attn_dim {
    enum {
        KV = HD > CUDA_ATTN_WHOLE_ROW ? CUDA_ATTN_KV_WIDE : CUDA_ATTN_KV, /* tokens of a tile, as cuda_attn_tile says */
        PARTS = HD > CUDA_ATTN_WHOLE_ROW ? 2 : 1,                         /* warps that share the result of a row */
        OUT = HD / PARTS,                                                 /* numbers of it that a warp has */
        STRIDE = (HD / 8 | 1) * 16,
        TILE = KV * STRIDE,
        STEPS = HD / 16
    };
};

/* A pool of P: what it holds, and what K and V are multiplied as. */
template <class P> struct attn_pool {
    typedef __nv_bfloat16 element; /* or f16, of the same size: they are copied, not read */
    typedef P             number;
    enum { BESIDE = 0 };
};
template <> struct attn_pool<uint8_t> { /* rows of kv8.h */
    typedef uint8_t       element;
    typedef __nv_bfloat16 number;
    enum { BESIDE = 1 }; /* elements of a row beside its numbers: the scale */
};
/* From one head of the pool to the next, elements. */
template <class P> static __device__ __forceinline__ size_t attn_head_stride(const struct attn_args &a)
{
    return (size_t)a.block_tokens * (a.head_dim + attn_pool<P>::BESIDE);
}

/* The ring of tiles of a pool's elements P in shared memory. FREE: where rows of Q may lie until the walk begins. */
template <class P, int HD> struct attn_ring {
    enum { SLOT = attn_dim<HD>::TILE, BYTES = CUDA_ATTN_RING * SLOT, FREE = 2 * SLOT };
};

/* Which of the warps that share rows this one is, and the first number of the result that is its own. */
template <int HD> static __device__ __forceinline__ uint32_t attn_share_of(void)
{
    return attn_dim<HD>::PARTS == 1 ? 0 : threadIdx.x / 32 % attn_dim<HD>::PARTS;
}
template <int HD> static __device__ __forceinline__ uint32_t attn_column(void)
{
    return attn_share_of<HD>() * attn_dim<HD>::OUT;
}

/* ---------------------------------------------------------------- K and V to shared memory */

/* Tokens [lo, hi) of one sequence and KV head, tile by tile, from a pool of elements P. What has these members, attn_load,
 * attn_seek and, if its ring does not hold tiles of T, attn_widen and attn_tile_of is a feed too. */
template <class P> struct attn_feed {
    typedef P       element;
    char           *ring;
    const P        *head; /* pool, of this head */
    const uint32_t *page; /* of the sequence */
    uint32_t        lo, hi, t, slot;
    long long       at; /* lane & 3: where 16 tokens of the tile at t begin, elements */
};

/* Tokens [lo, hi) of a sequence, of the KV head that `head` reads. */
template <class P>
static __device__ __forceinline__ void attn_feed_of(const struct attn_args &a, struct attn_feed<P> &f, char *ring,
                                                    uint32_t seq, uint32_t head, uint32_t lo, uint32_t hi)
{
    f.ring = ring, f.lo = lo, f.hi = hi;
    f.head = (const P *)a.pool + (head / a.group) * attn_head_stride<P>(a);
    f.page = a.page + a.page_start[seq];
}

/* From a.pool to a block, elements: never negative. */
static __device__ __forceinline__ long long attn_block(const struct attn_args &a, uint32_t block)
{
    bool guest = block >= a.n_block;
    return (guest ? a.guest : a.first) + (long long)((size_t)block * (guest ? a.guest_stride : a.block_stride));
}

template <class P>
static __device__ __forceinline__ long long attn_where(const struct attn_args &a, const struct attn_feed<P> &f)
{
    uint32_t t = f.t + (threadIdx.x & 3) * ATTN_GROUP;
    if (!a.fast || t >= f.hi || t + ATTN_GROUP <= f.lo) return ATTN_NOWHERE;
    uint32_t block = f.page[t / a.block_tokens];
    if (block == UINT32_MAX) return ATTN_NOWHERE;
    return attn_block(a, block) + (long long)((size_t)(t % a.block_tokens) * a.head_dim);
}

/* Where 16 bytes of a row are to lie: rows behind each other from `tile` on. */
template <int HD> struct attn_row_at {
    char                            *tile;
    __device__ __forceinline__ char *operator()(uint32_t row, uint32_t piece) const
    {
        return tile + row * attn_dim<HD>::STRIDE + piece * 16;
    }
};
/* 16 tokens from t on, which lie behind each other at src, to where `to` says. */
template <int HD, class AT>
static __device__ __forceinline__ void attn_load16(const AT &to, const void *src, bool any, uint32_t t, uint32_t lo,
                                                   uint32_t hi)
{
    enum { PIECES = HD / 8 };
    uint32_t    lane = threadIdx.x & 31;
    const char *from = (const char *)src + lane * 16;
    bool        all = any && t >= lo && t + ATTN_GROUP <= hi;
#pragma unroll
    for (uint32_t j = 0; j < PIECES / 2; j++) {
        uint32_t i = j * 32 + lane, row = i / PIECES, piece = i % PIECES;
        bool     ok = all || (any && t + row >= lo && t + row < hi);
        cp_async16(to(row, piece), from + j * 512, ok ? 16 : 0);
    }
}

/* The same for any size of blocks and heads: token by token, and number by number where rows are not of whole 16
 * bytes. */
template <int HD>
static __device__ void attn_load16_any(const struct attn_args &a, const struct attn_feed<__nv_bfloat16> &f, char *to,
                                       const __nv_bfloat16 *head, uint32_t t)
{
    uint32_t lane = threadIdx.x & 31;
#pragma unroll 1
    for (uint32_t row = 0; row < ATTN_GROUP; row++, t++, to += attn_dim<HD>::STRIDE) {
        bool                 ok = t >= f.lo && t < f.hi;
        uint32_t             block = ok ? f.page[t / a.block_tokens] : UINT32_MAX;
        const __nv_bfloat16 *from = head;
        ok = block != UINT32_MAX;
        if (ok) from += attn_block(a, block) + (long long)((size_t)(t % a.block_tokens) * a.head_dim);
        if (a.head_dim % 8 == 0) {
            for (uint32_t i = lane * 8; i < HD; i += 32 * 8) {
                bool in = ok && i < a.head_dim;
                cp_async16(to + i * 2, in ? from + i : head, in ? 16 : 0);
            }
        } else {
            for (uint32_t i = lane; i < HD; i += 32)
                ((__nv_bfloat16 *)to)[i] = ok && i < a.head_dim ? from[i] : __ushort_as_bfloat16(0);
        }
    }
}

/* The tile at f.t of K or V, which begin at `head`, to the slot. */
template <int HD, int WARPS>
static __device__ __forceinline__ void attn_load(const struct attn_args &a, const struct attn_feed<__nv_bfloat16> &f,
                                                 const __nv_bfloat16 *head)
{
    enum { GROUPS = attn_dim<HD>::KV / ATTN_GROUP };
    char *slot = f.ring + f.slot * attn_ring<__nv_bfloat16, HD>::SLOT;
#pragma unroll
    for (uint32_t i = 0; i < (GROUPS + WARPS - 1) / WARPS; i++) {
        uint32_t j = i * WARPS + threadIdx.x / 32;
        if (GROUPS % WARPS && j >= GROUPS) break;
        char *to = slot + j * (ATTN_GROUP * attn_dim<HD>::STRIDE);
        if (a.fast) {
            long long at = __shfl_sync(0xffffffffu, f.at, (int)j);
            attn_load16<HD>(attn_row_at<HD>{ to }, head + (at < 0 ? 0 : at), at >= 0, f.t + j * ATTN_GROUP, f.lo, f.hi);
        } else {
            attn_load16_any<HD>(a, f, to, head, f.t + j * ATTN_GROUP);
        }
    }
}
/* f.t has moved. */
template <class P> static __device__ __forceinline__ void attn_seek(const struct attn_args &a, struct attn_feed<P> &f)
{
    f.at = attn_where(a, f); /* is there by the time it is needed */
}
/* The tile in f.slot, which has come and begins at token t, becomes numbers of T where the ring does not hold such. All
 * threads of the block call it, when nobody needs the tile of the call before. */
template <int HD, int WARPS, class FEED> static __device__ __forceinline__ void attn_widen(const FEED &, uint32_t) {}
/* Where those numbers are. */
template <int HD, class FEED> static __device__ __forceinline__ const char *attn_tile_of(const FEED &f)
{
    return f.ring + f.slot * attn_ring<typename FEED::element, HD>::SLOT;
}
/* Asks for K, then V of the next tile; each is a group of its own, which may be empty. */
template <int HD, int WARPS, class FEED>
static __device__ __forceinline__ void attn_feed_k(const struct attn_args &a, FEED &f)
{
    if (f.t < f.hi) attn_load<HD, WARPS>(a, f, f.head);
    cp_async_commit();
    f.slot = f.slot == 2 ? 0 : f.slot + 1;
}
template <int HD, int WARPS, class FEED>
static __device__ __forceinline__ void attn_feed_v(const struct attn_args &a, FEED &f)
{
    if (f.t < f.hi) attn_load<HD, WARPS>(a, f, f.head + a.v_offset);
    cp_async_commit();
    f.slot = f.slot == 2 ? 0 : f.slot + 1;
    f.t += attn_dim<HD>::KV;
    attn_seek(a, f);
}
template <int HD, int WARPS, class FEED>
static __device__ __forceinline__ void attn_feed_begin(const struct attn_args &a, FEED &f)
{
    f.slot = 0;
    f.t = f.lo / attn_dim<HD>::KV * attn_dim<HD>::KV;
    attn_seek(a, f);
    attn_feed_k<HD, WARPS>(a, f);
    attn_feed_v<HD, WARPS>(a, f);
}
/* The same in a kernel that has not waited yet. Older steps wrote the tokens before `fresh`: a first tile of such is asked
 * for ahead of the wait. */
template <int HD, int WARPS, class FEED>
static __device__ __forceinline__ void attn_feed_early(const struct attn_args &a, FEED &f, uint32_t fresh)
{
    bool early = f.lo / attn_dim<HD>::KV * attn_dim<HD>::KV + attn_dim<HD>::KV <= fresh;
    if (!early) pdl_wait();
    attn_feed_begin<HD, WARPS>(a, f);
    if (early) pdl_wait();
    pdl_launch();
}

/* ---------------------------------------------------------------- rows of Q */

/* What depends on T, the type of the pool and of all that is multiplied: */
template <class T> struct attn_type;
template <> struct attn_type<__nv_bfloat16> {
    enum : uint32_t { LARGEST = 0x7f80u }; /* exponent bits */
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        __nv_bfloat162 b = __floats2bfloat162_rn(lo, hi);
        uint32_t       w;
        memcpy(&w, &b, sizeof w);
        return w;
    }
    static __device__ __forceinline__ float number(uint32_t half) { return __uint_as_float(half << 16); }
    /* Two numbers of act */
    static __device__ __forceinline__ uint32_t q2(const struct attn_args &a, uint32_t w)
    {
        if (!a.f16) return w;
        return pack(__half2float(__ushort_as_half((unsigned short)w)),
                    __half2float(__ushort_as_half((unsigned short)(w >> 16))));
    }
    static __device__ __forceinline__ void mma(float d[4], const uint32_t x[4], const uint32_t y[2])
    {
        mma_m16n8k16_bf16(d, x, y, d);
    }
};
template <> struct attn_type<__half> { /* act is f16 too */
    enum : uint32_t { LARGEST = 0x7c00u };
    static __device__ __forceinline__ uint32_t pack(float lo, float hi)
    {
        __half2  b = __floats2half2_rn(lo, hi);
        uint32_t w;
        memcpy(&w, &b, sizeof w);
        return w;
    }
    static __device__ __forceinline__ float number(uint32_t half)
    {
        return __half2float(__ushort_as_half((unsigned short)half));
    }
    static __device__ __forceinline__ uint32_t q2(const struct attn_args &, uint32_t w) { return w; }
    static __device__ __forceinline__ void     mma(float d[4], const uint32_t x[4], const uint32_t y[2])
    {
        mma_m16n8k16_f16(d, x, y, d);
    }
};
/* Where rows of Q lie that are `step` behind each other, from `from` on. */
struct attn_q_even {
    const uint16_t                            *from;
    size_t                                     step;
    __device__ __forceinline__ const uint16_t *operator()(uint32_t i) const { return from + i * step; }
};
/* 16 rows of Q go to `to`, where rows of this warp's fragments lie; row i is at where(i). There are n, at least one;
 * those behind repeat the last, which nobody looks at. All that a lane reads is asked
 * for at once: no load waits for another. Warps that share rows bring a part of them each; the walk waits for all. */
template <class T, int HD, class WHERE>
static __device__ __forceinline__ void attn_q_rows(const struct attn_args &a, char *to, const WHERE &where, uint32_t n)
{
    enum { PIECES = HD / 8, PARTS = attn_dim<HD>::PARTS, EACH = HD / 16 / PARTS };
    uint32_t lane = threadIdx.x & 31, mine = attn_share_of<HD>();
    if (a.wide_q) {
        uint4 w[EACH];
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            uint32_t i = (mine * EACH + j) * 32 + lane;
            w[j] = *(const uint4 *)(where(min(i / PIECES, n - 1)) + i % PIECES * 8);
        }
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            uint32_t i = (mine * EACH + j) * 32 + lane;
            w[j] = make_uint4(attn_type<T>::q2(a, w[j].x), attn_type<T>::q2(a, w[j].y), attn_type<T>::q2(a, w[j].z),
                              attn_type<T>::q2(a, w[j].w));
            *(uint4 *)(to + i / PIECES * attn_dim<HD>::STRIDE + i % PIECES * 16) = w[j];
        }
    } else {
#pragma unroll 1
        for (uint32_t i = mine * 32 + lane; i < 16 * HD; i += PARTS * 32) {
            uint32_t row = i / HD, e = i % HD, w = e < a.head_dim ? where(min(row, n - 1))[e] : 0;
            *(uint16_t *)(to + row * attn_dim<HD>::STRIDE + e * 2) = (uint16_t)attn_type<T>::q2(a, w);
        }
    }
    __syncwarp();
}
static __device__ __forceinline__ const uint16_t *attn_q_row(const struct attn_args &a, uint32_t row, uint32_t head)
{
    return (const uint16_t *)a.qkv + ((size_t)row * a.width + head) * a.head_dim;
}

/* Where Q is: fragments in registers, or rows in shared memory (MT times 16 of them, of this warp). WARPS: of the
 * block; decode, with one, has registers to spare and no shared memory. */
template <int HD, int MT, int WARPS> struct attn_query {
    enum { IN_REGISTERS = MT == 1 && HD <= (WARPS == 1 ? 128 : 96) };
    uint32_t    f[IN_REGISTERS ? HD / 16 : 1][4];
    const char *smem;
};

/* Where this lane reads its part of 16 rows of Q that begin at `rows`. */
template <int HD> static __device__ __forceinline__ const char *attn_q_lane(const char *rows)
{
    uint32_t lane = threadIdx.x & 31;
    return rows + ((lane / 8 % 2) * 8 + lane % 8) * attn_dim<HD>::STRIDE + (lane / 16) * 16;
}
/* Fragments that stay in registers are taken from `rows`, which is free then. */
template <int HD, int MT, int WARPS>
static __device__ __forceinline__ void attn_q_take(struct attn_query<HD, MT, WARPS> &q, const char *rows)
{
    if constexpr (attn_query<HD, MT, WARPS>::IN_REGISTERS) {
#pragma unroll
        for (int d = 0; d < HD / 16; d++) ldmatrix_x4(q.f[d], attn_q_lane<HD>(rows) + d * 32);
        __syncwarp();
    }
}
