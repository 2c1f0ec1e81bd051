/* moe_codes: the grouped products of moe_gemm.cuh with weights of experts that are codes (codes.h).   For moe.cu.
 * truth: kernels/ref/moe.c
 *
 * As k_moe_stream: a warp streams 16 rows of codes of one expert through its registers, for a tile of up to 8 NB of its
 * tokens; codes become numbers of 16 bits, exactly, and a step of 32 inputs is added as gemm_codes.cu adds it:
 * fma(step, scale, sum), step after step from the first. So a token's bits depend neither on the tokens beside it nor on
 * which kernel had it. With many tokens an expert's codes are read again for each tile, from L2. */
#include "base/check.h"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/moe_gemm.cuh"

enum { MOE_CODES_THREADS = 128, MOE_CODES_BLOCKS = 4 /* of an SM */ };

struct moe_codes_args {
    struct moe_args p;
    const char     *line, *record, *factor; /* of expert 0; factor: where the kind has some */
    size_t          stride;                 /* bytes from one expert to the next, of all */
    uint32_t        n_line, n_group, shift; /* lines and groups of a row; step s is of group s >> shift */
    bool            gate_up;                /* which product */
};

/* Lines of codes that are under way: fewer than MOST where registers would spill. */
template <class C, int NB, int MOST> static __device__ __forceinline__ constexpr int moe_codes_deep()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    if (NB == 1 && C::STEPS == 4 && sizeof(typename C::record_t) == sizeof(uint32_t)) return MOST / 2;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 100 == 12
    if (NB == 1 && C::STEPS == 2) return 4;
#endif
    return MOST;
}

/* VECTOR: of tokens, as in k_moe_stream. */
template <class T, class C, int NB, int MOST, bool VECTOR>
__global__ void __launch_bounds__(MOE_CODES_THREADS, MOE_CODES_BLOCKS)
    k_moe_codes(const __grid_constant__ struct moe_codes_args a)
{
    typedef typename C::record_t record_t;
    enum { DEEP = moe_codes_deep<C, NB, MOST>() };
    const struct moe_args &p = a.p;
    DYN_SMEM(uint32_t, first);
    pdl_wait();
    moe_list(first, p.start, p.n_expert, NB * 8);
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t n_k = a.gate_up ? p.hidden : p.inter, n_out = a.gate_up ? p.inter : p.hidden;
    const uint32_t out_tile = a.gate_up ? 8 : 16, n_rt = (n_out + out_tile - 1) / out_tile;
    const uint32_t n_item = first[p.n_expert] * n_rt;
    /* neighbours in the list go to different SMs */
    for (uint32_t item = (threadIdx.x >> 5) * gridDim.x + blockIdx.x; item < n_item;
         item += gridDim.x * (MOE_CODES_THREADS / 32)) {
        const struct moe_item it = moe_at(first, p.start, p.n_expert, NB * 8, item, n_rt);
        const uint4          *line = (const uint4 *)(a.line + it.expert * a.stride);
        const record_t       *record = (const record_t *)(a.record + it.expert * a.stride);
        const float          *factor = a.factor ? (const float *)(a.factor + it.expert * a.stride) : NULL;
        const uint32_t        r0 = it.rt * out_tile + g, r1 = a.gate_up ? r0 : r0 + 8, nb = (it.end - it.place + 7) / 8;
        /* rows past the last are computed from the last and not stored */
        const uint32_t  top = min(r0, n_out - 1), low = a.gate_up ? n_out + top : min(r1, n_out - 1);
        const uint16_t *token[NB];
        uint32_t        token_k[NB]; /* n_k, or 0 for a column without a token: all zeros */
#pragma unroll
        for (int b = 0; b < NB; b++) {
            uint32_t at = it.place + b * 8 + g;
            token_k[b] = at < it.end ? n_k : 0;
            at = min(at, it.end - 1);
            token[b] = a.gate_up ? (const uint16_t *)p.x + (size_t)(p.order[at] / p.top_k) * n_k
                                 : (const uint16_t *)p.h + (size_t)at * n_k;
        }
        uint4    a0[DEEP], a1[DEEP];
        uint32_t s0[DEEP], s1[DEEP];
        auto     take = [&](int u, uint32_t l) {
            const uint4 none = make_uint4(0, 0, 0, 0);
            uint32_t    of = min((l * C::STEPS + t % C::STEPS) >> a.shift, a.n_group - 1);
            bool        in = l < a.n_line;
            a0[u] = in ? ld_stream16(line + ((size_t)top * a.n_line + l) * 4 + t) : none;
            a1[u] = in ? ld_stream16(line + ((size_t)low * a.n_line + l) * 4 + t) : none;
            s0[u] = in ? (uint32_t)record[(size_t)top * a.n_group + of] : (uint32_t)C::NONE;
            s1[u] = in ? (uint32_t)record[(size_t)low * a.n_group + of] : (uint32_t)C::NONE;
        };
        float acc[NB][4] = {};
#pragma unroll
        for (int u = 0; u < DEEP; u++) take(u, u);
        for (uint32_t c = 0; c < a.n_line; c += DEEP) {
#pragma unroll
            for (int u = 0; u < DEEP; u++) {
                if (c + u >= a.n_line) break;
#pragma unroll
                for (int pair = 0; pair < C::STEPS / 2; pair++) {
#pragma unroll
                    for (int s = 0; s < 2; s++) {
                        const uint32_t k = ((c + u) * C::STEPS + pair * 2 + s) * CODES_STEP + t * 8;
                        const uint32_t of_top = codes_of_step(s0[u], pair * 2 + s);
                        const uint32_t of_low = codes_of_step(s1[u], pair * 2 + s);
                        const uint4    w0 = C::template take<T>(a0[u], s, of_top);
                        const uint4    w1 = C::template take<T>(a1[u], s, of_low);
#pragma unroll
                        for (int b = 0; b < NB; b++) {
                            if (b && b >= (int)nb) continue;
                            const uint4 x = vec_load8<VECTOR, false>(token[b], k, token_k[b]);
                            codes_step<T, C>(acc[b], w0, w1, x, C::scale(of_top), C::scale(of_low));
                        }
                    }
                    C::turn(a0[u]), C::turn(a1[u]);
                }
                take(u, c + u + DEEP);
            }
        }
#pragma unroll
        for (int b = 0; b < NB; b++)
#pragma unroll
            for (int j = 0; j < 2; j++) { /* c0, c2: rows g and g + 8 of token 2t; c1, c3: of token 2t + 1 */
                uint32_t at = it.place + b * 8 + t * 2 + j;
                if (at >= it.end) continue;
                acc[b][j] = codes_end<C>(acc[b][j], factor, top);
                acc[b][j + 2] = codes_end<C>(acc[b][j + 2], factor, low);
                if (a.gate_up) {
                    if (r0 < n_out)
                        ((T *)p.h)[(size_t)at * n_out + r0] =
                            act_store<T>(moe_h<true>(p, it, at, r0, acc[b][j], acc[b][j + 2]));
                } else {
                    uint32_t slot = p.order[at];
                    float    weight = moe_weight<true>(p, slot);
                    T       *y = (T *)p.y + (size_t)slot * n_out;
                    if (r0 < n_out) y[r0] = act_store<T>(weight * moe_y<true>(p, it.expert, r0, acc[b][j]));
                    if (r1 < n_out) y[r1] = act_store<T>(weight * moe_y<true>(p, it.expert, r1, acc[b][j + 2]));
                }
            }
    }
    pdl_launch();
}

