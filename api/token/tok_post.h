/* tok_post: the post-processor: the ids to put before and after the ids of a text, and around those of two.   Thread: const after load. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_vocab.h"

enum { POST_IDS_MAX = 64 };
struct tok_post {
    uint32_t before[POST_IDS_MAX], after[POST_IDS_MAX];
    uint32_t n_before, n_after;
    uint32_t pair[3][POST_IDS_MAX], n_pair[3]; /* of two texts: before both, between them, behind them */
    uint32_t
         n_pair_first; /* ids between two texts whose type is that of the first; the others have that of the second */
    bool pairs;        /* else the component has another form for two texts */
};
/* Two texts are two texts one behind the other, each with what is before and after it. */
void tok_post_repeat(struct tok_post *x);
/* Reads the "post_processor"; component NULL or null: no ids are added. ST_CONFIG, and e has the reason. There is
 * nothing to free. */
enum status tok_post_load(struct tok_post *x, const json_t *component, const struct tok_strs *text,
                          const struct tok_err *e);
