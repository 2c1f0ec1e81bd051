/* gemm_fused: a product of few rows together with what stands before and behind it (struct op_fused), in one launch.
 *   x [m, k], w [n, k] act   bias F32 [n], norm F32 [k]   out [m, n], of GLU [m, n / 2], act
 * The same bits as by the kernels one after another, so that each step may choose by its number of rows alone: the
 * frame, the slices of K and their order are those of k_gemm_rows, a row's norm is made by the tree of k_norm, and
 * whatever those kernels round to act on its way through memory is rounded here too.
 *
 *   norm   each block makes the normalised rows for itself and keeps them in shared memory: that is k numbers a row to
 *          read, from L2, while the first weights are on their way. With more than FUSED_NORM rows a launch of k_norm
 *          is cheaper, and with rows so long that only one block of an SM has room for them.
 *   GLU    a tile has 8 rows of gate and the same 8 of up, so a thread has both sums of an output. The matrix lies as
 *          ever, gate before up.
 *   ADD    out is the residual stream: each of its numbers is read and written by one thread, so nobody reads what
 *          another has written.
 *   QKV    a head's numbers come from tiles of several blocks, and a norm of it, or its scale in 8 bits, needs all of
 *          them. So the tiles of a head are counted, and the block that has written the last of them does to the head
 *          what k_qkv does, by the same code, for all rows, which it reads from L2. Nobody waits. What a row is (its
 *          position, where its keys go) is found while weights are under way. Heads that k_qkv does not take are left
 *          to k_qkv_odd, in a launch of its own. */
#include "kernels/cuda/fused.cuh"
#include "kernels/cuda/rows_few.cuh"

/* Loads that a warp has under way: as many as fit into registers beside what the end needs. */
template <int NB, int END> static __device__ __forceinline__ constexpr int fused_deep()
{
#if ROWS_TIGHT
    if (NB == 2 && END == OP_END_ADD) return 4;
#endif
    return NB == 4 || (NB == 2 && END == OP_END_QKV) ? 4 : 6;
}

/* NB: groups of 8 rows of x, which are all of them. */
template <class T, int NB, int END, bool NORM>
__global__ void __launch_bounds__(ROWS_THREADS, rows_blocks(NB, true))
    k_gemm_fused(const __grid_constant__ struct fused_args<struct rows_args> p)
{
    enum { GLU = END == OP_END_GLU, QKV = END == OP_END_QKV };
    DYN_SMEM(T, smem);
    __shared__ struct qkv_row heads[QKV ? NB * 8 : 1];
    const uint32_t            g = threadIdx.x % WARP >> 2, m = p.rows.m, k = p.rows.k;
    const uint16_t           *row[NB];
#pragma unroll
    for (int i = 0; i < NB; i++) {
        uint32_t r = min(i * 8 + g, m - 1);
        row[i] = NORM ? (const uint16_t *)smem + r * p.pitch : p.rows.x + (size_t)r * k;
    }
    auto begin = [&] {
        if (QKV && threadIdx.x < m) heads[threadIdx.x] = qkv_row_of(p.heads, threadIdx.x);
        if constexpr (NORM)
            fused_norm<T>(p, smem);
        else
            pdl_wait();
    };
    auto take = [&](int i, uint32_t at, uint32_t end) { return vec_load8<true, false>(row[i], at, end); };
    auto ahead = [&](float(&old)[NB][4], uint32_t tile) { fused_ahead<T>(p, (enum op_end)END, old, tile); };
    auto put = [&](const float(&sum)[NB][4], const float(&old)[NB][4], uint32_t tile) {
        fused_put<T>(p, (enum op_end)END, sum, old, tile, [](float y, uint32_t) { return y; });
    };
    rows_few<T, NB, fused_deep<NB, END>(), true, GLU>(p.rows, begin, take, ahead, put);
    if constexpr (QKV) fused_heads<T, NB>(p, heads);
}

template <class T, int NB, int END, bool NORM>
static void fused_launch(struct cuda_dev *d, const struct fused_args<struct rows_args> &p)
{
    uint32_t tiles = rows_tiles<END == OP_END_GLU>(p.rows.n);
    size_t   smem = NORM ? fused_smem(p.rows.m, p.rows.k) : 0;
    LAUNCH((k_gemm_fused<T, NB, END, NORM>), rows_grid(d, tiles, p.rows.cut.side, rows_blocks(NB, true)), ROWS_THREADS,
           smem, d, p);
}

template <class T, int END> static void fused_rows(struct cuda_dev *d, const struct fused_args<struct rows_args> &p)
{
    if (p.rows.m <= 8)
        fused_launch<T, 1, END, false>(d, p);
    else if (p.rows.m <= 16)
        fused_launch<T, 2, END, false>(d, p);
    else
        fused_launch<T, 4, END, false>(d, p);
}

template <class T> static void fused_choose(struct cuda_dev *d, const struct fused_args<struct rows_args> &p)
{
    if (p.norm && p.end == OP_END_GLU)
        fused_launch<T, 1, OP_END_GLU, true>(d, p);
    else if (p.norm && p.end == OP_END_QKV)
        fused_launch<T, 1, OP_END_QKV, true>(d, p);
    else if (p.norm)
        fused_launch<T, 1, OP_END_STORE, true>(d, p);
    else if (p.end == OP_END_GLU)
        fused_rows<T, OP_END_GLU>(d, p);
    else if (p.end == OP_END_ADD)
        fused_rows<T, OP_END_ADD>(d, p);
    else if (p.end == OP_END_QKV)
        fused_rows<T, OP_END_QKV>(d, p);
    else
        fused_rows<T, OP_END_STORE>(d, p);
}

extern "C" bool cuda_gemm_fused(struct cuda_dev *d, const struct op_fused *o)
{
    const uint32_t n = o->w->n, k = o->w->k;
    if (o->w->q.code != DT_F32 || !fused_takes(d, o, o->w->data)) return false;
    const struct rows_args rows = { o->out, (const uint16_t *)o->x,       (const uint16_t *)o->w->data, o->m, n,
                                    k,      rows_cut(n, k, 2 * ROWS_STEP) };
    struct fused_args<struct rows_args> p = fused_args_of(o, rows);
    if (p.end == OP_END_QKV && !fused_qkv(d, o, &p)) return fused_then_qkv(d, *o, cuda_gemm_fused);
    if (d->impl.dev.act == DT_F16)
        fused_choose<__half>(d, p);
    else
        fused_choose<__nv_bfloat16>(d, p);
    cuda_launched(d, "fused");
    return true;
}
