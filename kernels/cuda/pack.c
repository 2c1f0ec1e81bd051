/* pack: a step into its slab and its results out of theirs.   See step.h.
 * Every entry of the fixed part is written for every step, padding too: a graph runs over all of them, and what the last step left
 * there would be run again. */
#include "base/check.h"
#include "kernels/cuda/step.h"
#include <string.h>

enum { ALIGN = 64 }; /* whole sectors; no load straddles two arrays */

static size_t take(size_t *at, size_t n, size_t size)
{
    size_t here = *at;
    *at = (here + n * size + ALIGN - 1) / ALIGN * ALIGN;
    return here;
}

struct cuda_place cuda_step_place(const struct cuda_shape *sh)
{
    struct cuda_place p;
    size_t            at = 0;
    p.id = take(&at, sh->rows, 4);
    p.pos = take(&at, sh->rows, 4);
    p.row_seq = take(&at, sh->rows, 4);
    p.row_start = take(&at, (size_t)sh->seqs + 1, 4);
    p.page_start = take(&at, (size_t)sh->seqs + 1, 4);
    p.logit_row = take(&at, sh->logits, 4);
    p.sample = take(&at, sh->samples, sizeof(struct op_sample_row));
    p.lp_id = take(&at, sh->lps, 4);
    p.patch_id = take(&at, sh->patch_ids, sizeof(struct dev_patch));
    p.patch_hist = take(&at, sh->patch_hists, sizeof(struct dev_patch));
    p.tile_seq = take(&at, sh->tiles, 4);
    p.tile_row = take(&at, sh->tiles, 4);
    p.item_seq = take(&at, sh->items, 4);
    p.item_chunk = take(&at, sh->items, 4);
    p.seq_item = take(&at, (size_t)sh->seqs + 1, 4);
    p.chunk = take(&at, 1, 4);
    p.pool = at;
    return p;
}

static uint32_t *words(char *to, size_t at) { return (uint32_t *)(void *)(to + at); }

/* a[0 .. n) from h, a[n .. cap) = pad */
static void put(uint32_t *a, const uint32_t *h, uint32_t n, uint32_t cap, uint32_t pad)
{
    if (n) memcpy(a, h, n * sizeof *a);
    for (uint32_t i = n; i < cap; i++) a[i] = pad;
}

static void put_patches(struct dev_patch *a, const struct dev_patch *h, uint32_t n, uint32_t cap, uint32_t base)
{
    for (uint32_t i = 0; i < n; i++) a[i] = (struct dev_patch){ h[i].at + base, h[i].from };
    for (uint32_t i = n; i < cap; i++) a[i] = (struct dev_patch){ UINT32_MAX, UINT32_MAX };
}

/* The lists of variable length, one behind the other; in words. */
struct pool {
    uint32_t page, hist, ban, allow, bias, end;
};
static struct pool pool_of(const struct dev_step *h)
{
    struct pool p = { .page = 0 };
    p.hist = h->b.n_seq ? h->b.page_start[h->b.n_seq] : 0;
    p.ban = p.hist + h->n_hist;
    p.allow = p.ban + h->n_ban;
    p.bias = (p.allow + h->n_allow + 1) / 2 * 2; /* a bias is two words */
    p.end = p.bias + 2 * h->n_bias;
    return p;
}

static void pool_write(const struct dev_step *h, const struct pool *p, uint32_t *to)
{
    if (p->hist) memcpy(to, h->b.page, p->hist * sizeof *to);
    if (h->n_hist) memcpy(to + p->hist, h->hist, h->n_hist * sizeof *to);
    if (h->n_ban) memcpy(to + p->ban, h->ban, h->n_ban * sizeof *to);
    if (h->n_allow) memcpy(to + p->allow, h->allow, h->n_allow * sizeof *to);
    if (h->n_bias) memcpy(to + p->bias, h->bias, h->n_bias * sizeof *h->bias);
}

static void put_samples(struct op_sample_row *a, const struct dev_step *h, const struct pool *p, uint32_t cap)
{
    for (uint32_t i = 0; i < h->n_sample; i++) {
        a[i] = h->sample[i];
        a[i].hist_start += p->hist;
        a[i].ban_start += p->ban;
        a[i].allow_start += p->allow;
        a[i].bias_start += p->bias / 2;
    }
    for (uint32_t i = h->n_sample; i < cap; i++) a[i] = (struct op_sample_row){ .n_hist = UINT32_MAX }; /* to be skipped */
}

static void put_plan(const struct dev_step *h, const struct cuda_shape *sh, const struct cuda_place *at,
                     const struct cuda_attn_split *split, uint32_t *len, char *to, struct cuda_attn_plan *plan)
{
    struct cuda_attn_lists l = { .tile_seq = words(to, at->tile_seq),
                                 .tile_row = words(to, at->tile_row),
                                 .item_seq = words(to, at->item_seq),
                                 .item_chunk = words(to, at->item_chunk),
                                 .seq_item = words(to, at->seq_item),
                                 .chunk = words(to, at->chunk),
                                 .n_decode_pad = sh->seqs,
                                 .n_item_pad = sh->items };
    cuda_attn_fill(split, &h->b, len, &l);
    CHECK(l.n_tile <= sh->tiles);
    plan->n_decode = sh->padded ? sh->seqs : l.n_decode;
    plan->n_item = sh->padded ? sh->items : l.n_item;
    plan->n_tile = l.n_tile;
}

