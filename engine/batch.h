/* batch: this step's sequences flattened into arrays that the device reads, and what came back.   Thread: engine, then ranks.
 * All arrays are taken once (batch_init) for the largest step; a step only fills them. */
#pragma once
#include "base/status.h"
#include "kernels/device.h"
#include "kvcache/device/kv.h"

struct batch {
    /* in */
    struct dev_batch      d; /* d.* point into the arrays below                                       */
    uint32_t             *id, *pos, *row_seq, *row_start, *page_start, *page;
    uint32_t              n_copy; /* block copies before the forward                                        */
    uint32_t             *copy_src, *copy_dst;
    uint32_t              n_logit; /* rows whose logits are needed: first the n_sample sampled ones, then n_prompt_lp */
    uint32_t              n_sample;
    uint32_t             *logit_row;          /* [n_logit] row of the batch                                             */
    struct op_sample_row *sample;             /* [n_sample]                                                             */
    uint32_t             *hist, *ban, *allow; /* for op_sample                                                  */
    struct op_bias       *bias;
    uint32_t              n_hist, n_ban, n_allow, n_bias;
    uint32_t              n_prompt_lp, prompt_top;  /* rows of prompt logprobs and how many tops they want (max over rows) */
    uint32_t             *lp_id;                    /* [n_prompt_lp] the id whose logprob is asked                             */
    uint32_t              n_patch_id, n_patch_hist; /* at most seqs_max each: ids that the step before draws */
    struct dev_patch     *patch_id, *patch_hist;

    /* out, host memory, written by rank 0 */
    struct dev_out out;

    /* bounds of the arrays */
    uint32_t rows_max, seqs_max, pages_max, hist_max, ban_max, allow_max, bias_max;
};

struct batch_cfg {
    uint32_t rows_max, seqs_max, pages_max, hist_max, ban_max, allow_max, bias_max;
};
enum status     batch_init(struct batch *b, const struct batch_cfg *cfg);
struct dev_step batch_step(const struct batch *b); /* the same as the device's face wants it; points into b */
void            batch_clear(struct batch *b);
void            batch_free(struct batch *b);
/* Appends rows of one sequence: ids[0..n) at positions pos.. of the sequence whose page table is page[0..n_page).
 * Returns the number of its first row. Over the bounds is our bug (CHECK). */
uint32_t batch_add(struct batch *b, const uint32_t *ids, uint32_t n, uint32_t pos, const uint32_t *page, uint32_t n_page);
void     batch_add_copy(struct batch *b, struct kv_copy c);
/* Asks for the logits of a row and returns its zeroed entry in sample[] (all of these before the first batch_add_lp). */
struct op_sample_row *batch_add_sample(struct batch *b, uint32_t row);
/* Row, or entry of hist, whose id is what sample `from` of the step before draws. */
void batch_patch_id(struct batch *b, uint32_t row, uint32_t from);
void batch_patch_hist(struct batch *b, uint32_t at, uint32_t from);
void batch_add_lp(struct batch *b, uint32_t row, uint32_t id, uint32_t n_top);
