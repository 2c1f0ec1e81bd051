/* tok_post: the post-processor: the ids to put before and after the ids of a text.   Thread: const after load. */
#pragma once
#include "api/token/tok_err.h"
#include "api/token/tok_vocab.h"

enum { POST_IDS_MAX = 64 };
struct tok_post {
    uint32_t before[POST_IDS_MAX], after[POST_IDS_MAX];
    uint32_t n_before, n_after;
};
/* Reads the "post_processor"; component NULL or null: no ids are added. ST_CONFIG, and e has the reason. There is
 * nothing to free. */
enum status tok_post_load(struct tok_post *x, const json_t *component, const struct tok_strs *text,
                          const struct tok_err *e);