template <class T, class C, int NB, int DEEP, bool VECTOR>
static void moe_codes_launch(struct cuda_dev *d, const struct moe_codes_args &a, uint32_t n_slot)
{
    uint32_t n_out = a.gate_up ? a.p.inter : a.p.hidden, n_rt = a.gate_up ? (n_out + 7) / 8 : (n_out + 15) / 16;
    uint32_t warps = MOE_CODES_THREADS / 32;
    uint64_t tiles = n_slot / (NB * 8) + (n_slot < a.p.n_expert ? n_slot : a.p.n_expert);
    uint64_t blocks = (tiles * n_rt + warps - 1) / warps, all = (uint64_t)d->n_sm * MOE_CODES_BLOCKS;
    LAUNCH((k_moe_codes<T, C, NB, DEEP, VECTOR>), (uint32_t)(blocks < all ? blocks : all), MOE_CODES_THREADS,
           (a.p.n_expert + 1) * sizeof(uint32_t), d, a);
    cuda_launched(d, "moe");
}

template <class T, class C>
static void moe_codes_of(struct cuda_dev *d, const struct moe_codes_args &a, uint32_t n_row, bool vector)
{
    if (!vector)
        moe_codes_launch<T, C, 4, 8 / C::STEPS, false>(d, a, n_row * a.p.top_k);
    else if (n_row <= 8) /* an expert gets each row at most once */
        moe_codes_launch<T, C, 1, C::STEPS == 2 ? 6 : 4, true>(d, a, n_row * a.p.top_k);
    else
        moe_codes_launch<T, C, 4, 8 / C::STEPS, true>(d, a, n_row * a.p.top_k);
}

template <class T>
static void moe_codes_kind(struct cuda_dev *d, const struct moe_codes_args &a, uint32_t n_row, enum dtype code,
                           bool vector)
{
    switch (code) {
    case DT_I4: moe_codes_of<T, codes_i4>(d, a, n_row, vector); break;
    case DT_F8E4M3: moe_codes_of<T, codes_f8>(d, a, n_row, vector); break;
    case DT_I8: moe_codes_of<T, codes_i8>(d, a, n_row, vector); break;
    case DT_F4E2M1:
        if (a.factor)
            moe_codes_of<T, codes_nvf4>(d, a, n_row, vector);
        else
            moe_codes_of<T, codes_f4>(d, a, n_row, vector);
        break;
    default: CHECK(false);
    }
}

void cuda_moe_codes(struct cuda_dev *d, const struct moe_args &p, const struct dev_weight *w, size_t stride,
                    uint32_t n_row, bool gate_up, bool vector)
{
    struct moe_codes_args a = { p,
                                (const char *)w->data,
                                (const char *)w->scale,
                                (const char *)w->factor,
                                stride,
                                (uint32_t)(codes_row_bytes(w->dtype, w->k) / CODES_LINE),
                                codes_n_record(&w->q, w->k),
                                codes_shift(w->q.group),
                                gate_up };
    if (d->impl.dev.act == DT_F16)
        moe_codes_kind<__half>(d, a, n_row, w->dtype, vector);
    else
        moe_codes_kind<__nv_bfloat16>(d, a, n_row, w->dtype, vector);
}
