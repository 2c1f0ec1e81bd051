/* join: products of few rows together with the norm ahead of them and with what stands behind: the sum, the gate, or what
 * becomes of q, k and v. Where the device has a pass for that (dev_ops.fused) and says each time that it is worth it; the
 * bits are the same both ways. Private to engine/model/.   Thread: the rank's. */
#pragma once
#include "engine/model/model_impl.h"

/* May parts add to the stream by themselves, and take its norm by themselves? Not where more than that stands between
 * them, nor where a sum over the ranks does. Of the model; a step may have reasons of its own. */
bool model_may_join(const struct model *m);
/* m->h [n_row, hidden], whose norm may have been due. Each part reads m->h only behind this. */
const void *model_h(struct model *m, uint32_t n_row);
/* out = h * w^T + bias; end GLU: and through the gate, out is then [n_row, w->n / 2]. false: nothing is done. Rows with
 * adapters need h and the product for themselves. */
bool model_join(struct model *m, void *out, const struct dev_weight *w, const float *bias, enum op_end end,
                uint32_t n_row);
/* qkv->qkv = h * w^T + bias, and op qkv with it. false, and order: as in model_product. */
bool model_join_qkv(struct model *m, const struct dev_weight *w, const uint32_t *order, const float *bias,
                    const struct op_qkv *qkv, const struct dev_batch *b, const struct dev_kv *kv);
/* The stream += x * w^T + bias, where the part may do that (m->sum). false: nothing is done. */
bool model_join_sum(struct model *m, const void *x, const struct dev_weight *w, const float *bias, uint32_t n_row);
/* out = h * w^T + bias by whatever way. order: as in model_in_order. */
void model_product(struct model *m, void *out, const struct dev_weight *w, const uint32_t *order, const float *bias,
                   uint32_t n_row);
