/* bind_stack: the tensors that hold a matrix of every expert of a layer: their types and shapes. What is in them:
 * read_stack.c. */
#include "engine/model/bind.h"
#include "engine/model/mxfp4.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_type(const struct st_tensor *t, enum stack_form form)
{
    enum dtype d = bind_dtype(t->dtype);
    if (form == STACK_COLUMNS) return d == DT_F32 || d == DT_BF16 || d == DT_F16;
    return !strcmp(t->dtype_text, "U8");
}

enum status bind_stack_check(const struct model_spec *s, const struct name_stack *stack, uint32_t layer,
                             const struct st_tensor *t, char *why, size_t why_bytes)
{
    uint64_t    shape[2];
    uint32_t    rank;
    const char *keys;
    char        have[128], want[128];
    bind_want(s, stack->slot, layer, shape, &rank, &keys);
    uint64_t         n = shape[0] * stack->n_slot, k = shape[1];
    struct st_tensor columns = { .rank = 3, .shape = { s->n_expert, k, n } },
                     blocks = { .rank = 4, .shape = { s->n_expert, n, k / MXFP4_BLOCK, MXFP4_BLOCK / 2 } },
                     scales = { .rank = 3, .shape = { s->n_expert, n, k / MXFP4_BLOCK } };
    const struct st_tensor *wish[] = { [STACK_COLUMNS] = &columns, [STACK_BLOCKS] = &blocks, [STACK_SCALES] = &scales };
    const struct st_tensor *w = wish[stack->form];
    if (!is_type(t, stack->form)) {
        snprintf(why, why_bytes, "has dtype %s, supported %s", t->dtype_text,
                 stack->form == STACK_COLUMNS ? "are BF16, F16 and F32" : "is U8");
        return ST_CONFIG;
    }
    if (stack->form != STACK_COLUMNS && k % MXFP4_BLOCK) {
        snprintf(why, why_bytes, "is of matrices of %" PRIu64 " inputs, which are no whole number of blocks of %d", k,
                 MXFP4_BLOCK);
        return ST_CONFIG;
    }
    if (t->rank == w->rank && !memcmp(t->shape, w->shape, w->rank * sizeof *w->shape)) return ST_OK;
    snprintf(why, why_bytes, "has shape %s, config.json makes it %s (num_experts, %s)",
             st_shape_text(t, have, sizeof have), st_shape_text(w, want, sizeof want), keys);
    return ST_CONFIG;
}
