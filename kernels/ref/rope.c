#include "kernels/kv8.h"
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

void ref_squares(struct device *d, float *out, const struct op_qkv *o, uint32_t n)
{
    (void)d;
    uint32_t q = o->n_head * o->head_dim, k = o->n_kv_head * o->head_dim;
    for (uint32_t r = 0; r < n; r++) {
        const float *x = (const float *)o->qkv + (size_t)r * (q + 2 * k);
        double       sum[2] = { 0, 0 };
        for (uint32_t i = 0; i < q + k; i++) sum[i >= q] += (double)x[i] * (double)x[i];
        out[2 * r] = (float)sum[0];
        out[2 * r + 1] = (float)sum[1];
    }
}

/* The norm of a q or k head of a row, alone or as a part of its whole projection. h: of its kind. */
static void norm_head(struct device *d, float *x, const struct op_qkv *o, uint32_t row, bool is_k, uint32_t h)
{
    const float *w = is_k ? o->k_norm : o->q_norm;
    uint32_t     hd = o->head_dim;
    if (!w) return;
    if (o->norm_mean) {
        ref_layernorm(d, x, x, w + (size_t)h * hd, NULL, 1, hd, o->eps);
        return;
    }
    if (!o->square) {
        ref_rmsnorm(d, x, x, w, 1, hd, o->eps);
        return;
    }
    double sum = 0, width = (double)o->n_square * (is_k ? o->n_kv_head : o->n_head) * hd;
    for (uint32_t i = 0; i < o->n_square; i++) sum += (double)o->square[((size_t)row * o->n_square + i) * 2 + is_k];
    double scale = 1 / sqrt(sum / width + (double)o->eps);
    for (uint32_t i = 0; i < hd; i++) x[i] = (float)((double)x[i] * scale * (double)w[(size_t)h * hd + i]);
}

void ref_qkv(struct device *d, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    uint32_t hd = o->head_dim, n_head = o->n_head + 2 * o->n_kv_head;
    CHECK((!kv || kv_holds_heads(kv, o->layer, o->n_kv_head, hd)) && o->rot <= hd);
    CHECK(o->norm_late + o->norm_mean + (o->square != NULL) <= 1);
    for (uint32_t r = 0; r < b->n_row; r++) {
        uint32_t seq = b->row_seq[r], pos = b->pos[r];
        uint32_t slot = tree_slot(pos, dev_tree(b, r));
        uint32_t block = kv ? b->page[b->page_start[seq] + slot / kv->block_tokens] : 0;
        CHECK(!kv || (b->page_start[seq] + slot / kv->block_tokens < b->page_start[seq + 1] && block < kv->n_block));
        for (uint32_t h = 0; h < n_head; h++) {
            float *x = (float *)o->qkv + ((size_t)r * n_head + h) * hd;
            bool   is_v = h >= o->n_head + o->n_kv_head;
            bool   is_k = h >= o->n_head;
            if (!is_v && !o->norm_late) norm_head(d, x, o, r, is_k, is_k ? h - o->n_head : h);
            if (is_v && o->v_norm) ref_rmsnorm(d, x, x, o->v_norm, 1, hd, o->eps);
            if (o->inv_freq && !is_v) rope(x, o, pos);
            if (!is_v && o->norm_late) norm_head(d, x, o, r, is_k, is_k ? h - o->n_head : h);
            for (uint32_t i = 0; h < o->n_head && o->q_beta != 0 && i < hd; i++) x[i] *= qkv_q_scale(o, pos);
            if (h < o->n_head || !kv) continue;
            uint32_t kv_head = (h - o->n_head) % o->n_kv_head;
            char    *to = kv_key(kv, block, o->layer, kv_head, slot % kv->block_tokens, hd);
            if (is_v) to += kv_value_bytes(kv, o->layer);
            if (kv->dtype == DT_F8E4M3) {
                kv8_store((uint8_t *)to, kv8_scale_at(kv->block_tokens, slot % kv->block_tokens, hd), x, hd);
                continue;
            }
            for (uint32_t i = 0; i < hd; i++) elem_store(to, kv->dtype, i, x[i]);
        }
    }
}
