/* pack: a step into its slab and its results out of theirs.   See step.h.
 * Every entry of the fixed part is written for every step, padding too: a graph runs over all of them, and what the
 * last step left there would be run again. */
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

struct dev_sizes cuda_step_sizes(const struct dev_step *h, uint32_t pad)
{
    struct dev_sizes n = { 0 };
#define SIZE(name, most, padded) n.name = pad && (padded) ? pad : h->b.name;
    DEV_BATCH_SIZES(SIZE)
#undef SIZE
#define SIZE(name, most, padded) n.name = pad && (padded) ? pad : h->name;
    DEV_STEP_SIZES(SIZE)
#undef SIZE
    return n;
}

struct dev_sizes cuda_step_most(const struct dev_limits *lim)
{
    const struct dev_limits *m = lim; /* as the list calls it */
#define MOST(name, most, padded) .name = (most),
    return (struct dev_sizes){ DEV_SIZES(MOST) };
#undef MOST
}

static bool is_fixed(enum dev_pack pack) { return pack != DEV_PACK_NOT && pack != DEV_PACK_POOL; }

struct cuda_place cuda_step_place(const struct cuda_shape *sh)
{
    struct cuda_place p = { 0 };
    size_t            at = 0;
#define PLACE(name, type, size, extra, pack, ...) \
    if (is_fixed(pack)) p.name = take(&at, (size_t)sh->n.size + (extra), sizeof(type));
    DEV_BATCH_ARRAYS(PLACE)
    DEV_STEP_ARRAYS(PLACE)
#undef PLACE
    p.tile_seq = take(&at, sh->tiles, 4);
    p.tile_row = take(&at, sh->tiles, 4);
    p.item_seq = take(&at, sh->items, 4);
    p.item_chunk = take(&at, sh->items, 4);
    p.seq_item = take(&at, (size_t)sh->n.n_seq + 1, 4);
    p.chunk = take(&at, 1, 4);
    p.run = take(&at, sh->runs, sizeof(struct cuda_attn_run));
    p.tree = take(&at, sh->trees ? sh->n.n_row : 0, sizeof(uint64_t));
    p.pool = at;
#define PLACE(name, type, size, extra, pack, ...) \
    if ((pack) == DEV_PACK_POOL) p.name = p.pool;
    DEV_BATCH_ARRAYS(PLACE)
    DEV_STEP_ARRAYS(PLACE)
#undef PLACE
    return p;
}

/* Entries of more than one word begin at a multiple of their size: room for one more. */
size_t cuda_pool_bytes(const struct dev_sizes *n)
{
    size_t bytes = 0;
#define ADD(name, type, size, extra, pack, ...) \
    if ((pack) == DEV_PACK_POOL) bytes += ((size_t)n->size + (sizeof(type) > 4)) * sizeof(type);
    DEV_BATCH_ARRAYS(ADD)
    DEV_STEP_ARRAYS(ADD)
#undef ADD
    return bytes;
}

static uint32_t *words(char *to, size_t at) { return (uint32_t *)(void *)(to + at); }

/* a[0 .. n) from h, a[n .. cap) padding; in entries of `size` bytes, which are words */
static void put(uint32_t *a, const void *h, size_t n, size_t cap, size_t size, enum dev_pack pack)
{
    size_t   k = size / sizeof *a;
    uint32_t fill = pack == DEV_PACK_SKIP ? UINT32_MAX : 0;
    if (n) memcpy(a, h, n * size);
    if (pack == DEV_PACK_LAST) {
        for (size_t i = n * k; i < cap * k; i++) a[i] = a[i - k];
        return;
    }
    for (size_t i = n * k; i < cap * k; i++) a[i] = fill;
}

static void put_patches(struct dev_patch *a, const struct dev_patch *h, uint32_t n, uint32_t cap, uint32_t base)
{
    for (uint32_t i = 0; i < n; i++) a[i] = (struct dev_patch){ h[i].at + base, h[i].from };
    for (uint32_t i = n; i < cap; i++) a[i] = (struct dev_patch){ UINT32_MAX, UINT32_MAX };
}

