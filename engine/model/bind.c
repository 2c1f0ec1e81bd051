#include "engine/model/bind.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bind_row {
    uint64_t                 key;
    const struct st_tensor  *tensor;
    uint32_t                 first_row; /* of the slot in the tensor */
    const struct name_stack *stack;     /* that the tensor is; NULL: none */
};
enum { SLOTS_OF_TENSOR_MAX = 3, NAMES_SHOWN = 4, MISSING_COUNTED_MAX = 1000, BIAS_BYTES_MAX = 64 << 20 };

static_assert(SLOT_COUNT <= 64 && PART_COUNT <= 8, "both go into the low 9 bits of a key");
static uint64_t bind_key(enum slot slot, uint32_t layer, uint32_t expert, enum part part)
{
    return (uint64_t)layer << 41 | (uint64_t)expert << 9 | (uint64_t)part << 6 | (uint64_t)slot;
}

static int bind_row_cmp(const void *a, const void *b)
{
    uint64_t x = ((const struct bind_row *)a)->key, y = ((const struct bind_row *)b)->key;
    return x < y ? -1 : x > y;
}

static const struct bind_row *bind_row_of(const struct bind *b, uint64_t key)
{
    struct bind_row wanted = { .key = key };
    return b->n_row ? bsearch(&wanted, b->row, b->n_row, sizeof *b->row, bind_row_cmp) : NULL;
}

const struct st_tensor *bind_get_part(const struct bind *b, enum slot slot, uint32_t layer, uint32_t expert,
                                      enum part part)
{
    const struct bind_row *r = bind_row_of(b, bind_key(slot, layer, expert, part));
    return r ? r->tensor : NULL;
}

uint32_t bind_first_row(const struct bind *b, enum slot slot, uint32_t layer, uint32_t expert)
{
    const struct bind_row *r = bind_row_of(b, bind_key(slot, layer, expert, PART_WEIGHT));
    return r ? r->first_row : 0;
}

const struct name_stack *bind_stacked(const struct bind *b, enum slot slot, uint32_t layer, uint32_t expert)
{
    const struct bind_row *r = bind_row_of(b, bind_key(slot, layer, expert, PART_WEIGHT));
    return r ? r->stack : NULL;
}

/* "a, b, c and 12 more" */
struct name_list {
    char     text[512];
    size_t   n;
    uint32_t count;
};
static void name_list_add(struct name_list *l, const char *name)
{
    if (l->count++ < NAMES_SHOWN && l->n < sizeof l->text)
        l->n += (size_t)snprintf(l->text + l->n, sizeof l->text - l->n, "%s%.100s", l->n ? ", " : "", name);
}
static const char *name_list_end(struct name_list *l)
{
    if (l->count > NAMES_SHOWN && l->n < sizeof l->text)
        snprintf(l->text + l->n, sizeof l->text - l->n, " and %s%u more",
                 l->count >= MISSING_COUNTED_MAX ? "at least " : "", l->count - NAMES_SHOWN);
    return l->text;
}

const struct st_tensor *bind_find(const struct model_spec *spec, const struct st_set *set, enum slot wanted)
{
    char plain[512];
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        const char *name = spec->wrapper ? names_unwrap(set->tensor[i].name, plain, sizeof plain) : set->tensor[i].name;
        enum slot   slot;
        uint32_t    layer, expert;
        if (names_match(spec->family->names, name, &slot, &layer, &expert) && slot == wanted) return &set->tensor[i];
    }
    return NULL;
}

static bool is_zeros(const struct st_set *set, const struct st_tensor *t)
{
    enum dtype     type = bind_dtype(t->dtype);
    unsigned char *x =
        type == DT_COUNT || type == DT_F8E4M3 || t->bytes > BIAS_BYTES_MAX ? NULL : malloc((size_t)t->bytes + 1);
    bool zeros = x && source_read(&set->file[t->file], t->offset, x, (size_t)t->bytes) == ST_OK;
    for (size_t i = 0; zeros && i < t->bytes / dtype_bytes(type); i++) zeros = bind_float(x, type, i) == 0;
    free(x);
    return zeros;
}

