/* attn_plan: how the attention of a step is cut, as far as host and kernels must mean the same.   C17 and CUDA C++.
 * A chunk is a run of KV of one sequence at absolute positions [i * chunk, (i + 1) * chunk): decode computes chunks
 * apart and merges them in order. With a fixed split a row's chunk follows from its own length alone, so that its bits
 * do too; the kernel for tiles of rows then folds what it has at the same positions. */
#pragma once
#include <stdint.h>
#ifdef __CUDACC__
#define CUDA_BOTH __host__ __device__
#else
#define CUDA_BOTH
#endif

enum {
    CUDA_ATTN_KV = 64,          /* tokens of KV in a tile                                              */
    CUDA_ATTN_KV_WIDE = 16,     /* the same for heads of more than CUDA_ATTN_WHOLE_ROW numbers         */
    CUDA_ATTN_WHOLE_ROW = 256,  /* most numbers of a head whose result one warp holds                  */
    CUDA_ATTN_ROWS = 64,        /* query rows of one sequence in a tile                                */
    CUDA_ATTN_HEADS = 16,       /* heads of a group that one warp takes in decode: the rows of an mma  */
    CUDA_ATTN_RUN = 8,          /* most query rows of a sequence that decode takes together            */
    CUDA_ATTN_CHUNK_MIN = 256,  /* shortest chunk that a batch may choose: below it merging costs more */
    CUDA_ATTN_FIXED_MIN = 256,  /* shortest chunk of the fixed split                                   */
    CUDA_ATTN_FIXED_ITEMS = 16, /* most chunks of a sequence in the fixed split                        */
    CUDA_ATTN_RING = 3,         /* tiles of K or V in shared memory                                    */
    CUDA_ATTN_WHOLE = 1 << 30   /* as a chunk: longer than any sequence                                */
};

/* Rows row .. row + n_row of the batch, neighbours of one sequence, which decode takes together: each chunk of KV is
 * read once for all of them. With a fixed split the chunks of all are as long (a window's apart: attn_runs.cuh). The
 * rows of the mma are (row, head of a group) then, the heads of a row side by side; 16 of them are a warp's. */
struct cuda_attn_run {
    uint32_t seq, row, n_row;
    uint32_t part;   /* of chunk c and row i lie at part + c * n_row + i, where there are several chunks */
    uint32_t before; /* rows of the runs before */
};
/* Warps that take a chunk of a run of n_row rows. */
static inline CUDA_BOTH uint32_t cuda_attn_units(uint32_t n_kv_head, uint32_t group, uint32_t n_row)
{
    return n_kv_head * ((group * n_row + CUDA_ATTN_HEADS - 1) / CUDA_ATTN_HEADS);
}

/* Chunks of `chunk` tokens that a window of so many tokens, which may begin anywhere, touches at most. */
static inline CUDA_BOTH uint32_t cuda_attn_touched(uint32_t window, uint32_t chunk)
{
    return window < 2 ? 1 : (window - 2) / chunk + 2;
}
/* Tokens per chunk of a row at position kv_len - 1, of which it sees `window` at most (0: all), fixed split. It has at
 * most CUDA_ATTN_FIXED_ITEMS chunks. */
static inline CUDA_BOTH uint32_t cuda_attn_chunk_fixed(uint32_t kv_len, uint32_t window)
{
    uint32_t chunk = CUDA_ATTN_FIXED_MIN;
    if (window && kv_len > window)
        while (cuda_attn_touched(window, chunk) > CUDA_ATTN_FIXED_ITEMS) chunk *= 2;
    else
        while ((kv_len + chunk - 1) / chunk > CUDA_ATTN_FIXED_ITEMS) chunk *= 2;
    return chunk;
}
/* Floats of a part in memory: o, filled up to whole 16 bytes, the maximum, the sum, two that nobody reads. */
static inline CUDA_BOTH uint32_t cuda_attn_part(uint32_t head_dim) { return (head_dim + 3) / 4 * 4 + 4; }
/* Bytes of a row of K or V in shared memory: an odd number of 16-byte pieces, so that ldmatrix meets each bank once. */
static inline CUDA_BOTH uint32_t cuda_attn_stride(uint32_t dim) { return (dim / 8 | 1) * 16; }
/* Tokens of KV in a tile of heads of one of the dims below. */
static inline CUDA_BOTH uint32_t cuda_attn_tile(uint32_t dim)
{
    return dim > CUDA_ATTN_WHOLE_ROW ? CUDA_ATTN_KV_WIDE : CUDA_ATTN_KV;
}
/* The dims that kernels exist for; 0: none. */
static inline CUDA_BOTH uint32_t cuda_attn_dim(uint32_t head_dim)
{
    if (head_dim <= 32) return 32;
    if (head_dim <= 64) return 64;
    if (head_dim <= 80) return 80;
    if (head_dim <= 96) return 96;
    if (head_dim <= 128) return 128;
    if (head_dim <= 256) return 256;
    return head_dim <= 512 ? 512 : 0;
}