/* Where the arrays of the pool begin, one behind the other; in words. */
struct pack_pool {
#define BEGIN(name, ...) uint32_t name;
    DEV_BATCH_ARRAYS(BEGIN)
    DEV_STEP_ARRAYS(BEGIN)
#undef BEGIN
    uint32_t end;
};

/* Returns where an array of n entries begins. */
static uint32_t pool_take(struct pack_pool *p, uint32_t n, size_t size)
{
    uint32_t k = (uint32_t)(size / 4), begin = (p->end + k - 1) / k * k;
    p->end = begin + n * k;
    return begin;
}

static struct pack_pool pool_of(const struct dev_step *h)
{
    struct pack_pool p = { 0 };
#define BEGIN(name, type, size, extra, pack, ...) \
    if ((pack) == DEV_PACK_POOL) p.name = pool_take(&p, h->b.size + (extra), sizeof(type));
    DEV_BATCH_ARRAYS(BEGIN)
#undef BEGIN
#define BEGIN(name, type, size, extra, pack, ...) \
    if ((pack) == DEV_PACK_POOL) p.name = pool_take(&p, h->size + (extra), sizeof(type));
    DEV_STEP_ARRAYS(BEGIN)
#undef BEGIN
    return p;
}

/* One array, to its place in the fixed part or in the pool; those with a function of their own are not done here. */
static void put_array(char *slab, size_t place, uint32_t begin, const void *from, size_t n, size_t cap, size_t size,
                      enum dev_pack pack)
{
    switch (pack) {
    case DEV_PACK_ZERO:
    case DEV_PACK_SKIP:
    case DEV_PACK_LAST: put(words(slab, place), from, n, cap, size, pack); break;
    case DEV_PACK_POOL:
        if (n) memcpy(words(slab, place) + begin, from, n * size);
        break;
    case DEV_PACK_NOT:
    case DEV_PACK_OWN: break;
    }
}

static void put_samples(struct op_sample_row *a, const struct dev_step *h, const struct pack_pool *p, uint32_t cap)
{
    for (uint32_t i = 0; i < h->n_sample; i++) {
        a[i] = h->sample[i];
#define SHIFT(name, type, ...) a[i].name##_start += p->name / (uint32_t)(sizeof(type) / 4);
        DEV_LISTS(SHIFT)
#undef SHIFT
    }
    for (uint32_t i = h->n_sample; i < cap; i++)
        a[i] = (struct op_sample_row){ .n_hist = UINT32_MAX }; /* to be skipped */
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
                                 .n_decode_pad = sh->n.n_seq,
                                 .n_item_pad = sh->items,
                                 .run = (struct cuda_attn_run *)(void *)(to + at->run),
                                 .n_run_pad = sh->runs,
                                 .n_part = plan->n_part };
    cuda_attn_fill(split, &h->b, len, &l);
    CHECK(l.n_tile <= sh->tiles);
    plan->n_decode = sh->padded ? sh->n.n_seq : l.n_decode;
    plan->n_item = sh->padded ? sh->items : l.n_item;
    plan->n_tile = l.n_tile;
    plan->n_run = l.n_run;
    plan->n_run_row = l.n_run_row;
    plan->run_most = l.run_most;
    plan->run_spread = l.run_spread;
}

