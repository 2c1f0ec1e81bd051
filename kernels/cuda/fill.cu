/* fill: the numbers of dev_weight_fill, written where the weight lies.   truth: fill_number (kernels/fill.h)
 *   w [n_row, n_col] of T   element (r, c): number (row0 + r) * row_len + col0 + c of the row that `seed` names */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/vec.cuh"
#define FILL_DEVICE static __device__ __forceinline__
#include "kernels/fill.h"

enum { FILL_THREADS = 256, FILL_EACH = 8 };

template <class T>
__global__ void __launch_bounds__(FILL_THREADS)
    k_fill(T *w, size_t n, uint32_t n_col, uint64_t seed, uint64_t row0, uint64_t col0, uint64_t row_len, float std)
{
    pdl_wait();
    size_t i = ((size_t)blockIdx.x * FILL_THREADS + threadIdx.x) * FILL_EACH;
    if (i >= n) return;
    size_t r = i / n_col, c = i - r * n_col;
    for (int j = 0; j < FILL_EACH && i + (size_t)j < n; j++) {
        w[i + j] = act_store<T>(fill_number(seed, (row0 + r) * row_len + col0 + c, std));
        if (++c == n_col) c = 0, r++;
    }
    pdl_launch();
}

extern "C" void cuda_fill(struct cuda_dev *d, void *w, enum dtype t, uint32_t n_row, uint32_t n_col, uint64_t seed,
                          uint64_t row0, uint64_t col0, uint64_t row_len, float std)
{
    size_t n = (size_t)n_row * n_col, each = (size_t)FILL_THREADS * FILL_EACH;
    for (size_t at = 0;
         at < n;) { /* a grid has at most 2^31 - 1 blocks; whole rows, so that a piece begins with column 0 */
        size_t rows = ((size_t)1 << 40) / n_col, left = n_row - at / n_col, some = (rows < left ? rows : left) * n_col;
        unsigned grid = (unsigned)((some + each - 1) / each);
        if (t == DT_F16)
            LAUNCH(k_fill<__half>, grid, FILL_THREADS, 0, d, (__half *)w + at, some, n_col, seed, row0 + at / n_col,
                   col0, row_len, std);
        else
            LAUNCH(k_fill<__nv_bfloat16>, grid, FILL_THREADS, 0, d, (__nv_bfloat16 *)w + at, some, n_col, seed,
                   row0 + at / n_col, col0, row_len, std);
        at += some;
    }
    cuda_launched(d, "fill");
}

extern "C" void cuda_weight_fill(struct device *dev, struct dev_weight *w, uint32_t row0, uint32_t n_row, uint64_t seed,
                                 uint64_t src_row, uint64_t src_col, uint64_t src_len, float std)
{
    struct cuda_dev *d = cuda_of(dev);
    cuda_bind(d);
    cuda_fill(d, (char *)w->data + (size_t)row0 * w->k * dtype_bytes(w->dtype), w->dtype, n_row, w->k, seed, src_row,
              src_col, src_len, std);
}
