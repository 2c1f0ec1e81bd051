#include "engine/model/peek.h"
#include "base/log.h"
#include "engine/model/bind.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPARED_BYTES = 1 << 20 };

/* ---------------------------------------------------------------- is the head the embedding? */

static bool is_float(const struct st_tensor *t)
{
    enum dtype d = bind_dtype(t->dtype);
    return d == DT_F32 || d == DT_BF16 || d == DT_F16;
}

static bool same_shape(const struct st_tensor *a, const struct st_tensor *b)
{
    return a->rank == b->rank && !memcmp(a->shape, b->shape, a->rank * sizeof *a->shape);
}

/* Two tensors of one shape, value by value; types may differ. ST_IO: errno says why. */
static enum status same_numbers(const struct st_set *set, const struct st_tensor *a, const struct st_tensor *b,
                                bool *same_out)
{
    enum dtype     ta = bind_dtype(a->dtype), tb = bind_dtype(b->dtype);
    size_t         sa = dtype_bytes(ta), sb = dtype_bytes(tb);
    uint64_t       n = a->bytes / sa, step = COMPARED_BYTES / sizeof(float);
    unsigned char *pa = malloc(COMPARED_BYTES), *pb = malloc(COMPARED_BYTES);
    enum status    st = pa && pb ? ST_OK : ST_NOMEM;
    bool           same = true;
    for (uint64_t at = 0; at < n && same && !st; at += step) {
        size_t m = (size_t)(n - at < step ? n - at : step);
        st = source_read(&set->file[a->file], a->offset + at * sa, pa, m * sa);
        if (!st) st = source_read(&set->file[b->file], b->offset + at * sb, pb, m * sb);
        if (st || (ta == tb && !memcmp(pa, pb, m * sa))) continue;
        for (size_t i = 0; i < m && same; i++) same = bind_float(pa, ta, i) == bind_float(pb, tb, i);
    }
    int e = errno;
    free(pa);
    free(pb);
    errno = e;
    *same_out = same;
    return st;
}

/* transformers ties an embedding and a head that are both in the checkpoint only if they are equal. */
static enum status peek_tied(struct model_spec *spec, const struct st_set *set, char *err, size_t err_bytes)
{
    const struct st_tensor *embed = bind_find(spec, set, SLOT_EMBED), *head = bind_find(spec, set, SLOT_HEAD);
    if (!spec->tied || !embed || !head) return ST_OK;
    if (!is_float(embed) || !is_float(head)) return ST_OK; /* binding refuses such types */
    bool        same = same_shape(embed, head);
    enum status st = same ? same_numbers(set, embed, head, &same) : ST_OK;
    if (st) {
        snprintf(err, err_bytes, "%s: cannot compare %.100s with %.100s: %s", set->file[head->file].name, head->name,
                 embed->name, st == ST_NOMEM ? "no memory" : strerror(errno));
        return st;
    }
    if (same) return ST_OK;
    spec->tied = false;
    LOG_WARN(
        "model: tie_word_embeddings is true, but %.100s has other numbers than %.100s: it is the head, as in transformers",
        head->name, embed->name);
    return ST_OK;
}

/* ---------------------------------------------------------------- all of it */

static void peek_dtype(struct model_spec *spec, const struct st_set *set)
{
    const struct st_tensor *embed = bind_find(spec, set, SLOT_EMBED);
    if (spec->dtype == DT_COUNT && embed) spec->dtype = bind_dtype(embed->dtype);
}

/* Experts are MXFP4 where all tensors of theirs are: floats beside them would have to be rounded. Their biases lie as
 * their matrices do, in a tensor for all or for each. */
static void peek_experts(struct model_spec *spec, const struct st_set *set)
{
    uint32_t n_block = 0, n_other = 0, layer;
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        const struct name_stack *stack = names_stack(spec->family->names, set->tensor[i].name, &layer);
        if (!stack) continue;
        n_block += stack->form == STACK_BLOCKS;
        n_other += stack->form == STACK_COLUMNS;
    }
    spec->mxfp4 = n_block && !n_other;
    spec->own_biases = spec->family->expert_bias && bind_find(spec, set, SLOT_X_GATE_BIAS);
}

enum status peek_spec(struct model_spec *spec, const struct source *src, char *err, size_t err_bytes)
{
    struct st_set *set;
    char           why[256];
    if (src->dummy || st_open(src, &set, why, sizeof why)) return ST_OK;
    peek_dtype(spec, set);
    enum status st = peek_tied(spec, set, err, err_bytes);
    if (!st) st = peek_codes(spec, set, err, err_bytes);
    if (!st) peek_experts(spec, set);
    st_close(set);
    return st;
}
