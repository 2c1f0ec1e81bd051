#include "api/token/tok_pretok.h"
#include "api/token/tok_unicode.h"
#include "api/token/tok_vocab.h"
#include <stdio.h>
#include <string.h>

enum { NEST_MAX = 8, LENGTH_MAX = 1 << 20 };

static struct tok_stage *add(struct tok_pretok *p, enum tok_stage_kind kind)
{
    if (p->n >= TOK_STAGES_MAX - 2) return NULL; /* the last scratches are the model's */
    p->stage[p->n] = (struct tok_stage){ .kind = kind, .behavior = SPLIT_ISOLATED };
    return &p->stage[p->n++];
}

static enum status too_long(const char *field, const struct tok_err *e)
{
    return tok_fail(e, "%s: more than %d stages", field, TOK_STAGES_MAX - 2);
}

static enum status load_behavior(struct tok_pretok *p, struct tok_stage *x, const json_t *o, const char *field,
                                 const struct tok_err *e)
{
    static const char *const name[] = { "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous" };
    struct tok_span          s;
    enum status              st = tok_want_str(e, field, o, "behavior", &s);
    if (st) return st;
    if (!s.p) return ST_OK; /* Isolated */
    for (unsigned i = 0; i < sizeof name / sizeof *name; i++) {
        if (strcmp(s.p, name[i])) continue;
        x->behavior = (enum tok_behavior)i;
        p->shrinks |= x->behavior == SPLIT_REMOVED;
        return ST_OK;
    }
    return tok_fail(e, "%s.behavior: \"%.40s\" is not supported", field, s.p);
}

static enum status load_split(struct tok_pretok *p, const json_t *o, const char *field, const struct tok_err *e)
{
    struct tok_stage *x = add(p, STAGE_SPLIT);
    if (!x) return too_long(field, e);
    enum status st = tok_pattern_load(&x->pattern, o, field, e);
    if (!st) st = load_behavior(p, x, o, field, e);
    return st ? st : tok_want_bool(e, field, o, "invert", false, &x->invert);
}

static enum status load_byte_level(struct tok_pretok *p, const json_t *o, const char *field, const struct tok_err *e)
{
    bool        prefix, regex;
    enum status st = tok_want_bool(e, field, o, "add_prefix_space", true, &prefix);
    if (!st) st = tok_want_bool(e, field, o, "use_regex", true, &regex);
    if (st) return st;
    struct tok_stage *x = NULL;
    if (prefix && !add(p, STAGE_PREFIX_SPACE)) return too_long(field, e);
    if (regex && !(x = add(p, STAGE_SPLIT))) return too_long(field, e);
    if (x) x->pattern.match = tok_match_gpt2;
    return add(p, STAGE_BYTE_LEVEL) ? ST_OK : too_long(field, e);
}

static enum status load_char(const json_t *o, const char *key, uint32_t absent, uint32_t *cp_out, const char *field,
                             const struct tok_err *e)
{
    struct tok_span s;
    size_t          i = 0;
    enum status     st = tok_want_str(e, field, o, key, &s);
    *cp_out = absent;
    if (st || (!s.p && absent)) return st;
    if (s.n) *cp_out = tok_next(s.p, &i);
    return s.n && i == s.n ? ST_OK : tok_fail(e, "%s.%s: must be one character", field, key);
}

static enum status load_metaspace(struct tok_pretok *p, const json_t *o, const char *field, const struct tok_err *e)
{
    struct tok_stage *x = add(p, STAGE_METASPACE);
    struct tok_span   scheme;
    bool              prefix;
    if (!x) return too_long(field, e);
    x->behavior = SPLIT_MERGED_WITH_NEXT;
    enum status st = load_char(o, "replacement", 0x2581, &x->cp, field, e);
    if (!st) st = tok_want_bool(e, field, o, "split", true, &x->split);
    if (!st) st = tok_want_bool(e, field, o, "add_prefix_space", true, &prefix);
    if (!st) st = tok_want_str(e, field, o, "prepend_scheme", &scheme);
    if (st) return st;
    if (!scheme.p || !strcmp(scheme.p, "always"))
        x->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    else if (!strcmp(scheme.p, "first"))
        x->prepend = PREPEND_FIRST;
    else if (!strcmp(scheme.p, "never"))
        x->prepend = PREPEND_NEVER;
    else
        return tok_fail(e, "%s.prepend_scheme: \"%.40s\" is not supported; supported: always, first, never", field,
                        scheme.p);
    return ST_OK;
}