size_t cuda_step_pack(const struct dev_step *h, const struct cuda_shape *sh, const struct cuda_place *at,
                      const struct cuda_attn_split *split, uint32_t *len, char *to, struct cuda_attn_plan *plan)
{
    const struct dev_batch *b = &h->b;
    struct pool             p = pool_of(h);
    put(words(to, at->id), b->id, b->n_row, sh->rows, 0);
    put(words(to, at->pos), b->pos, b->n_row, sh->rows, 0);
    put(words(to, at->row_seq), b->row_seq, b->n_row, sh->rows, UINT32_MAX);
    put(words(to, at->row_start), b->row_start, b->n_seq, sh->seqs + 1, b->n_row);
    put(words(to, at->page_start), b->page_start, b->n_seq, sh->seqs + 1, p.hist);
    put(words(to, at->logit_row), h->logit_row, h->n_logit, sh->logits, UINT32_MAX);
    put(words(to, at->lp_id), h->lp_id, h->n_lp, sh->lps, 0);
    put_samples((struct op_sample_row *)(void *)(to + at->sample), h, &p, sh->samples);
    put_patches((struct dev_patch *)(void *)(to + at->patch_id), h->patch_id, h->n_patch_id, sh->patch_ids, 0);
    put_patches((struct dev_patch *)(void *)(to + at->patch_hist), h->patch_hist, h->n_patch_hist, sh->patch_hists, p.hist);
    if (split) put_plan(h, sh, at, split, len, to, plan);
    pool_write(h, &p, words(to, at->pool));
    return at->pool + (size_t)p.end * 4;
}

/* ---------------------------------------------------------------- results */

struct cuda_back cuda_back_place(uint32_t samples, uint32_t lps)
{
    struct cuda_back k;
    size_t           at = 0, top = OP_SAMPLE_TOP_MAX;
    k.id = take(&at, samples, 4);
    k.rank = take(&at, samples, 4);
    k.logprob = take(&at, samples, 4);
    k.lp = take(&at, lps, 4);
    k.lp_rank = take(&at, lps, 4);
    k.top_id = take(&at, samples * top, 4);
    k.top_logprob = take(&at, samples * top, 4);
    k.lp_top_id = take(&at, lps * top, 4);
    k.lp_top = take(&at, lps * top, 4);
    k.end = at;
    return k;
}

static bool wants_top(const struct dev_step *h)
{
    for (uint32_t i = 0; i < h->n_sample; i++)
        if (h->sample[i].n_top) return true;
    return false;
}

size_t cuda_back_bytes(const struct cuda_back *k, const struct dev_step *h)
{
    if (h->n_lp && h->lp_top) return k->end;
    if (wants_top(h)) return k->lp_top_id;
    return h->n_logit ? k->top_id : 0;
}

void cuda_back_read(const struct cuda_back *k, const char *from, const struct dev_step *h)
{
    const struct dev_out *o = &h->out;
    size_t                n = h->n_sample * sizeof(uint32_t), m = h->n_lp * sizeof(uint32_t);
    if (n) {
        memcpy(o->id, from + k->id, n);
        memcpy(o->rank, from + k->rank, n);
        memcpy(o->logprob, from + k->logprob, n);
    }
    if (m) {
        memcpy(o->lp, from + k->lp, m);
        memcpy(o->lp_rank, from + k->lp_rank, m);
    }
    if (n && wants_top(h)) {
        memcpy(o->top_id, from + k->top_id, n * OP_SAMPLE_TOP_MAX);
        memcpy(o->top_logprob, from + k->top_logprob, n * OP_SAMPLE_TOP_MAX);
    }
    if (m && h->lp_top) {
        memcpy(o->lp_top_id, from + k->lp_top_id, m * OP_SAMPLE_TOP_MAX);
        memcpy(o->lp_top, from + k->lp_top, m * OP_SAMPLE_TOP_MAX);
    }
}

/* ---------------------------------------------------------------- as the device reads it */

void cuda_step_on(const struct dev_step *h, const struct cuda_shape *sh, const struct cuda_place *at, const struct cuda_back *k, char *in,
                  char *out, struct dev_step *on, struct cuda_attn_plan *plan)
{
    const uint32_t *pool = words(in, at->pool);
    *on = (struct dev_step){
        .b = { sh->rows, sh->seqs, words(in, at->id), words(in, at->pos), words(in, at->row_seq), words(in, at->row_start),
               words(in, at->page_start), pool },
        .n_logit = sh->logits,
        .n_sample = sh->samples,
        .n_lp = sh->lps,
        .lp_top = h->lp_top,
        .logit_row = words(in, at->logit_row),
        .sample = (const struct op_sample_row *)(const void *)(in + at->sample),
        .hist = pool, /* the starts count from there: how long the lists are is nowhere baked in */
        .ban = pool,
        .allow = pool,
        .bias = (const struct op_bias *)(const void *)pool,
        .lp_id = words(in, at->lp_id),
        .out = { .id = words(out, k->id),
                 .rank = words(out, k->rank),
                 .logprob = (float *)(void *)(out + k->logprob),
                 .top_id = words(out, k->top_id),
                 .top_logprob = (float *)(void *)(out + k->top_logprob),
                 .lp = (float *)(void *)(out + k->lp),
                 .lp_rank = words(out, k->lp_rank),
                 .lp_top_id = words(out, k->lp_top_id),
                 .lp_top = (float *)(void *)(out + k->lp_top) },
    };
    plan->tile_seq = words(in, at->tile_seq), plan->tile_row = words(in, at->tile_row);
    plan->item_seq = words(in, at->item_seq), plan->item_chunk = words(in, at->item_chunk);
    plan->seq_item = words(in, at->seq_item), plan->chunk = words(in, at->chunk);
}
