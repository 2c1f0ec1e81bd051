#include "kernels/ref/ref.h"
#include <math.h>

/* The rows that row r sees, of those of its sequence, [first, end). */
static void seen(const struct op_attn *o, const struct dev_batch *b, uint32_t r, uint32_t *first_out, uint32_t *end_out)
{
    uint32_t begin = b->row_start[b->row_seq[r]], end = b->row_start[b->row_seq[r] + 1], w = o->window;
    *first_out = w && r - begin >= w ? r - w + 1 : begin;
    *end_out = w && end - r > w ? r + w : end;
}

/* out = softmax(scale * q k^T) v over the rows of the same sequence; two passes, nothing running. */
void ref_mutual(struct device *d, const struct op_attn *o, const struct dev_batch *b)
{
    (void)d;
    uint32_t hd = o->head_dim, group = o->n_head / o->n_kv_head;
    size_t   width = (size_t)(o->n_head + 2 * o->n_kv_head) * hd;
    CHECK(hd <= 1024);
    for (uint32_t r = 0; r < b->n_row; r++)
        for (uint32_t h = 0; h < o->n_head; h++) {
            const float *q = (const float *)o->qkv + r * width + (size_t)h * hd;
            float       *out = (float *)o->out + ((size_t)r * o->n_head + h) * hd;
            uint32_t     first, end;
            double       max = -INFINITY, sum = 0, acc[1024] = { 0 };
            seen(o, b, r, &first, &end);
            for (int pass = 0; pass < 2; pass++)
                for (uint32_t t = first; t < end; t++) {
                    const float *k = (const float *)o->qkv + t * width + (size_t)(o->n_head + h / group) * hd;
                    const float *v = k + (size_t)o->n_kv_head * hd;
                    double       score = 0;
                    for (uint32_t i = 0; i < hd; i++) score += (double)q[i] * (double)k[i];
                    score = ref_soft_cap(score * (double)o->scale, o->cap);
                    if (pass == 0) {
                        max = fmax(max, score);
                        continue;
                    }
                    double p = exp(score - max);
                    sum += p;
                    for (uint32_t i = 0; i < hd; i++) acc[i] += p * (double)v[i];
                }
            for (uint32_t i = 0; i < hd; i++) out[i] = (float)(acc[i] / sum);
        }
}
