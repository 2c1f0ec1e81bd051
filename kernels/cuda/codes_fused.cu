/* codes_fused: a product of few rows by weights that are codes (codes.h), together with what stands before and behind it
 * (struct op_fused), in one launch.
 *   x [m, k] act, w [n, k] codes   bias F32 [n], norm F32 [k]   out [m, n], of GLU [m, n / 2], act
 * What is joined, and how, is said in gemm_fused.cu; the frame is that of k_codes_rows (codes_few.cuh), so that both
 * give the same bits. A sum has its factor before it is rounded. Codes lie as ever: a tile of GLU takes 8 rows of gate
 * and the same 8 of up from where they are.
 * There is one kernel for all ends: a tile of K is thousands of instructions and its end one branch, and a kernel of
 * each end for each kind of codes would be three times as many to build and to ship. */
#include "kernels/cuda/codes_few.cuh"
#include "kernels/cuda/fused.cuh"

/* Tiles of w: a tile has the rows from `step` times its number on, none above `last`, and those `apart` behind. */
struct codes_fused_args {
    struct fused_args<struct codes_args> f;
    uint32_t                             n_tile, step, last, apart;
};

/* NB: groups of 8 rows of x, which are all of them. DEEP: lines that are under way. */
template <class T, class C, int NB, int DEEP, bool NORM>
__global__ void __launch_bounds__(ROWS_THREADS, codes_blocks(NB, true))
    k_codes_fused(const __grid_constant__ struct codes_fused_args a)
{
    const struct fused_args<struct codes_args> &p = a.f;
    DYN_SMEM(T, smem);
    __shared__ struct qkv_row heads[NB * 8];
    const uint32_t            g = threadIdx.x % WARP >> 2, m = p.rows.m;
    uint32_t                  row[NB];
#pragma unroll
    for (int i = 0; i < NB; i++) row[i] = min(i * 8 + g, m - 1) * (NORM ? p.pitch : p.rows.k);
    auto at = [&](uint32_t tile) { return min(tile * a.step + (rows_thread() % WARP >> 2), a.last); };
    auto low_of = [&](uint32_t top) { return min(top + a.apart, p.rows.n - 1); };
    auto begin = [&] {
        if (p.end == OP_END_QKV && threadIdx.x < m) heads[threadIdx.x] = qkv_row_of(p.heads, threadIdx.x);
        if constexpr (NORM)
            fused_norm<T>(p, smem);
        else
            pdl_wait();
    };
    auto take = [&](int i, uint32_t from, uint32_t end) {
        return vec_load8<true, false>((NORM ? (const uint16_t *)smem : p.rows.x) + row[i], from, end);
    };
    auto ahead = [&](float(&old)[NB][4], uint32_t tile) { fused_ahead<T>(p, p.end, old, tile); };
    auto put = [&](const float(&sum)[NB][4], const float(&old)[NB][4], uint32_t tile) {
        fused_put<T>(p, p.end, sum, old, tile, [&](float y, uint32_t r) { return codes_end<C>(y, p.rows.factor, r); });
    };
    codes_few<T, C, NB, ROWS_TIGHT && NB == 1 ? 2 : DEEP, true>(p.rows, a.n_tile, at, low_of, begin, take, ahead, put);
    if (p.end == OP_END_QKV) fused_heads<T, NB>(p, heads);
}

template <class T, class C, int NB, int DEEP, bool NORM>
static void codes_joined(struct cuda_dev *d, const struct codes_fused_args &a)
{
    const struct codes_args &p = a.f.rows;
    LAUNCH((k_codes_fused<T, C, NB, DEEP, NORM>), rows_grid(d, a.n_tile, p.cut.side, codes_blocks(NB, true)),
           ROWS_THREADS, NORM ? fused_smem(p.m, p.k) : 0, d, a);
}

template <class T, class C> static void codes_joined_of(struct cuda_dev *d, const struct codes_fused_args &a)
{
    enum { DEEP = codes_scaled<C> ? 2 : 4 /* of NVFP4: what fits into registers */ };
    if (a.f.norm)
        codes_joined<T, C, 1, 4, true>(d, a);
    else if (a.f.rows.m <= 8)
        codes_joined<T, C, 1, DEEP, false>(d, a);
    else if (a.f.rows.m <= 16)
        codes_joined<T, C, 2, 2, false>(d, a);
    else
        codes_joined<T, C, 4, C::STEPS, false>(d, a);
}

/* Kinds of codes that k_codes_fused multiplies: those of k_codes_rows. */
extern "C" bool cuda_codes_fused(struct cuda_dev *d, const struct op_fused *o)
{
    const struct dev_weight *w = o->w;
    if (!codes_ok(&w->q) || (w->q.code == DT_F4E2M1 && !w->factor) || !fused_takes(d, o, w->data)) return false;
    struct codes_fused_args a = {};
    a.f = fused_args_of(o, codes_args_of(w, o->out, o->x, o->m));
    if (o->end == OP_END_QKV && !fused_qkv(d, o, &a.f)) return fused_then_qkv(d, *o, cuda_codes_fused);
    if (o->end == OP_END_GLU)
        a.n_tile = rows_tiles<true>(w->n), a.step = ROWS_TILE / 2, a.last = w->n / 2 - 1, a.apart = w->n / 2;
    else
        a.n_tile = rows_tiles<false>(w->n), a.step = ROWS_TILE, a.last = w->n - 1, a.apart = ROWS_TILE / 2;
    codes_kind(w->q.code, [&](auto kind) {
        if (d->impl.dev.act == DT_F16)
            codes_joined_of<__half, decltype(kind)>(d, a);
        else
            codes_joined_of<__nv_bfloat16, decltype(kind)>(d, a);
    });
    cuda_launched(d, "fused");
    return true;
}
