/* batch: the sequences of one step, flattened into arrays for the device, and the results.   Thread: engine, then
 * ranks. batch_init allocates all arrays once, for the largest step; a step only fills them. kernels/arrays.h lists the
 * arrays. */
#pragma once
#include "base/status.h"
#include "kernels/device.h"
#include "kvcache/device/kv.h"

struct batch_cfg {
    DEV_BOUNDS(DEV_SIZE_MEMBER)
};

struct adapter;
enum { BATCH_ADAPTS_MAX = 64 };
/* A slot that gets another adapter before the step. */
struct batch_adapt {
    struct adapter *adapter; /* kept until the step has ended */
    uint32_t        slot;
};

struct batch {
    /* in */
    DEV_SIZES(DEV_SIZE_MEMBER)
    DEV_ARRAYS(DEV_ARRAY_MEMBER)
    struct batch_adapt adapt[BATCH_ADAPTS_MAX];
    uint32_t           n_adapt;
    /* out, host memory, written by rank 0 */
    struct dev_out out;

    struct batch_cfg max; /* bounds of the arrays */

    /* Masks come late: entries of sample, ban and mask may change until the runner is told to draw; sizes may not. */
    bool late;
};

enum status batch_init(struct batch *b, const struct batch_cfg *cfg); /* ST_NOMEM: nothing stays allocated */
/* The largest value of each size within these bounds. */
struct dev_sizes batch_most(const struct batch_cfg *cfg);
struct dev_step  batch_step(const struct batch *b); /* the view of b that devices take; points into b */
void             batch_clear(struct batch *b);
void             batch_free(struct batch *b);
/* Appends rows of one sequence: ids[0..n) at positions pos.. of the sequence whose page table is page[0..n_page).
 * Returns the number of the first row. Exceeding a bound fails a CHECK. */
uint32_t batch_add(struct batch *b, const uint32_t *ids, uint32_t n, uint32_t pos, const uint32_t *page,
                   uint32_t n_page);
/* The sequence added last has blocks of its own for layers with a window: win[0..n), as page[0..n_page). Those that the
 * window has passed are KV_NONE. */
void batch_window(struct batch *b, const uint32_t *win, uint32_t n);
/* The sequence added last is computed with the adapter in slot `adapter` - 1; 0: with none, as batch_add leaves it. */
void batch_adapter(struct batch *b, uint32_t adapter);
/* Its rows from position `second` on are of the second text of a pair. */
void batch_second(struct batch *b, uint32_t second);
void batch_add_copy(struct batch *b, struct kv_copy c);
/* Asks for the logits of a row and returns its zeroed entry in sample[]. All calls must come before the first
 * batch_add_lp. */
struct op_sample_row *batch_add_sample(struct batch *b, uint32_t row);
/* The id of a row, or an entry of hist, is the id that sample `from` of the previous step draws. */
void batch_patch_id(struct batch *b, uint32_t row, uint32_t from);
void batch_patch_hist(struct batch *b, uint32_t at, uint32_t from);
void batch_add_lp(struct batch *b, uint32_t row, uint32_t id, uint32_t n_top);
