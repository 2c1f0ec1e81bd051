/* step: where the arrays of a step lie in its slab, and what is written there.   Private to kernels/cuda/. Plain
 * functions of their arguments, any thread: step.c does what needs a device, pack.c what does not. */
#pragma once
#include "kernels/cuda/cuda.h"

/* How many of each the arrays are laid out for: at least what the step has. The rest is written as padding. */
struct cuda_shape {
    struct dev_sizes n;
    uint32_t         tiles, items, runs;
    bool             padded; /* launches go over all of it: a decode step */
    bool             trees;  /* rows have words (dev_batch.tree); never padded */
};
/* The sizes to lay a step out for: its own, or where pad is not 0 those of a bucket of pad rows. */
struct dev_sizes cuda_step_sizes(const struct dev_step *h, uint32_t pad);
/* The most that there may be of each. */
struct dev_sizes cuda_step_most(const struct dev_limits *lim);
/* Bytes from the begin of the slab. Arrays of the pool are found by starts that count from its begin, so all of them
 * lie at `pool`. */
struct cuda_place {
#define PLACE(name, ...) size_t name;
    DEV_BATCH_ARRAYS(PLACE)
    DEV_STEP_ARRAYS(PLACE)
#undef PLACE
    size_t tile_seq, tile_row, item_seq, item_chunk, seq_item, chunk, run, tree;
    size_t pool; /* to here the fixed part: the shape alone decides */
};
struct cuda_place cuda_step_place(const struct cuda_shape *sh);
size_t            cuda_pool_bytes(const struct dev_sizes *n); /* enough for a pool of so many */
/* Packs h into the slab `to`, at most to the sum of its limits. Plans attention (split NULL: there is none), with
 * counts, not yet addresses, in *plan. len: scratch [n_seq], or [sh->runs] if that is more. Returns the bytes that the device must get. */
size_t cuda_step_pack(const struct dev_step *h, const struct cuda_shape *sh, const struct cuda_place *at,
                      const struct cuda_attn_split *split, uint32_t *len, char *to, struct cuda_attn_plan *plan);

/* Results. Bytes from the begin of the slab; ids lie at 0. */
struct cuda_back {
#define PLACE(name, ...) size_t name;
    DEV_RESULTS(PLACE)
#undef PLACE
    size_t end;
};
struct cuda_back cuda_back_place(const struct dev_sizes *n);
size_t cuda_back_bytes(const struct cuda_back *k, const struct dev_step *h); /* how much of it anybody wants */
void   cuda_back_read(const struct cuda_back *k, const char *from, const struct dev_step *h);

/* The step as the device reads it: device slabs in and out at the places above. Completes the plan with addresses. */
void cuda_step_on(const struct dev_step *h, const struct cuda_shape *sh, const struct cuda_place *at,
                  const struct cuda_back *k, char *in, char *out, struct dev_step *on, struct cuda_attn_plan *plan);
