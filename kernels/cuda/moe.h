/* moe: what stands between the router and the products of the experts.   Private to moe*.cu and tune.c. Thread: rank's. */
#pragma once
#include "kernels/cuda/cuda.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What routing leaves for the experts' products, in device memory. A slot is row * top_k + k. */
struct moe_lists {
    uint32_t *expert; /* [n_slot], and 3 more that may be read; n_expert: none, the row is padding */
    uint32_t *order;  /* [n_slot] slots of the experts here in order of expert, then row; the rest is not written */
    uint32_t *start;  /* [n_here + 1] slots of the experts before */
    float    *weight; /* [n_slot] */
};

/* moe.cu: the lists of rows [row0, + n_row) by o->router_logits. */
void cuda_moe_lists(struct cuda_dev *d, const struct op_moe *o, const struct moe_lists *to, uint32_t row0,
                    uint32_t n_row);
/* moe_route_few.cu: the product of r, and by its result the lists of all rows of o, in one launch; the bits are those of
 * cuda_gemm_rows, cuda_add_bias and cuda_moe_lists. false: nothing is done, there is no kernel for it. */
bool cuda_moe_route_few(struct cuda_dev *d, const struct op_moe *o, const struct op_router *r,
                        const struct moe_lists *to);
#ifdef __cplusplus
}
#endif
