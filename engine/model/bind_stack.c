/* bind_stack: the tensors that hold a matrix of every expert of a layer: their types and shapes. What is in them:
 * read_stack.c. */
#include "engine/model/bind.h"
#include "engine/model/mxfp4.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_float(const struct st_tensor *t)
{
    enum dtype d = bind_dtype(t->dtype);
    return d == DT_F32 || d == DT_BF16 || d == DT_F16;
}

static bool is_type(const struct st_tensor *t, enum stack_form form)
{
    return form == STACK_COLUMNS ? is_float(t) : !strcmp(t->dtype_text, "U8");
}

/* ---------------------------------------------------------------- codes of FP8 */

/* One dimension for the experts, and two for each. */
static enum status codes_are(const struct model_spec *s, const struct st_tensor *t, uint64_t a, uint64_t b, char *why,
                             size_t why_bytes)
{
    char             have[128], want[64];
    struct st_tensor wish = { .rank = 3, .shape = { s->n_expert, a, b } };
    if (t->rank == 3 && !memcmp(t->shape, wish.shape, 3 * sizeof *wish.shape)) return ST_OK;
    snprintf(why, why_bytes, "has shape %s, config.json makes it %s", st_shape_text(t, have, sizeof have),
             st_shape_text(&wish, want, sizeof want));
    return ST_CONFIG;
}

/* Codes or scales of matrices of this shape. Without blocks there is a scale for each expert, or one for each of n_scale
 * equal parts of its rows. */
static enum status codes_check(const struct model_spec *s, enum part part, const struct st_tensor *t,
                               const uint64_t shape[2], uint32_t n_scale, char *why, size_t why_bytes)
{
    uint64_t rows = s->quant.block_rows, group = s->quant.q.group;
    if (part == PART_WEIGHT ? t->dtype != ST_DT_F8E4M3 : !is_float(t)) {
        snprintf(why, why_bytes, "has dtype %s, supported %s", t->dtype_text,
                 part == PART_WEIGHT ? "of codes of all experts is F8_E4M3" : "for scales are F32, BF16 and F16");
        return ST_CONFIG;
    }
    if (part == PART_WEIGHT) return codes_are(s, t, shape[0], shape[1], why, why_bytes);
    if (!rows) return codes_are(s, t, t->rank == 3 && t->shape[1] == 1 ? 1 : n_scale, 1, why, why_bytes);
    return codes_are(s, t, (shape[0] + rows - 1) / rows, (shape[1] + group - 1) / group, why, why_bytes);
}

enum status bind_all_check(const struct model_spec *s, enum part part, const struct st_tensor *t,
                           const uint64_t shape[2], uint32_t more, char *why, size_t why_bytes)
{
    if (s->quant.method != QUANT_FP8 || part > PART_SCALE) {
        snprintf(why, why_bytes, "holds codes of all experts, supported are codes of a tensor for each");
        return ST_CONFIG;
    }
    return codes_check(s, part, t, shape, more + 1, why, why_bytes);
}

/* A block of columns is a block of rows turned round, so blocks must be square. */
static enum status columns_check(const struct model_spec *s, enum part part, const struct st_tensor *t,
                                 const uint64_t shape[2], char *why, size_t why_bytes)
{
    if (s->quant.block_rows && s->quant.block_rows != s->quant.q.group) {
        snprintf(why, why_bytes, "has its inputs in rows, supported are square blocks, weight_block_size is [%u, %u]",
                 s->quant.block_rows, s->quant.q.group);
        return ST_CONFIG;
    }
    return bind_all_check(s, part, t, (const uint64_t[]){ shape[1], shape[0] }, 0, why, why_bytes);
}

/* ---------------------------------------------------------------- all of it */

enum status bind_stack_check(const struct model_spec *s, const struct name_stack *stack, uint32_t layer, enum part part,
                             const struct st_tensor *t, char *why, size_t why_bytes)
{
    uint64_t    shape[2];
    uint32_t    rank;
    const char *keys;
    char        have[128], want[128];
    bind_want(s, stack->slot, layer, shape, &rank, &keys);
    uint64_t n = shape[0] * stack->n_slot, k = shape[1];
    if (bind_is_codes(s, stack->slot, layer))
        return columns_check(s, part, t, (const uint64_t[]){ n, k }, why, why_bytes);
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
