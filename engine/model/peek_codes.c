/* peek_codes: which linear matrices of a quantised checkpoint are codes. The lists of config.json that exclude some
 * (five keys by now, with names, endings, classes and two kinds of patterns) say what the tensors say themselves, by
 * their names and types: the tensors are asked. */
#include "base/log.h"
#include "engine/model/bind.h"
#include "engine/model/codes_order.h"
#include "engine/model/peek.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Slots that lie in one matrix of the device. */
static const uint64_t together[] = { SLOT_BIT(SLOT_Q) | SLOT_BIT(SLOT_K) | SLOT_BIT(SLOT_V),
                                     SLOT_BIT(SLOT_GATE) | SLOT_BIT(SLOT_UP),
                                     SLOT_BIT(SLOT_S_GATE) | SLOT_BIT(SLOT_S_UP),
                                     SLOT_BIT(SLOT_X_GATE) | SLOT_BIT(SLOT_X_UP) };
enum { N_TOGETHER = sizeof together / sizeof *together };
static const uint64_t experts = SLOT_BIT(SLOT_X_GATE) | SLOT_BIT(SLOT_X_UP) | SLOT_BIT(SLOT_X_DOWN);
static const uint64_t own_inputs = SLOT_BIT(SLOT_PLE_PROJ) | SLOT_BIT(SLOT_PLE_GATE) | SLOT_BIT(SLOT_PLE_BACK);

struct peek {
    struct model_spec   *spec;
    const struct st_set *set;
    uint64_t            *plain; /* [n_layer] bit s: a tensor of slot s is no codes */
    struct index_row {
        const struct st_tensor *tensor[SLOT_EXPERT_FIRST]; /* PART_INDEX */
    } * index;                                             /* [n_layer] */
    char  *err;
    size_t err_bytes;
};

static enum status fail(const struct peek *p, const char *key, uint32_t l)
{
    snprintf(p->err, p->err_bytes,
             "checkpoint: %s of layer %u differ: some experts are codes and others are not, all must be alike", key, l);
    return ST_CONFIG;
}

static void see_slot(struct peek *p, const struct st_tensor *t, enum slot slot, uint32_t l, enum part part, bool codes)
{
    if (part == PART_INDEX && slot < SLOT_EXPERT_FIRST && t->dtype == ST_DT_I32) p->index[l].tensor[slot] = t;
    if (part != PART_WEIGHT) return;
    if (codes)
        p->spec->layer_codes[l].codes |= SLOT_BIT(slot);
    else
        p->plain[l] |= SLOT_BIT(slot);
}

/* A tensor of all experts, of floats, FP8 or MXFP4, says so of all its slots. */
static bool see_stack(struct peek *p, const struct st_tensor *t, const char *name)
{
    uint32_t                 l;
    const struct name_stack *stack = names_stack(p->spec->family->names, name, &l);
    bool                     floats = bind_dtype(t->dtype) != DT_COUNT && t->dtype != ST_DT_F8E4M3;
    bool                     codes = t->dtype == ST_DT_F8E4M3 && p->spec->quant.method == QUANT_FP8;
    if (!stack || l >= p->spec->n_layer || (stack->form == STACK_COLUMNS && !floats && !codes)) return false;
    for (uint32_t i = 0; i < stack->n_slot; i++) see_slot(p, t, (enum slot)(stack->slot + i), l, PART_WEIGHT, codes);
    return true;
}

/* What each tensor says of its slots. */
static void see_tensors(struct peek *p)
{
    const struct model_spec *s = p->spec;
    for (uint32_t i = 0; i < p->set->n_tensor; i++) {
        const struct st_tensor *t = &p->set->tensor[i];
        char                    text[512], plain[512];
        const char             *name = s->wrapper ? names_unwrap(t->name, text, sizeof text) : t->name;
        enum part               part;
        uint32_t                l, expert;
        const struct name_row  *row;
        if (see_stack(p, t, name)) continue;
        if (!bind_part_name(s, name, plain, sizeof plain, &part) ||
            !(row = names_row(s->family->names, plain, &l, &expert)))
            continue;
        if (!(bind_code_slots() >> row->slot & 1) || l >= s->n_layer) continue;
        for (enum slot slot = row->slot; slot <= row->slot + row->more; slot++)
            see_slot(p, t, slot, l, part, bind_weight_is_codes(s, t, name, plain));
    }
}

/* A slot without any tensor counts as codes: binding then names the parts that are missing. */
static enum status settle_layer(const struct peek *p, uint32_t l)
{
    struct model_layer_codes *c = &p->spec->layer_codes[l];
    if (c->codes & p->plain[l] & experts) return fail(p, "matrices", l);
    if (spec_k_is_v(p->spec, l) && p->plain[l] & SLOT_BIT(SLOT_K)) p->plain[l] |= SLOT_BIT(SLOT_V);
    if (spec_kv_layer(p->spec, l) != l && p->plain[l] & SLOT_BIT(SLOT_Q))
        p->plain[l] |= SLOT_BIT(SLOT_K) | SLOT_BIT(SLOT_V);
    c->codes |= bind_code_slots() & ~p->plain[l] & (p->spec->n_expert ? ~UINT64_C(0) : ~experts);
    for (int i = 0; i < N_TOGETHER; i++)
        if (c->codes & together[i] && (c->codes & together[i]) != together[i]) c->floats |= together[i];
    return ST_OK;
}

/* ---------------------------------------------------------------- inputs in another order */

