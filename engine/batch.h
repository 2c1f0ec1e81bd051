/* batch: this step's sequences flattened into arrays that the device reads, and what came back.   Thread: engine, then
 * ranks. All arrays are taken once (batch_init) for the largest step; a step only fills them. kernels/arrays.h lists
 * them. */
#pragma once
#include "base/status.h"
#include "kernels/device.h"
#include "kvcache/device/kv.h"

struct batch_cfg {
    DEV_BOUNDS(DEV_SIZE_MEMBER)
};

struct batch {
    /* in */
    DEV_SIZES(DEV_SIZE_MEMBER)
    DEV_ARRAYS(DEV_ARRAY_MEMBER)
    /* out, host memory, written by rank 0 */
    struct dev_out out;

    struct batch_cfg max; /* bounds of the arrays */
};

enum status batch_init(struct batch *b, const struct batch_cfg *cfg); /* ST_NOMEM: nothing is taken */
/* The most that each size may be within these bounds. */
struct dev_sizes batch_most(const struct batch_cfg *cfg);
struct dev_step  batch_step(const struct batch *b); /* the same as the device's face wants it; points into b */
void             batch_clear(struct batch *b);
void             batch_free(struct batch *b);
/* Appends rows of one sequence: ids[0..n) at positions pos.. of the sequence whose page table is page[0..n_page).
 * Returns the number of its first row. Over the bounds is our bug (CHECK). */
uint32_t batch_add(struct batch *b, const uint32_t *ids, uint32_t n, uint32_t pos, const uint32_t *page,
                   uint32_t n_page);
void     batch_add_copy(struct batch *b, struct kv_copy c);
/* Asks for the logits of a row and returns its zeroed entry in sample[] (all of these before the first
 * batch_add_lp). */
struct op_sample_row *batch_add_sample(struct batch *b, uint32_t row);
/* Row, or entry of hist, whose id is what sample `from` of the step before draws. */
void batch_patch_id(struct batch *b, uint32_t row, uint32_t from);
void batch_patch_hist(struct batch *b, uint32_t at, uint32_t from);
void batch_add_lp(struct batch *b, uint32_t row, uint32_t id, uint32_t n_top);
