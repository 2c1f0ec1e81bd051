/* attn_kv8: attention over a pool of rows in 8 bits (kernels/kv8.h).   truth: kernels/ref/attn.c
 *   out act   qkv act   pool of a layer [k,v][kv_head], and in each codes [token][head_dim], then scales [token]
 *
 * The ring in shared memory holds codes and scales as the pool has them, so a tile is half as much to bring as one of
 * bf16. When it is worked on, all warps of the block make bf16 of it in a tile behind the ring, which is exact, and the
 * walk goes on as over a pool of bf16: the same numbers give the same bits. K and V take turns in that one tile. */
#include "kernels/cuda/attn_kernels.cuh"
#include "kernels/cuda/kv8.cuh"

/* A slot: codes [token][HD], scales [token]. Behind the slots is the tile of bf16. */
template <int HD> struct attn_ring<uint8_t, HD> {
    enum {
        SCALES = attn_dim<HD>::KV * HD,
        SLOT = SCALES + attn_dim<HD>::KV,
        FREE = CUDA_ATTN_RING * SLOT,
        BYTES = FREE + attn_dim<HD>::TILE
    };
};

/* 16 tokens that lie behind each other at `from`, and their scales; !any: zeros. Tokens that nobody sees may come too:
 * attn_widen leaves them out. */
template <int HD>
static __device__ __forceinline__ void kv8_load16(char *code, char *scale, const uint8_t *from, size_t scales, bool any)
{
    uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (uint32_t j = 0; j < (HD + 31) / 32; j++) {
        uint32_t i = j * 32 + lane;
        if (HD % 32 && i >= HD) break;
        cp_async16(code + i * 16, from + i * 16, any ? 16 : 0);
    }
    if (lane == 0) cp_async16(scale, from + scales, any ? 16 : 0);
}

/* The same for any size of blocks and heads, byte by byte. */
template <int HD>
static __device__ void kv8_load16_any(const struct attn_args &a, const struct attn_feed<uint8_t> &f, char *code,
                                      char *scale, const uint8_t *head, uint32_t t)
{
    uint32_t lane = threadIdx.x & 31;
#pragma unroll 1
    for (uint32_t row = 0; row < ATTN_GROUP; row++, t++, code += HD) {
        uint32_t       block = t >= f.lo && t < f.hi ? f.page[t / a.block_tokens] : UINT32_MAX;
        uint32_t       at = t % a.block_tokens;
        bool           ok = block != UINT32_MAX;
        const uint8_t *from = ok ? head + attn_block(a, block) + (size_t)at * a.head_dim : head;
        for (uint32_t i = lane; i < HD; i += 32) code[i] = (char)(ok && i < a.head_dim ? from[i] : 0);
        if (lane == 0) scale[row] = (char)(ok ? from[kv8_scale_at(a.block_tokens, at, a.head_dim)] : 0);
    }
}

template <int HD, int WARPS>
static __device__ __forceinline__ void attn_load(const struct attn_args &a, const struct attn_feed<uint8_t> &f,
                                                 const uint8_t *head)
{
    enum { GROUPS = attn_dim<HD>::KV / ATTN_GROUP };
    char *slot = f.ring + f.slot * attn_ring<uint8_t, HD>::SLOT;
#pragma unroll
    for (uint32_t i = 0; i < (GROUPS + WARPS - 1) / WARPS; i++) {
        uint32_t j = i * WARPS + threadIdx.x / 32;
        if (GROUPS % WARPS && j >= GROUPS) break;
        char    *code = slot + j * ATTN_GROUP * HD, *scale = slot + attn_ring<uint8_t, HD>::SCALES + j * ATTN_GROUP;
        uint32_t t = f.t + j * ATTN_GROUP;
        if (a.fast) {
            long long at = __shfl_sync(0xffffffffu, f.at, (int)j);
            kv8_load16<HD>(code, scale, head + (at < 0 ? 0 : at), kv8_scale_at(a.block_tokens, t % a.block_tokens, HD),
                           at >= 0);
        } else {
            kv8_load16_any<HD>(a, f, code, scale, head, t);
        }
    }
}

/* Eight codes at a time. Tokens that nobody sees become zeros, whatever their scale is. */
template <int HD, int WARPS>
static __device__ __forceinline__ void attn_widen(const struct attn_feed<uint8_t> &f, uint32_t t)
{
    enum { PIECES = HD / 8, STRIDE = attn_dim<HD>::STRIDE, N = attn_dim<HD>::KV * PIECES };
    const char *slot = f.ring + f.slot * attn_ring<uint8_t, HD>::SLOT, *scale = slot + attn_ring<uint8_t, HD>::SCALES;
    char       *tile = f.ring + attn_ring<uint8_t, HD>::FREE;
#pragma unroll(HD == 80 || HD == 96 ? 2 : 4) /* there ptxas keeps to 168 registers, and 4 would spill */
    for (uint32_t i = threadIdx.x; i < N; i += WARPS * 32) {
        uint32_t row = i / PIECES, factor2 = kv8_factor2((uint8_t)scale[row]);
        uint2    code = *(const uint2 *)(slot + i * 8), low, high;
        if (t + row < f.lo || t + row >= f.hi) factor2 = 0;
        low = kv8_take4(code.x, factor2);
        high = kv8_take4(code.y, factor2);
        *(uint4 *)(tile + row * STRIDE + i % PIECES * 16) = make_uint4(low.x, low.y, high.x, high.y);
    }
    if (WARPS == 1)
        __syncwarp();
    else
        __syncthreads();
}
template <int HD> static __device__ __forceinline__ const char *attn_tile_of(const struct attn_feed<uint8_t> &f)
{
    return f.ring + attn_ring<uint8_t, HD>::FREE;
}

extern "C" uint32_t cuda_attn_kv8_resident(const struct cuda_dev *d, uint32_t head_dim)
{
    return attn_resident_as<uint8_t>(d, head_dim);
}

void cuda_attn_kv8(struct cuda_dev *d, const struct attn_args &a) { attn_launch_as<uint8_t>(d, a); }