/* ST_NOT_FOUND: none. Its bytes are the caller's to free. */
static enum status read_index(const struct peek *p, uint32_t l, enum slot slot, unsigned char **out)
{
    const struct st_tensor *t = p->index[l].tensor[slot];
    if (!t || t->bytes > UINT32_MAX) return ST_NOT_FOUND;
    unsigned char *x = malloc((size_t)t->bytes + 1);
    enum status    st = x ? source_read(&p->set->file[t->file], t->offset, x, (size_t)t->bytes) : ST_NOMEM;
    if (st) {
        snprintf(p->err, p->err_bytes, "%s: cannot read tensor %.120s: %s", p->set->file[t->file].name, t->name,
                 st == ST_NOMEM ? "no memory" : strerror(errno));
        free(x);
        return st;
    }
    *out = x;
    return ST_OK;
}

/* The slots of one matrix: sorted if all have the same order, floats if they have several, or groups of other sizes. */
static enum status settle_order(const struct peek *p, uint32_t l, uint64_t slots)
{
    struct model_layer_codes *c = &p->spec->layer_codes[l];
    unsigned char            *first = NULL, *x = NULL;
    size_t                    first_bytes = 0;
    enum codes_order          order = CODES_PLAIN;
    bool                      same = true;
    enum status               st = ST_OK;
    for (int s = 0; s < SLOT_EXPERT_FIRST && !st; s++) {
        if (!(slots & c->codes & ~c->floats) || !(slots >> s & 1)) continue;
        st = read_index(p, l, (enum slot)s, &x);
        if (st == ST_NOT_FOUND) {
            free(first);
            return ST_OK;
        } /* binding misses it */
        if (st) break;
        size_t           bytes = (size_t)p->index[l].tensor[s]->bytes;
        enum codes_order o = codes_order(x, (uint32_t)(bytes / 4), p->spec->quant.q.group, NULL);
        if (!first) {
            first = x;
            first_bytes = bytes;
            order = o;
            x = NULL;
            continue;
        }
        same = same && o == order && (o == CODES_PLAIN || (bytes == first_bytes && !memcmp(x, first, bytes)));
        free(x);
        x = NULL;
    }
    free(first);
    if (st) return st;
    if (!same || order == CODES_UNEVEN)
        c->floats |= slots;
    else if (order == CODES_SORTED)
        c->sorted |= slots;
    return ST_OK;
}

static enum status settle_orders(const struct peek *p, uint32_t l)
{
    static const uint64_t matrices[] = { SLOT_BIT(SLOT_Q) | SLOT_BIT(SLOT_K) | SLOT_BIT(SLOT_V),
                                         SLOT_BIT(SLOT_O),
                                         SLOT_BIT(SLOT_GATE) | SLOT_BIT(SLOT_UP),
                                         SLOT_BIT(SLOT_DOWN),
                                         SLOT_BIT(SLOT_S_GATE) | SLOT_BIT(SLOT_S_UP),
                                         SLOT_BIT(SLOT_S_DOWN) };
    enum status           st = ST_OK;
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices && !st; i++) st = settle_order(p, l, matrices[i]);
    /* each expert has an order of its own, and what makes the layers' own inputs has nobody that sorts */
    p->spec->layer_codes[l].floats |= p->spec->layer_codes[l].codes & (experts | own_inputs);
    return st;
}

/* ---------------------------------------------------------------- all of it */

static uint32_t n_bits(uint64_t x) { return (uint32_t)__builtin_popcountll(x); }

static void tell(const struct peek *p)
{
    uint32_t floats = 0, sorted = 0, plain = 0;
    for (uint32_t l = 0; l < p->spec->n_layer; l++) {
        const struct model_layer_codes *c = &p->spec->layer_codes[l];
        plain += n_bits(p->plain[l]);
        floats += n_bits(c->floats & c->codes & ~p->plain[l]);
        sorted += n_bits(c->sorted);
    }
    if (plain || sorted)
        LOG_INFO("model: %u kinds of matrices in %u layers are plain; %u have their inputs sorted by group", plain,
                 p->spec->n_layer, sorted);
    if (floats)
        LOG_WARN(
            "model: %u kinds of matrices, codes in the checkpoint, are kept as F32 (more memory, the same numbers): parts of one "
            "matrix differ in kind or order, or experts' inputs are in another order",
            floats);
}

enum status peek_codes(struct model_spec *spec, const struct st_set *set, char *err, size_t err_bytes)
{
    struct peek p = { .spec = spec, .set = set, .err = err, .err_bytes = err_bytes };
    enum status st = ST_OK;
    if (spec->quant.method == QUANT_NONE) return ST_OK;
    spec->layer_codes = calloc(spec->n_layer, sizeof *spec->layer_codes);
    p.plain = calloc(spec->n_layer, sizeof *p.plain);
    p.index = calloc(spec->n_layer, sizeof *p.index);
    if (!spec->layer_codes || !p.plain || !p.index) {
        snprintf(err, err_bytes, "model: no memory for %u layers", spec->n_layer);
        st = ST_NOMEM;
    }
    if (!st) see_tensors(&p);
    for (uint32_t l = 0; l < spec->n_layer && !st; l++) {
        st = settle_layer(&p, l);
        if (!st && spec->quant.indexed) st = settle_orders(&p, l);
    }
    if (!st) tell(&p);
    free(p.plain);
    free(p.index);
    return st;
}
