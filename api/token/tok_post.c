#include "api/token/tok_post.h"
#include <stdio.h>
#include <string.h>

enum { NEST_MAX = 8 };

static enum status put(struct tok_post *x, bool behind, int64_t id, const struct tok_strs *text, const char *field,
                       const struct tok_err *e)
{
    size_t    n;
    uint32_t *to = behind ? x->after : x->before, *count = behind ? &x->n_after : &x->n_before;
    if (id < 0 || id >= TOK_ID_BOUND || !tok_strs_get(text, (uint32_t)id, &n))
        return tok_fail(e, "%s: id %lld is no token", field, (long long)id);
    if (*count >= POST_IDS_MAX) return tok_fail(e, "%s: adds more than %d ids", field, POST_IDS_MAX);
    to[(*count)++] = (uint32_t)id;
    return ST_OK;
}

/* {"SpecialToken": {"id": name}}: the ids that special_tokens gives for the name */
static enum status put_named(struct tok_post *x, bool behind, const json_t *o, const char *name,
                             const struct tok_strs *text, const char *field, const struct tok_err *e)
{
    const json_t *ids = json_object_get(json_object_get(json_object_get(o, "special_tokens"), name), "ids");
    if (!json_is_array(ids)) return tok_fail(e, "%s.special_tokens: has no ids for \"%.40s\"", field, name);
    enum status st = ST_OK;
    for (size_t i = 0; i < json_array_size(ids) && !st; i++) {
        const json_t *id = json_array_get(ids, i);
        st = put(x, behind, json_is_integer(id) ? json_integer_value(id) : -1, text, field, e);
    }
    return st;
}

static enum status load_template(struct tok_post *x, const json_t *o, const struct tok_strs *text, const char *field,
                                 const struct tok_err *e)
{
    const json_t *single = json_object_get(o, "single");
    bool          behind = false;
    enum status   st = ST_OK;
    if (!json_is_array(single)) return tok_fail(e, "%s.single: must be an array", field);
    for (size_t i = 0; i < json_array_size(single) && !st; i++) {
        const json_t *piece = json_array_get(single, i);
        const char   *name = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
        const char   *sequence = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
        if (name)
            st = put_named(x, behind, o, name, text, field, e);
        else if (sequence && !strcmp(sequence, "A") && !behind)
            behind = true;
        else
            st = tok_fail(e, "%s.single[%zu]: must be a SpecialToken, or the Sequence A once", field, i);
    }
    return st || behind ? st : tok_fail(e, "%s.single: has no Sequence A", field);
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
        enum status st = put(x, false, json_integer_value(cls), text, field, e);
        return st ? st : put(x, true, json_integer_value(sep), text, field, e);
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
        struct tok_post one = { .n_before = 0 };
        snprintf(place, sizeof place, "%s.processors[%zu]", field, i);
        st = load_one(&one, json_array_get(list, i), text, place, nest + 1, e);
        /* a later processor goes around what the earlier ones made */
        for (uint32_t k = 0; k < x->n_before && !st; k++) st = put(&one, false, x->before[k], text, place, e);
        for (uint32_t k = 0; k < one.n_after && !st; k++) st = put(x, true, one.after[k], text, place, e);
        memcpy(x->before, one.before, sizeof x->before);
        x->n_before = one.n_before;
    }
    return st;
}

enum status tok_post_load(struct tok_post *x, const json_t *component, const struct tok_strs *text,
                          const struct tok_err *e)
{
    *x = (struct tok_post){ .n_before = 0 };
    return component && !json_is_null(component) ? load_one(x, component, text, "post_processor", 0, e) : ST_OK;
}
