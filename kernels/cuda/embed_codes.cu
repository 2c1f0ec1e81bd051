/* embed_codes: rows of an embedding whose numbers are codes (codes.h).   truth: kernels/ref/gemm.c, op embed
 *   out act [n, k]   id [n]
 *
 * A thread makes eight neighbours of a row: the codes that one of four threads multiplies in one step, 16 bytes with
 * those of its other steps. A number is code times scale in fp32, rounded once to act. */
#include "base/check.h"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/vec.cuh"

enum { EMBED_THREADS = 128, EMBED_EACH = 8 };

struct embed_args {
    void           *out;
    const uint32_t *id;
    const uint4    *line;                            /* [n_row][row16] */
    const uint32_t *record;                          /* [n_row][n_group] */
    uint32_t        n_row, k, row16, n_group, group; /* group: inputs, 0: all */
};

/* An id that is not in the vocabulary gives a row of zeros, as with floats. */
template <class T, class C> __global__ void __launch_bounds__(EMBED_THREADS) k_embed_codes(const struct embed_args a)
{
    uint32_t j = (blockIdx.y * EMBED_THREADS + threadIdx.x) * EMBED_EACH;
    uint32_t step = j % C::UNIT / CODES_STEP, thread = j % CODES_STEP / EMBED_EACH;
    pdl_wait();
    uint32_t id = a.id[blockIdx.x];
    if (j >= a.k) return;
    bool  in = id < a.n_row;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (in) v = a.line[(size_t)id * a.row16 + j / C::UNIT * (CODES_LINE / sizeof v) + thread];
    uint32_t group = a.group ? j / a.group : 0, record = in ? a.record[(size_t)id * a.n_group + group] : 0;
    pdl_launch();
    if (step >= 2) C::turn(v);
    uint4 pairs = C::template take<T>(v, step % 2, record);
    float x[EMBED_EACH], scale = C::scale(record);
    act_load8<T>(x, pairs);
    T *to = (T *)a.out + (size_t)blockIdx.x * a.k + j;
#pragma unroll
    for (uint32_t i = 0; i < EMBED_EACH; i++)
        if (j + i < a.k) to[i] = act_store<T>(in ? __fmul_rn(x[i], scale) : 0.0f);
}

template <class T> static void embed_launch(struct cuda_dev *d, enum dtype code, const struct embed_args &a, uint32_t n)
{
    dim3 grid(n, (a.k + EMBED_THREADS * EMBED_EACH - 1) / (EMBED_THREADS * EMBED_EACH));
    switch (code) {
    case DT_I4: LAUNCH((k_embed_codes<T, codes_i4>), grid, EMBED_THREADS, 0, d, a); break;
    case DT_I8: LAUNCH((k_embed_codes<T, codes_i8>), grid, EMBED_THREADS, 0, d, a); break;
    case DT_F8E4M3: LAUNCH((k_embed_codes<T, codes_f8>), grid, EMBED_THREADS, 0, d, a); break;
    default: CHECK(false);
    }
}

extern "C" void cuda_embed_codes(struct device *dev, void *out, const uint32_t *id, const struct dev_weight *w,
                                 uint32_t n)
{
    struct cuda_dev *d = cuda_of(dev);
    CHECK(codes_ok(&w->q) && w->q.group % EMBED_EACH == 0);
    struct embed_args a = { out,
                            id,
                            (const uint4 *)w->data,
                            (const uint32_t *)w->scale,
                            w->n,
                            w->k,
                            (uint32_t)(codes_row_bytes(w->dtype, w->k) / sizeof(uint4)),
                            quant_n_group(&w->q, w->k),
                            w->q.group };
    if (dev->act == DT_F16)
        embed_launch<__half>(d, w->dtype, a, n);
    else
        embed_launch<__nv_bfloat16>(d, w->dtype, a, n);
    cuda_launched(d, "embed");
}