static enum status load_chars(struct tok_pretok *p, enum tok_trait_bit trait, enum tok_behavior behavior,
                              const char *field, const struct tok_err *e)
{
    struct tok_stage *x = add(p, STAGE_CHARS);
    if (!x) return too_long(field, e);
    x->trait = trait;
    x->behavior = behavior;
    p->shrinks |= behavior == SPLIT_REMOVED;
    return ST_OK;
}

static enum status load_one(struct tok_pretok *p, const json_t *o, const char *field, int nest,
                            const struct tok_err *e);

static enum status load_sequence(struct tok_pretok *p, const json_t *o, const char *field, int nest,
                                 const struct tok_err *e)
{
    const json_t *list = json_object_get(o, "pretokenizers");
    if (!json_is_array(list)) return tok_fail(e, "%s.pretokenizers: must be an array", field);
    if (nest >= NEST_MAX) return tok_fail(e, "%s: sequences nested too deeply", field);
    enum status st = ST_OK;
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        char place[200];
        snprintf(place, sizeof place, "%s.pretokenizers[%zu]", field, i);
        st = load_one(p, json_array_get(list, i), place, nest + 1, e);
    }
    return st;
}

static enum status load_one(struct tok_pretok *p, const json_t *o, const char *field, int nest, const struct tok_err *e)
{
    const char       *type = tok_type(o);
    struct tok_stage *x;
    enum status       st;
    if (!strcmp(type, "Sequence")) return load_sequence(p, o, field, nest, e);
    if (!strcmp(type, "Split")) return load_split(p, o, field, e);
    if (!strcmp(type, "ByteLevel")) return load_byte_level(p, o, field, e);
    if (!strcmp(type, "Metaspace")) return load_metaspace(p, o, field, e);
    if (!strcmp(type, "WhitespaceSplit")) return load_chars(p, TRAIT_SPACE, SPLIT_REMOVED, field, e);
    if (!strcmp(type, "Digits")) {
        bool each;
        if ((st = tok_want_bool(e, field, o, "individual_digits", false, &each))) return st;
        return load_chars(p, TRAIT_NUMERIC, each ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, field, e);
    }
    if (!strcmp(type, "Punctuation")) {
        if ((st = load_chars(p, TRAIT_PUNCT, SPLIT_ISOLATED, field, e))) return st;
        return load_behavior(p, &p->stage[p->n - 1], o, field, e);
    }
    if (!strcmp(type, "BertPreTokenizer")) {
        st = load_chars(p, TRAIT_SPACE, SPLIT_REMOVED, field, e);
        return st ? st : load_chars(p, TRAIT_PUNCT, SPLIT_ISOLATED, field, e);
    }
    if (!strcmp(type, "CharDelimiterSplit")) {
        uint32_t cp;
        if ((st = load_char(o, "delimiter", 0, &cp, field, e)) || (st = load_chars(p, 0, SPLIT_REMOVED, field, e)))
            return st;
        p->stage[p->n - 1].cp = cp;
        return ST_OK;
    }
    if (!strcmp(type, "Whitespace")) {
        p->shrinks = true;
        return add(p, STAGE_WORDS) ? ST_OK : too_long(field, e);
    }
    if (!strcmp(type, "UnicodeScripts")) {
        p->shrinks = true;
        return add(p, STAGE_SCRIPTS) ? ST_OK : too_long(field, e);
    }
    if (!strcmp(type, "FixedLength")) {
        int64_t length = 5;
        if (json_get_int(o, "length", 1, LENGTH_MAX, &length) == ST_INVALID)
            return tok_fail(e, "%s.length: must be 1..%d", field, LENGTH_MAX);
        if (!(x = add(p, STAGE_FIXED))) return too_long(field, e);
        x->length = (uint32_t)length;
        return ST_OK;
    }
    return tok_fail(
        e,
        "%s.type: \"%.40s\" is not supported; supported: Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
        "WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer, UnicodeScripts, FixedLength, Sequence",
        field, type);
}

enum status tok_pretok_load(struct tok_pretok *p, const json_t *component, const struct tok_err *e)
{
    return component && !json_is_null(component) ? load_one(p, component, "pre_tokenizer", 0, e) : ST_OK;
}

void tok_pretok_free(struct tok_pretok *p)
{
    for (uint32_t i = 0; i < p->n; i++) tok_pattern_free(&p->stage[i].pattern);
    p->n = 0;
}