/* Is it a bias of zeros, where the model adds none? Tools that quantise write one for each matrix. */
static bool bind_no_bias(const struct model_spec *spec, const struct st_set *set, const struct st_tensor *t,
                         const char *name)
{
    static const char bias[] = ".bias";
    size_t            n = strlen(name), k = sizeof bias - 1;
    char              weight[512];
    enum slot         slot;
    uint32_t          layer, expert;
    if (n < k || strcmp(name + n - k, bias) != 0) return false;
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - k), name);
    return names_match(spec->family->names, weight, &slot, &layer, &expert) && bind_code_slots() >> slot & 1 &&
           is_zeros(set, t);
}

/* The shape of a tensor that holds `more` slots after the first, from the shape of the first. */
static void bind_stack(const struct model_spec *spec, enum slot slot, uint32_t layer, uint32_t more, uint64_t shape[2])
{
    for (uint32_t i = 1; i <= more; i++) {
        uint64_t    one[2];
        uint32_t    rank;
        const char *keys;
        bind_want(spec, (enum slot)(slot + i), layer, one, &rank, &keys);
        shape[0] += one[0];
    }
}

/* A row for each slot of the tensor, `more` of them after the first, of one expert. at: tensor, and where they
 * begin. */
static void bind_add(const struct model_spec *spec, struct bind *b, struct bind_row at, enum slot slot, uint32_t layer,
                     uint32_t expert, enum part part, uint32_t more)
{
    bool backwards = slot == SLOT_GATE && spec->family->names->up_first;
    for (uint32_t i = 0; i <= more; i++) {
        uint64_t    shape[2];
        uint32_t    rank;
        const char *keys;
        enum slot   one = (enum slot)(slot + (backwards ? more - i : i));
        bind_want(spec, one, layer, shape, &rank, &keys);
        at.key = bind_key(one, layer, expert, part);
        b->row[b->n_row++] = at;
        at.first_row += (uint32_t)shape[0];
    }
}

/* Is it of a layer that predicts further tokens? They stand behind the others, and have tensors of their own names. */
static bool bind_extra(const struct model_spec *spec, const char *name)
{
    unsigned layer;
    return spec->n_extra_layer && sscanf(name, "model.layers.%6u.", &layer) == 1 && layer >= spec->n_layer &&
           layer - spec->n_layer < spec->n_extra_layer;
}

/* Is it of keys and values of a layer that reads those of another? Files may have what nothing uses. */
static bool bind_spare(const struct model_spec *spec, enum slot slot, uint32_t layer)
{
    bool kv = slot == SLOT_K || slot == SLOT_V || slot == SLOT_K_BIAS || slot == SLOT_V_BIAS || slot == SLOT_K_NORM;
    return kv && layer < spec->n_layer && spec_kv_layer(spec, layer) != layer;
}

/* A vector may be a matrix of one row. n_expert: the tensor holds the matrices of so many experts; 0: of one. */
static bool bind_shape_is(const struct st_tensor *t, uint32_t rank, const uint64_t shape[2], uint32_t n_expert)
{
    if (n_expert) return t->rank == 3 && t->shape[0] == n_expert && t->shape[1] == shape[0] && t->shape[2] == shape[1];
    if (rank == 1 && t->rank == 2 && t->shape[0] == 1) return t->shape[1] == shape[0];
    return t->rank == rank && t->shape[0] == shape[0] && (rank == 1 || t->shape[1] == shape[1]);
}