size_t cuda_step_pack(const struct dev_step *h, const struct cuda_shape *sh, const struct cuda_place *at,
                      const struct cuda_attn_split *split, uint32_t *len, char *to, struct cuda_attn_plan *plan)
{
    struct pack_pool p = pool_of(h);
#define PUT(name, type, size, extra, pack, ...)                                                           \
    put_array(to, at->name, p.name, h->b.name, (size_t)h->b.size + (extra), (size_t)sh->n.size + (extra), \
              sizeof(type), pack);
    DEV_BATCH_ARRAYS(PUT)
#undef PUT
#define PUT(name, type, size, extra, pack, ...)                                                                     \
    put_array(to, at->name, p.name, h->name, (size_t)h->size + (extra), (size_t)sh->n.size + (extra), sizeof(type), \
              pack);
    DEV_STEP_ARRAYS(PUT)
#undef PUT
    put_samples((struct op_sample_row *)(void *)(to + at->sample), h, &p, sh->n.n_sample);
    put_patches((struct dev_patch *)(void *)(to + at->patch_id), h->patch_id, h->n_patch_id, sh->n.n_patch_id, 0);
    put_patches((struct dev_patch *)(void *)(to + at->patch_hist), h->patch_hist, h->n_patch_hist, sh->n.n_patch_hist,
                p.hist);
    if (sh->trees) memcpy(to + at->tree, h->b.tree, h->b.n_row * sizeof *h->b.tree);
    if (split) put_plan(h, sh, at, split, len, to, plan);
    return at->pool + (size_t)p.end * 4;
}

/* ---------------------------------------------------------------- results */

struct cuda_back cuda_back_place(const struct dev_sizes *n)
{
    struct cuda_back k;
    size_t           at = 0;
#define PLACE(name, type, size, each, wanted) k.name = take(&at, (size_t)n->size * (each), sizeof(type));
    DEV_RESULTS(PLACE)
#undef PLACE
    k.end = at;
    return k;
}

static bool wants_top(const struct dev_step *h)
{
    for (uint32_t i = 0; i < h->n_sample; i++)
        if (h->sample[i].n_top) return true;
    return false;
}

static bool is_wanted(const struct dev_step *h, enum dev_wanted wanted)
{
    switch (wanted) {
    case DEV_WANTED_ALWAYS: return true;
    case DEV_WANTED_TOP: return wants_top(h);
    case DEV_WANTED_LP_TOP: return h->lp_top > 0;
    }
    return true;
}

/* To the end of the last one that is wanted. */
size_t cuda_back_bytes(const struct cuda_back *k, const struct dev_step *h)
{
    if (h->n_lp && h->lp_top) return k->end;
    if (wants_top(h)) return k->lp_top_id;
    return h->n_logit ? k->top_id : 0;
}

void cuda_back_read(const struct cuda_back *k, const char *from, const struct dev_step *h)
{
#define READ(name, type, size, each, wanted) \
    if (h->size && is_wanted(h, wanted)) memcpy(h->out.name, from + k->name, (size_t)h->size * (each) * sizeof(type));
    DEV_RESULTS(READ)
#undef READ
}

/* ---------------------------------------------------------------- as the device reads it */

void cuda_step_on(const struct dev_step *h, const struct cuda_shape *sh, const struct cuda_place *at,
                  const struct cuda_back *k, char *in, char *out, struct dev_step *on, struct cuda_attn_plan *plan)
{
    /* How long the arrays of the pool are is not said: a graph would keep the length of the step that it was recorded
     * for. */
    *on = (struct dev_step){ .b = { .n_row = sh->n.n_row, .n_seq = sh->n.n_seq },
                             .n_logit = sh->n.n_logit,
                             .n_sample = sh->n.n_sample,
                             .n_lp = sh->n.n_lp,
                             .lp_top = h->lp_top };
#define VIEW(name, type, ...) on->b.name = (const type *)(const void *)(in + at->name);
    DEV_BATCH_ARRAYS(VIEW)
#undef VIEW
#define VIEW(name, type, ...) on->name = (const type *)(const void *)(in + at->name);
    DEV_STEP_ARRAYS(VIEW)
#undef VIEW
#define VIEW(name, type, ...) on->out.name = (type *)(void *)(out + k->name);
    DEV_RESULTS(VIEW)
#undef VIEW
    on->b.tree = sh->trees ? (const uint64_t *)(const void *)(in + at->tree) : NULL;
    plan->tile_seq = words(in, at->tile_seq), plan->tile_row = words(in, at->tile_row);
    plan->item_seq = words(in, at->item_seq);
    plan->item_chunk = words(in, at->item_chunk);
    plan->seq_item = words(in, at->seq_item);
    plan->chunk = words(in, at->chunk);
    plan->run = (const struct cuda_attn_run *)(const void *)(in + at->run);
}
