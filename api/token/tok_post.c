#include "api/token/tok_post.h"
#include <stdio.h>
#include <string.h>

enum { NEST_MAX = 8 };

/* Where ids go. */
struct place {
    uint32_t *id, *n;
};

static enum status put(struct place to, int64_t id, const struct tok_strs *text, const char *field,
                       const struct tok_err *e)
{
    size_t n;
    if (id < 0 || id >= TOK_ID_BOUND || !tok_strs_get(text, (uint32_t)id, &n))
        return tok_fail(e, "%s: id %lld is no token", field, (long long)id);
    if (*to.n >= POST_IDS_MAX) return tok_fail(e, "%s: adds more than %d ids", field, POST_IDS_MAX);
    to.id[(*to.n)++] = (uint32_t)id;
    return ST_OK;
}

static struct place single(struct tok_post *x, bool behind)
{
    return behind ? (struct place){ x->after, &x->n_after } : (struct place){ x->before, &x->n_before };
}

static struct place pair(struct tok_post *x, int at) { return (struct place){ x->pair[at], &x->n_pair[at] }; }

/* {"SpecialToken": {"id": name}}: the ids that special_tokens gives for the name */
static enum status put_named(struct place to, const json_t *o, const char *name, const struct tok_strs *text,
                             const char *field, const struct tok_err *e)
{
    const json_t *ids = json_object_get(json_object_get(json_object_get(o, "special_tokens"), name), "ids");
    if (!json_is_array(ids)) return tok_fail(e, "%s.special_tokens: has no ids for \"%.40s\"", field, name);
    enum status st = ST_OK;
    for (size_t i = 0; i < json_array_size(ids) && !st; i++) {
        const json_t *id = json_array_get(ids, i);
        st = put(to, json_is_integer(id) ? json_integer_value(id) : -1, text, field, e);
    }
    return st;
}

/* The form for two texts is used where pairs are scored only, so what is wrong with it is no error here. */
static void load_pair(struct tok_post *x, const json_t *o, const struct tok_strs *text, const char *field)
{
    static const char *const names[] = { "A", "B" };
    char                     why[200];
    const struct tok_err     nobody = { why, sizeof why, "" };
    const json_t            *list = json_object_get(o, "pair");
    int                      at = 0;
    x->pairs = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list) && x->pairs; i++) {
        const json_t *piece = json_array_get(list, i);
        const char   *name = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
        const char   *sequence = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
        const json_t *type = json_object_get(json_object_get(piece, "SpecialToken"), "type_id");
        if (name) x->pairs = put_named(pair(x, at), o, name, text, field, &nobody) == ST_OK;
        if (name && at == 1 && json_integer_value(type) == 0) x->n_pair_first = x->n_pair[1];
        if (name) continue;
        x->pairs = sequence && at < 2 && !strcmp(sequence, names[at++]);
    }
    x->pairs = x->pairs && at == 2;
}

static enum status load_template(struct tok_post *x, const json_t *o, const struct tok_strs *text, const char *field,
                                 const struct tok_err *e)
{
    const json_t *list = json_object_get(o, "single");
    bool          behind = false;
    enum status   st = ST_OK;
    if (!json_is_array(list)) return tok_fail(e, "%s.single: must be an array", field);
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        const json_t *piece = json_array_get(list, i);
        const char   *name = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
        const char   *sequence = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
        if (name)
            st = put_named(single(x, behind), o, name, text, field, e);
        else if (sequence && !strcmp(sequence, "A") && !behind)
            behind = true;
        else
            st = tok_fail(e, "%s.single[%zu]: must be a SpecialToken, or the Sequence A once", field, i);
    }
    if (!st && !behind) return tok_fail(e, "%s.single: has no Sequence A", field);
    load_pair(x, o, text, field);
    return st;
}

static enum status load_one(struct tok_post *x, const json_t *o, const struct tok_strs *text, const char *field,
                            int nest, const struct tok_err *e)
{
    const char *type = tok_type(o);
    if (!strcmp(type, "ByteLevel")) return ST_OK; /* offsets alone */
    if (!strcmp(type, "TemplateProcessing")) return load_template(x, o, text, field, e);
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing")) {
        const json_t *cls = json_array_get(json_object_get(o, "cls"), 1),
                     *sep = json_array_get(json_object_get(o, "sep"), 1);
        if (!json_is_integer(cls) || !json_is_integer(sep))
            return tok_fail(e, "%s: cls and sep must be [token, id]", field);
        int64_t     first = json_integer_value(cls), last = json_integer_value(sep);
        enum status st = put(single(x, false), first, text, field, e);
        if (!st) st = put(single(x, true), last, text, field, e);
        if (!st) st = put(pair(x, 0), first, text, field, e);
        for (int i = *type == 'R' ? 0 : 1; i < 2 && !st; i++) st = put(pair(x, 1), last, text, field, e);
        x->n_pair_first = x->n_pair[1];
        return st ? st : put(pair(x, 2), last, text, field, e);
    }
    if (strcmp(type, "Sequence"))
        return tok_fail(
            e,
            "%s.type: \"%.40s\" is not supported; supported: TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing, Sequence",
            field, type);
    const json_t *list = json_object_get(o, "processors");
    if (!json_is_array(list)) return tok_fail(e, "%s.processors: must be an array", field);
    if (nest >= NEST_MAX) return tok_fail(e, "%s: sequences nested too deeply", field);
    enum status st = ST_OK;
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        char            place[200];
        struct tok_post one = { .pairs = true };
        snprintf(place, sizeof place, "%s.processors[%zu]", field, i);
        st = load_one(&one, json_array_get(list, i), text, place, nest + 1, e);
        /* a later processor goes around what the earlier ones made */
        for (uint32_t k = 0; k < x->n_before && !st; k++) st = put(single(&one, false), x->before[k], text, place, e);
        for (uint32_t k = 0; k < one.n_after && !st; k++) st = put(single(x, true), one.after[k], text, place, e);
        memcpy(x->before, one.before, sizeof x->before);
        x->n_before = one.n_before;
        bool own = x->n_pair[0] + x->n_pair[1] + x->n_pair[2], more = one.n_pair[0] + one.n_pair[1] + one.n_pair[2];
        x->pairs = x->pairs && one.pairs && !(own && more);
        if (more) {
            memcpy(x->pair, one.pair, sizeof x->pair);
            memcpy(x->n_pair, one.n_pair, sizeof x->n_pair);
            x->n_pair_first = one.n_pair_first;
        }
    }
    return st;
}

void tok_post_repeat(struct tok_post *x)
{
    x->pairs = x->n_after + x->n_before <= POST_IDS_MAX;
    if (!x->pairs) return;
    memcpy(x->pair[0], x->before, x->n_before * sizeof *x->before);
    memcpy(x->pair[1], x->after, x->n_after * sizeof *x->after);
    memcpy(x->pair[1] + x->n_after, x->before, x->n_before * sizeof *x->before);
    memcpy(x->pair[2], x->after, x->n_after * sizeof *x->after);
    x->n_pair[0] = x->n_before;
    x->n_pair[1] = x->n_after + x->n_before;
    x->n_pair_first = x->n_after;
    x->n_pair[2] = x->n_after;
}

enum status tok_post_load(struct tok_post *x, const json_t *component, const struct tok_strs *text,
                          const struct tok_err *e)
{
    *x = (struct tok_post){ .pairs = true };
    return component && !json_is_null(component) ? load_one(x, component, text, "post_processor", 0, e) : ST_OK;
}