/* A row for each matrix of a stack. part: of the codes of one. */
static enum status bind_add_stack(const struct model_spec *spec, struct bind *b, const struct st_tensor *t,
                                  const struct name_stack *stack, uint32_t layer, enum part part, char *err,
                                  size_t err_bytes)
{
    const char *file = b->set->file[t->file].name;
    char        why[256];
    if (stack->form == STACK_SCALES) part = PART_SCALE;
    if (!bind_stack_check(spec, stack, layer, part, t, why, sizeof why)) {
        for (uint32_t e = 0; e < spec->n_expert; e++)
            for (uint32_t i = 0; i < stack->n_slot; i++)
                b->row[b->n_row++] =
                    (struct bind_row){ bind_key((enum slot)(stack->slot + i), layer, e, part), t, 0, stack };
        return ST_OK;
    }
    snprintf(err, err_bytes, "%s: tensor %.120s %.200s", file, t->name, why);
    return ST_CONFIG;
}

/* Rows that the tensors may need at most. */
static size_t bind_rows_max(const struct model_spec *spec, const struct st_set *set)
{
    size_t    n = (size_t)set->n_tensor * SLOTS_OF_TENSOR_MAX + 1;
    uint32_t  layer, expert;
    char      plain[512], whole[512];
    enum part part;
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        const char *name = spec->wrapper ? names_unwrap(set->tensor[i].name, plain, sizeof plain) : set->tensor[i].name;
        if (spec->quant.method && bind_part_name(spec, name, whole, sizeof whole, &part)) name = whole;
        const struct name_stack *stack = names_stack(spec->family->names, name, &layer);
        const struct name_row   *row = names_row(spec->family->names, name, &layer, &expert);
        if (stack || (row && name_row_all_experts(row))) n += (size_t)spec->n_expert * SLOTS_OF_TENSOR_MAX;
    }
    return n;
}

/* Has a tensor whose name means both the shape of rows [experts, rows, columns]? */
static bool bind_is_rows(const struct model_spec *spec, const struct st_tensor *t, const char *name)
{
    uint64_t               shape[2] = { 0, 0 };
    uint32_t               layer, expert, rank;
    const char            *keys;
    const struct name_row *row = names_row(spec->family->names, name, &layer, &expert);
    if (!t || !row || !bind_want(spec, row->slot, layer, shape, &rank, &keys)) return false;
    bind_stack(spec, row->slot, layer, row->more, shape);
    return bind_shape_is(t, rank, shape, spec->n_expert);
}

/* The tensor of codes that a part belongs to. whole: what bind_part_name makes of its name. NULL: none */
static const struct st_tensor *bind_weight(const struct st_set *set, const struct st_tensor *part, const char *name,
                                           const char *whole)
{
    size_t n = strlen(part->name) - (strlen(name) > strlen(whole) ? strlen(name) - strlen(whole) : 0);
    for (uint32_t i = 0; i < set->n_tensor; i++)
        if (strlen(set->tensor[i].name) == n && !memcmp(set->tensor[i].name, part->name, n)) return &set->tensor[i];
    return NULL;
}

