/* sample: what a sequence asks of op_sample for its next token.   Thread: engine.
 * sample_fits while the step is planned, sample_add when the batch is filled. */
#pragma once
#include "engine/batch.h"
#include "engine/seq.h"

/* Entries of the batch's sampling arrays; the sums over a step must fit, a sequence that does not is left to a later step. */
struct sample_need {
    uint32_t hist, ban, allow, bias;
};

struct sample_need sample_need(const struct seq *s, uint32_t n_eos); /* an upper bound, in O(1) */
bool               sample_fits(const struct batch *b, struct sample_need used, struct sample_need n);
static inline void sample_use(struct sample_need *used, struct sample_need n)
{
    used->hist += n.hist, used->ban += n.ban, used->allow += n.allow, used->bias += n.bias;
}
static inline void sample_unuse(struct sample_need *used, struct sample_need n)
{
    used->hist -= n.hist, used->ban -= n.ban, used->allow -= n.allow, used->bias -= n.bias;
}
/* What is over these bounds alone could never run: eng_submit refuses it. */
bool sample_possible(const struct batch *b, const struct eng_request *r, uint32_t n_eos);
/* Does what is asked of the next token depend on the one before in a way that only the host can tell? */
bool sample_on_host(const struct eng_sampling *p);
/* The row's entry for sequence s, whose history is ids[0..seq_n_ahead(s)); an id in flight is left to a patch. */
void sample_add(struct batch *b, const struct seq *s, const uint32_t *ids, uint32_t row, const struct seq_limits *lim, uint32_t vocab);
