#include "kernels/kv8.h"
#include "kernels/ref/ref.h"
#include <math.h>
#include <stdlib.h>

/* The slot of the token at position p <= pos, as the row at pos sees it. */
static uint32_t slot_of(uint32_t pos, uint64_t tree, uint32_t p)
{
    uint32_t node = 0, base = tree_base(pos, tree), before = p - base;
    if (p < base) return p;
    for (; before || !(tree >> node & 1); node++) before -= (uint32_t)(tree >> node & 1);
    return base + node;
}

/* The key in slot `pos` of the row's sequence; its value lies kv_value_bytes behind. */
static const char *slot(const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv, uint32_t seq,
                        uint32_t head, uint32_t pos)
{
    uint32_t block = b->page[b->page_start[seq] + pos / kv->block_tokens];
    CHECK(block < kv->n_block + kv->n_guest);
    return kv_key_read(kv, block, o->layer, head, pos % kv->block_tokens, o->head_dim);
}

/* Number i of a row, of slot `pos`. */
static double number(const struct dev_kv *kv, const char *row, uint32_t pos, uint32_t dim, uint32_t i)
{
    if (kv->dtype != DT_F8E4M3) return (double)elem_load(row, kv->dtype, i);
    uint8_t code = (uint8_t)row[i], scale = (uint8_t)row[kv8_scale_at(kv->block_tokens, pos % kv->block_tokens, dim)];
    return (double)f8e4m3_to_f32(code) * (double)kv8_factor(scale);
}

static uint32_t first_key(const struct op_attn *o, uint32_t pos)
{
    if (!o->window) return 0;
    if (o->chunked) return pos / o->window * o->window;
    return pos >= o->window ? pos - o->window + 1 : 0;
}

/* out = softmax(scale * q k^T) v over the keys a row may see, and a sink. All scores of a row and head come first, then
 * what they make of the values. */
void ref_attention(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    (void)d;
    uint32_t hd = o->head_dim, group = o->n_head / o->n_kv_head, pos_max = 0;
    CHECK(kv_holds_heads(kv, o->layer, o->n_kv_head, hd) && hd <= 1024);
    for (uint32_t r = 0; r < b->n_row; r++) pos_max = b->pos[r] > pos_max ? b->pos[r] : pos_max;
    double *score = malloc(((size_t)pos_max + 1) * sizeof *score);
    CHECK(score);
    for (uint32_t r = 0; r < b->n_row; r++)
        for (uint32_t h = 0; h < o->n_head; h++) {
            const float *q = (const float *)o->qkv + ((size_t)r * op_attn_heads(o) + h) * hd;
            float       *out = (float *)o->out + ((size_t)r * o->n_head + h) * hd;
            uint32_t     seq = b->row_seq[r], pos = b->pos[r];
            uint32_t     first = first_key(o, pos);
            uint64_t     tree = dev_tree(b, r);
            CHECK(tree_count(tree) <= pos + 1);
            double max = o->sinks ? (double)o->sinks[h] : -INFINITY, sum = 0, acc[1024] = { 0 };
            for (uint32_t t = first; t <= pos; t++) {
                uint32_t    in = slot_of(pos, tree, t);
                const char *k = slot(o, b, kv, seq, h / group, in);
                double      dot = 0;
                for (uint32_t i = 0; i < hd; i++) dot += (double)q[i] * number(kv, k, in, hd, i);
                score[t] = ref_soft_cap(dot * (double)o->scale, o->cap);
                max = fmax(max, score[t]);
            }
            for (uint32_t t = first; t <= pos; t++) {
                uint32_t    in = slot_of(pos, tree, t);
                const char *v = slot(o, b, kv, seq, h / group, in) + kv_value_bytes(kv, o->layer);
                double      p = exp(score[t] - max);
                sum += p;
                for (uint32_t i = 0; i < hd; i++) acc[i] += p * number(kv, v, in, hd, i);
            }
            if (o->sinks) sum += exp((double)o->sinks[h] - max);
            for (uint32_t i = 0; i < hd; i++) out[i] = (float)(acc[i] / sum);
        }
    free(score);
}