/* Each tensor to its slot; type and shape of those that are wanted. */
static enum status bind_match(const struct model_spec *spec, struct bind *b, char *err, size_t err_bytes)
{
    struct name_list unknown = { .n = 0 };
    bool             head_serves = spec->tied && !bind_find(spec, b->set, SLOT_EMBED);
    for (uint32_t i = 0; i < b->set->n_tensor; i++) {
        const struct st_tensor *t = &b->set->tensor[i];
        const char             *file = b->set->file[t->file].name, *keys = "";
        char                    plain[512], whole[512], have[128], why[256];
        const char             *name = spec->wrapper ? names_unwrap(t->name, plain, sizeof plain) : t->name;
        enum slot               slot;
        enum part               part = PART_WEIGHT;
        uint32_t                layer, expert, rank = 0;
        uint64_t                shape[2] = { 0, 0 };
        snprintf(whole, sizeof whole, "%s", name);
        if (spec->quant.method && !bind_part_name(spec, name, whole, sizeof whole, &part)) continue;
        const struct name_stack *stack = names_stack(spec->family->names, whole, &layer);
        if (stack && layer < spec->n_layer && spec_layer_moe(spec, layer) &&
            !bind_is_rows(spec, part == PART_WEIGHT ? t : bind_weight(b->set, t, name, whole), whole)) {
            enum status st = bind_add_stack(spec, b, t, stack, layer, part, err, err_bytes);
            if (st) return st;
            continue;
        }
        const struct name_row *row = names_row(spec->family->names, whole, &layer, &expert);
        if (!row) {
            if (!names_ignorable(spec->family->names, t->name, spec->wrapper) && !bind_extra(spec, name) &&
                !bind_no_bias(spec, b->set, t, name))
                name_list_add(&unknown, t->name);
            continue;
        }
        slot = row->slot;
        if (slot == SLOT_HEAD && head_serves) slot = SLOT_EMBED; /* tied weights may have either name */
        if (layer >= spec->n_layer && layer - spec->n_layer < spec->n_extra_layer) continue;
        if (bind_spare(spec, slot, layer)) continue;
        bool in_range = layer < spec->n_layer && (slot < SLOT_EXPERT_FIRST || expert < spec->n_expert);
        if (!in_range || !bind_want(spec, slot, layer, shape, &rank, &keys)) {
            /* a tied head may lie there a second time */
            if (slot != SLOT_HEAD && !names_ignorable(spec->family->names, name, spec->wrapper) &&
                !bind_no_bias(spec, b->set, t, name))
                name_list_add(&unknown, t->name);
            continue;
        }
        uint32_t more = row->more, all = name_row_all_experts(row) ? spec->n_expert : 0;
        bind_stack(spec, slot, layer, more, shape);
        if (part != PART_WEIGHT || bind_is_codes(spec, slot, layer)) {
            enum part   of = bind_is_codes(spec, slot, layer) ? part : PART_COUNT;
            enum status st = all ? bind_all_check(spec, of, t, shape, more, why, sizeof why)
                                 : bind_part_check(spec, of, t, shape[0], shape[1], why, sizeof why);
            if (st) {
                snprintf(err, err_bytes, "%s: tensor %.120s %.200s", file, t->name, why);
                return ST_CONFIG;
            }
        } else if (bind_dtype(t->dtype) == DT_COUNT || t->dtype == ST_DT_F8E4M3) {
            snprintf(err, err_bytes, "%s: tensor %.120s has dtype %s, supported are BF16, F16 and F32%s", file, t->name,
                     t->dtype_text, spec->quant.method ? ", and the codes that quantization_config names" : "");
            return ST_CONFIG;
        } else if (!bind_shape_is(t, rank, shape, all)) {
            struct st_tensor wish = { .rank = rank, .shape = { shape[0], shape[1] } };
            if (all) wish = (struct st_tensor){ .rank = 3, .shape = { all, shape[0], shape[1] } };
            char want[64];
            snprintf(err, err_bytes, "%s: tensor %.120s has shape %s, config.json makes it %s (%s)", file, t->name,
                     st_shape_text(t, have, sizeof have), st_shape_text(&wish, want, sizeof want), keys);
            return ST_CONFIG;
        }
        if (!all) bind_add(spec, b, (struct bind_row){ .tensor = t }, slot, layer, expert, part, more);
        for (uint32_t e = 0; e < all; e++) {
            struct bind_row at = { .tensor = t, .first_row = (uint32_t)(e * shape[0]) };
            bind_add(spec, b, at, slot, layer, e, part, more);
        }
    }
    if (unknown.count) {
        snprintf(err, err_bytes, "%s: %u tensors that %s does not have: %s",
                 b->set->n_file == 1 ? b->set->file[0].name : "checkpoint", unknown.count, spec->family->arch,
                 name_list_end(&unknown));
        return ST_CONFIG;
    }
    return ST_OK;
}

/* Do experts have tensors of their own for a slot? */
static bool bind_own(const struct model_spec *spec, const struct bind *b, enum slot slot, uint32_t l)
{
    for (uint32_t e = 0; e < spec->n_expert; e++) {
        const struct st_tensor *t = bind_get_part(b, slot, l, e, PART_WEIGHT);
        if (t) return t->rank <= 2;
    }
    return false;
}

