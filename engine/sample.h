/* sample: fills the row of op_sample for a sequence's next token.   Thread: engine.
 * sample_fits while the step is planned, sample_add when the batch is filled. */
#pragma once
#include "engine/batch.h"
#include "engine/seq.h"

/* Numbers of entries in the batch's sampling arrays. Their sums over a step must fit; a sequence that does not fit
 * waits for a later step. */
struct sample_need {
    DEV_LISTS(DEV_SIZE_MEMBER)
};

struct sample_need sample_need(const struct seq *s, uint32_t n_eos); /* an upper bound, in O(1) */
/* True if the arrays of b have room for n beside what is used. sample_use adds n to it, sample_unuse takes it back. */
bool sample_fits(const struct batch *b, struct sample_need used, struct sample_need n);
void sample_use(struct sample_need *used, struct sample_need n);
void sample_unuse(struct sample_need *used, struct sample_need n);
/* False: the request alone exceeds the bounds and could never run, so eng_submit refuses it. */
bool sample_possible(const struct batch *b, const struct eng_request *r, uint32_t n_eos);
/* True if the row of the next token depends on the previous token, so that the host must know that token first. */
bool sample_on_host(const struct eng_sampling *p);
/* Adds the entry of sequence s for `row`. Its history is ids[0..seq_n_ahead(s)). An id that is still in flight is
 * filled in by a patch. Where s is late, the entry has room for what sample_mask writes. */
void sample_add(struct batch *b, const struct seq *s, const uint32_t *ids, uint32_t row, const struct seq_limits *lim,
                uint32_t vocab);
/* The mask of a late sequence is ready: completes its entry k in the batch. */
void sample_mask(struct batch *b, uint32_t k, const struct seq *s, const struct seq_limits *lim, uint32_t vocab);
/* True if the lists of entry k leave no id of the vocabulary: its draw has failed by what the request asks for, and not
 * by its logits. O(vocab / 32 + lists), for draws that have failed. */
bool sample_leaves_none(const struct batch *b, uint32_t k, uint32_t vocab);
