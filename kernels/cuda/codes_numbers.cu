/* codes_numbers: rows of a matrix of codes as numbers in 16 bits.   truth: quant_code (kernels/quant.h)
 *   w as codes.h says   out act [n_row, k]
 * A number is code times scale in fp32, of NVFP4 code and scale times factor, rounded once to act. A thread makes the
 * numbers of 16 bytes of a line, so that a warp reads 512 bytes in one piece; neighbours write 64. */
#include "base/check.h"
#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/vec.cuh"

enum { NUMBERS_THREADS = 256 };

struct numbers_args {
    void        *out;
    const uint4 *line;   /* of the first row, as those behind it */
    const void  *record; /* of the kind's record_t */
    const float *factor; /* NULL where the kind has none */
    uint32_t     n_row, k, n_line, n_group, shift;
};

/* k is a multiple of 8. */
template <class T, class C>
__global__ void __launch_bounds__(NUMBERS_THREADS) k_codes_numbers(const __grid_constant__ struct numbers_args p)
{
    const uint32_t i = blockIdx.x * NUMBERS_THREADS + threadIdx.x, t = i % 4, at = i / 4;
    const uint32_t row = at / p.n_line, l = at % p.n_line;
    const bool     in = row < p.n_row; /* all threads of a line are, or none */
    const uint32_t of = min((l * C::STEPS + t % C::STEPS) >> p.shift, p.n_group - 1);
    uint4          codes = make_uint4(0, 0, 0, 0);
    uint32_t       record = C::NONE;
    float          factor = 0;
    if (in) {
        codes = ld_stream16(p.line + i);
        record = __ldg((const typename C::record_t *)p.record + (size_t)row * p.n_group + of);
        if constexpr (codes_scaled<C>) factor = __ldg(p.factor + row);
    }
    pdl_wait(); /* no kernel writes codes; the product ahead reads what is written here */
#pragma unroll
    for (int pair = 0; pair < C::STEPS / 2; pair++) {
#pragma unroll
        for (int s = 0; s < 2; s++) {
            const uint32_t own = codes_of_step(record, pair * 2 + s),
                           k = l * C::UNIT + (pair * 2 + s) * CODES_STEP + t * VEC;
            float x[VEC];
            act_load8<T>(x, C::template take<T>(codes, s, own));
            const float by = codes_scaled<C> ? factor : C::scale(own);
#pragma unroll
            for (int j = 0; j < VEC; j++) x[j] = __fmul_rn(x[j], by);
            if (in && k < p.k) *(uint4 *)((T *)p.out + (size_t)row * p.k + k) = act_store8<T>(x);
        }
        C::turn(codes);
    }
    pdl_launch();
}

template <class T, class C> static void numbers_launch(struct cuda_dev *d, const struct numbers_args &p)
{
    const uint32_t threads = p.n_row * p.n_line * 4;
    LAUNCH((k_codes_numbers<T, C>), (threads + NUMBERS_THREADS - 1) / NUMBERS_THREADS, NUMBERS_THREADS, 0, d, p);
}

template <class T> static void numbers_kind(struct cuda_dev *d, const struct numbers_args &p, enum dtype code)
{
    switch (code) {
    case DT_I4: numbers_launch<T, codes_i4>(d, p); break;
    case DT_F8E4M3: numbers_launch<T, codes_f8>(d, p); break;
    case DT_I8: numbers_launch<T, codes_i8>(d, p); break;
    case DT_F4E2M1: numbers_launch<T, codes_nvf4>(d, p); break;
    default: CHECK(false);
    }
}

extern "C" void cuda_codes_numbers(struct cuda_dev *d, void *out, const struct dev_weight *w, uint32_t row0,
                                   uint32_t n_row)
{
    const uint32_t n_line = (uint32_t)(codes_row_bytes(w->dtype, w->k) / CODES_LINE);
    const uint32_t n_group = codes_n_record(&w->q, w->k);
    CHECK(w->k % VEC == 0 && n_row && row0 <= w->n && n_row <= w->n - row0);
    CHECK((uint64_t)n_row * n_line * 4 <= UINT32_MAX - NUMBERS_THREADS); /* as the kernel counts */
    CHECK(w->dtype != DT_F4E2M1 || w->factor);                           /* MXFP4 is of experts alone */
    struct numbers_args p = {};
    p.out = out;
    p.line = (const uint4 *)w->data + (size_t)row0 * n_line * 4;
    p.record = (const char *)w->scale + (size_t)row0 * n_group * codes_record_bytes(&w->q);
    p.factor = w->factor ? (const float *)w->factor + row0 : NULL;
    p.n_row = n_row, p.k = w->k, p.n_line = n_line, p.n_group = n_group, p.shift = codes_shift(w->q.group);
    d->impl.dev.act == DT_F16 ? numbers_kind<__half>(d, p, w->dtype) : numbers_kind<__nv_bfloat16>(d, p, w->dtype);
    cuda_launched(d, "numbers");
}