/* Is a slot in the same tensor as the one before it, which misses that part too and has said so? */
static bool bind_said(const struct model_spec *spec, const struct bind *b, enum slot slot, uint32_t l, uint32_t e,
                      bool own, enum part part, const char *name)
{
    char before[128];
    if (slot == 0 || bind_get_part(b, (enum slot)(slot - 1), l, e, part)) return false;
    return names_of(spec->family->names, (enum slot)(slot - 1), l, e, own, before, sizeof before) &&
           !strcmp(before, name);
}

static void bind_miss(const struct model_spec *spec, const struct bind *b, enum slot slot, uint32_t l, uint32_t e,
                      struct name_list *missing)
{
    uint64_t    shape[2];
    uint32_t    rank;
    const char *keys;
    char        name[128], text[160], of_first[128];
    if (!bind_want(spec, slot, l, shape, &rank, &keys)) return;
    const struct name_stack *stack = bind_stacked(b, slot, l, e);
    if (!e && stack && stack->form == STACK_BLOCKS && slot == stack->slot &&
        !bind_get_part(b, slot, l, e, PART_SCALE)) {
        snprintf(text, sizeof text, "%s's scales", bind_get_part(b, slot, l, e, PART_WEIGHT)->name);
        name_list_add(missing, text);
    }
    for (int part = 0; part < PART_COUNT; part++) {
        if (bind_get_part(b, slot, l, e, (enum part)part)) continue;
        if (part && !(bind_is_codes(spec, slot, l) && bind_part_needed(spec, (enum part)part))) continue;
        bool        own = slot >= SLOT_EXPERT_FIRST && bind_own(spec, b, slot, l);
        const char *plain = names_of(spec->family->names, slot, l, e, own, name, sizeof name);
        if (e && plain && !strcmp(plain, names_of(spec->family->names, slot, l, 0, own, of_first, sizeof of_first)))
            continue; /* one tensor for all experts, which the first has said */
        if (plain && bind_said(spec, b, slot, l, e, own, (enum part)part, plain)) continue;
        if (!plain) plain = "(no name)";
        name_list_add(missing, bind_is_codes(spec, slot, l)
                                   ? bind_part_text(spec, (enum part)part, plain, text, sizeof text)
                                   : plain);
    }
}

static enum status bind_complete(const struct model_spec *spec, const struct bind *b, char *err, size_t err_bytes)
{
    struct name_list missing = { .n = 0 };
    for (int s = 0; s < SLOT_LAYER_FIRST; s++) bind_miss(spec, b, (enum slot)s, 0, 0, &missing);
    for (uint32_t l = 0; l < spec->n_layer && missing.count < MISSING_COUNTED_MAX; l++) {
        for (int s = SLOT_LAYER_FIRST; s < SLOT_EXPERT_FIRST; s++) bind_miss(spec, b, (enum slot)s, l, 0, &missing);
        for (uint32_t e = 0; e < spec->n_expert && missing.count < MISSING_COUNTED_MAX; e++)
            for (int s = SLOT_EXPERT_FIRST; s < SLOT_COUNT; s++) bind_miss(spec, b, (enum slot)s, l, e, &missing);
    }
    if (!missing.count) return ST_OK;
    bool head = !bind_get_part(b, SLOT_HEAD, 0, 0, PART_WEIGHT) && !spec->tied;
    snprintf(err, err_bytes, "%s: missing tensors: %s%s", b->set->n_file == 1 ? b->set->file[0].name : "checkpoint",
             name_list_end(&missing), head ? " (a model without lm_head.weight needs tie_word_embeddings true)" : "");
    return ST_CONFIG;
}

