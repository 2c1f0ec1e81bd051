/* codes_wide: products with codes and many rows by the library, which multiplies plain numbers alone, but those at
 * twice the rate of our own kernels.
 * The matrix is made to numbers a slab of rows at a time, which lies where the library's workspace is: 32 MiB, which
 * stay in the L2 cache of a large GPU until they have been read. So no memory is taken for it, and the library's
 * algorithms here are those that want no workspace. What that costs is two bytes a weight, whatever the rows: from
 * codes_wide rows on (struct cuda_dev) it is quicker.
 * A number is rounded to act once more than in gemm_codes.cu, where it is exact, and the order of sums is the library's:
 * so it is not done with --deterministic. */
#include "kernels/cuda/codes.h"
#include "kernels/cuda/gemm.h"

/* Rows of a slab; 0: this matrix has none. */
static uint32_t slab_rows(const struct cuda_dev *d, const struct dev_weight *w)
{
    enum { TILE = 256 }; /* rows that kernels of the library take at a time */
    const struct cuda_blas *b = d->blas;
    if (!b->h || d->deterministic || w->k % 8 || w->n % 8) return 0;
    uint32_t most = (uint32_t)(d->codes_slab / ((uint64_t)w->k * sizeof(uint16_t))) / TILE * TILE;
    if (!most) return 0;
    uint32_t n_slab = (w->n + most - 1) / most, each = (w->n + n_slab - 1) / n_slab;
    return (each + TILE - 1) / TILE * TILE;
}

static struct dev_weight slab_at(const struct cuda_dev *d, const struct dev_weight *w, uint32_t row0, uint32_t rows)
{
    uint32_t n = w->n - row0 < rows ? w->n - row0 : rows;
    return (struct dev_weight){ .data = d->blas->workspace,
                                .dtype = d->impl.dev.act,
                                .n = n,
                                .k = w->k,
                                .bytes = (size_t)n * w->k * sizeof(uint16_t) };
}

void cuda_codes_seen(struct cuda_dev *d, const struct dev_weight *w)
{
    uint32_t rows = d->blas ? slab_rows(d, w) : 0;
    for (uint32_t row0 = 0; rows && row0 < w->n; row0 += rows) {
        struct dev_weight slab = slab_at(d, w, row0, rows);
        gemm_slab_seen(d, &slab);
    }
}

bool cuda_codes_wide(struct cuda_dev *d, const struct gemm_product *p)
{
    const struct dev_weight *w = p->w;
    uint32_t                 rows = p->m > d->codes_wide && p->out_t != DT_F32 ? slab_rows(d, w) : 0;
    for (uint32_t row0 = 0; rows && row0 < w->n; row0 += rows) {
        struct dev_weight slab = slab_at(d, w, row0, rows);
        if (!gemm_slab_pin(d, &slab, p->m)) return false;
    }
    for (uint32_t row0 = 0; rows && row0 < w->n; row0 += rows) {
        struct dev_weight   slab = slab_at(d, w, row0, rows);
        struct gemm_product part = *p;
        part.w = &slab;
        part.out = (char *)p->out + (size_t)row0 * dtype_bytes(p->out_t);
        part.out_row = w->n;
        cuda_codes_numbers(d, slab.data, w, row0, slab.n);
        if (!gemm_run(d, gemm_slab_pin(d, &slab, p->m), &part)) return false;
    }
    return rows > 0;
}
