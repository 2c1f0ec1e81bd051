#include "kernels/ref/ref.h"
#include <math.h>

static void rope(float *x, const struct op_qkv *o, uint32_t pos)
{
    uint32_t half = o->rot / 2;
    for (uint32_t i = 0; i < half; i++) {
        float angle = (float)pos * o->inv_freq[i]; /* in float32, as the checkpoints were trained */
        float c = cosf(angle) * o->rope_scale, s = sinf(angle) * o->rope_scale;
        float a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

void ref_qkv(struct device *d, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    uint32_t hd = o->head_dim, n_head = o->n_head + 2 * o->n_kv_head;
    CHECK(kv_holds_heads(kv, o->layer, o->n_kv_head, hd) && o->rot <= hd);
    for (uint32_t r = 0; r < b->n_row; r++) {
        uint32_t seq = b->row_seq[r], pos = b->pos[r];
        uint32_t block = b->page[b->page_start[seq] + pos / kv->block_tokens];
        CHECK(b->page_start[seq] + pos / kv->block_tokens < b->page_start[seq + 1] && block < kv->n_block);
        for (uint32_t h = 0; h < n_head; h++) {
            float       *x = (float *)o->qkv + ((size_t)r * n_head + h) * hd;
            bool         is_v = h >= o->n_head + o->n_kv_head;
            const float *norm = h < o->n_head ? o->q_norm : o->k_norm;
            if (norm && !is_v) ref_rmsnorm(d, x, x, norm, 1, hd, o->eps);
            if (o->inv_freq && !is_v) rope(x, o, pos);
            for (uint32_t i = 0; h < o->n_head && o->q_beta != 0 && i < hd; i++) x[i] *= qkv_q_scale(o, pos);
            if (h < o->n_head) continue;
            uint32_t kv_head = (h - o->n_head) % o->n_kv_head;
            char    *to = kv_key(kv, block, o->layer, kv_head, pos % kv->block_tokens, hd);
            if (is_v) to += kv_value_bytes(kv, o->layer);
            for (uint32_t i = 0; i < hd; i++) elem_store(to, kv->dtype, i, x[i]);
        }
    }
}