enum status bind_open(const struct model_spec *spec, const struct source *src, struct bind *b_out, char *err,
                      size_t err_bytes)
{
    struct bind b = { .n_row = 0 };
    if (src->dummy) { /* nothing is there, and nothing is missing */
        *b_out = b;
        return ST_OK;
    }
    enum status st = st_open(src, &b.set, err, err_bytes);
    if (st) return st;
    if (!(b.row = calloc(bind_rows_max(spec, b.set), sizeof *b.row))) {
        snprintf(err, err_bytes, "model: no memory for %u tensors", b.set->n_tensor);
        st = ST_NOMEM;
    } else if (!(st = bind_match(spec, &b, err, err_bytes))) {
        qsort(b.row, b.n_row, sizeof *b.row, bind_row_cmp);
        for (uint32_t i = 1; i < b.n_row && !st; i++)
            if (b.row[i].key == b.row[i - 1].key) {
                snprintf(err, err_bytes, "checkpoint: %.120s and %.120s are the same weight", b.row[i - 1].tensor->name,
                         b.row[i].tensor->name);
                st = ST_CONFIG;
            }
        if (!st) st = bind_complete(spec, &b, err, err_bytes);
    }
    if (st)
        bind_close(&b);
    else
        *b_out = b;
    return st;
}

void bind_close(struct bind *b)
{
    if (b->set) st_close(b->set);
    free(b->row);
    *b = (struct bind){ .n_row = 0 };
}

static enum status ranks_fail(const char *key, uint32_t v, uint32_t n_rank, char *err, size_t err_bytes)
{
    snprintf(err, err_bytes, "config.json: %s is %u, which does not divide among %u tensor-parallel ranks", key, v,
             n_rank);
    return ST_CONFIG;
}

/* Whole experts for each rank, of a model that has some. */
static enum status experts_check(const struct model_spec *spec, bool moe, uint32_t n_rank, char *err, size_t err_bytes)
{
    if (moe && spec->n_expert % n_rank == 0) return ST_OK;
    if (moe)
        snprintf(err, err_bytes,
                 "config.json: %s is %u, and --enable-expert-parallel gives each of %u tensor-parallel ranks as many "
                 "whole experts: allowed are numbers of ranks that divide it",
                 spec->n_expert_key, spec->n_expert, n_rank);
    else
        snprintf(err, err_bytes,
                 "--enable-expert-parallel: config.json makes a model without experts (%s), allowed are models that "
                 "have some; leave it out",
                 spec->family->arch);
    return ST_CONFIG;
}

enum status model_check(const struct model_spec *spec, const struct source *src, uint32_t n_rank, bool expert_parallel,
                        char *err, size_t err_bytes)
{
    if (spec->n_head % n_rank) return ranks_fail("num_attention_heads", spec->n_head, n_rank, err, err_bytes);
    if (spec->n_kv_head % n_rank && n_rank % spec->n_kv_head) /* fewer KV heads than ranks: each is on several */
        return ranks_fail("num_key_value_heads", spec->n_kv_head, n_rank, err, err_bytes);
    uint32_t full = spec->full_n_kv_head; /* 0: as the others */
    if (full && full % n_rank && n_rank % full)
        return ranks_fail("num_global_key_value_heads", full, n_rank, err, err_bytes);
    bool dense = false, moe = false;
    for (uint32_t l = 0; l < spec->n_layer; l++) spec_layer_moe(spec, l) ? (moe = true) : (dense = true);
    dense = dense || spec->moe_beside;
    if (dense && spec->inter % n_rank) return ranks_fail("intermediate_size", spec->inter, n_rank, err, err_bytes);
    if (expert_parallel && experts_check(spec, moe, n_rank, err, err_bytes)) return ST_CONFIG;
    if (moe && !expert_parallel && spec->moe_inter % n_rank)
        return ranks_fail("moe_intermediate_size", spec->moe_inter, n_rank, err, err_bytes);
    if (moe && spec->shared_inter % n_rank)
        return ranks_fail("the shared expert's size", spec->shared_inter, n_rank, err, err_bytes);
    struct bind b;
    enum status st = bind_open(spec, src, &b, err, err_bytes);
    if (!st) bind_close(&b);
    return st;
}
