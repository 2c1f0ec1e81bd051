#include "api/token/tok_charsmap.h"
#include "api/token/tok_unicode.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEST_MAX = 8 };

static struct tok_step *add(struct tok_norm *x, enum tok_norm_kind kind)
{
    if (x->n >= NORM_STEPS_MAX) return NULL;
    x->step[x->n] = (struct tok_step){ .kind = kind };
    return &x->step[x->n++];
}

static enum status full(const char *field, const struct tok_err *e)
{
    return tok_fail(e, "%s: more than %d steps", field, NORM_STEPS_MAX);
}

/* Each step may make text shorter by a factor. 0 stays: no bound. */
static void shrinks(struct tok_norm *x, size_t factor)
{
    x->shrink = factor && x->shrink < 1000 ? x->shrink * factor : 0;
}

static enum status keep_text(struct tok_step *s, struct tok_span text, const char *field, const struct tok_err *e)
{
    s->text = malloc(text.n + 1);
    if (!s->text) return tok_fail(e, "%s: out of memory", field);
    memcpy(s->text, text.p, text.n);
    s->text[text.n] = 0;
    s->n_text = text.n;
    return ST_OK;
}

static enum status load_replace(struct tok_norm *x, const json_t *o, const char *field, const struct tok_err *e)
{
    struct tok_step *s = add(x, NORM_REPLACE);
    struct tok_span  content;
    if (!s) return full(field, e);
    enum status st = tok_pattern_load(&s->pattern, o, field, e);
    if (!st) st = tok_want_str(e, field, o, "content", &content);
    if (st) return st;
    if (!content.p) return tok_fail(e, "%s.content: is missing", field);
    bool text = s->pattern.text && content.n;
    shrinks(x, text ? (s->pattern.n_text + content.n - 1) / content.n + !s->pattern.n_text : 0);
    return keep_text(s, content, field, e);
}

static enum status load_strip(struct tok_norm *x, const json_t *o, const char *field, const struct tok_err *e)
{
    struct tok_step *s = add(x, NORM_STRIP);
    if (!s) return full(field, e);
    shrinks(x, 0);
    enum status st = tok_want_bool(e, field, o, "strip_left", true, &s->left);
    return st ? st : tok_want_bool(e, field, o, "strip_right", true, &s->right);
}

static enum status load_bert(struct tok_norm *x, const json_t *o, const char *field, const struct tok_err *e)
{
    bool        clean, han, lower, accents;
    enum status st = tok_want_bool(e, field, o, "clean_text", true, &clean);
    if (!st) st = tok_want_bool(e, field, o, "handle_chinese_chars", true, &han);
    if (!st) st = tok_want_bool(e, field, o, "lowercase", true, &lower);
    if (!st) st = tok_want_bool(e, field, o, "strip_accents", lower, &accents);
    if (st) return st;
    if (x->n + 5 > NORM_STEPS_MAX) return full(field, e);
    if (clean) add(x, NORM_BERT_CLEAN);
    if (han) add(x, NORM_BERT_HAN);
    if (accents) {
        add(x, NORM_FORM)->form = FORM_D;
        add(x, NORM_STRIP_ACCENTS)->trait = TRAIT_BERT_ACCENT;
    }
    if (lower) add(x, NORM_LOWER);
    shrinks(x, clean || accents ? 0 : 2);
    return ST_OK;
}

/* Without a charsmap nothing changes (a sentencepiece model made with the rule "identity"). */
static enum status load_charsmap(struct tok_norm *x, const json_t *o, const char *field, const struct tok_err *e)
{
    struct tok_span s;
    enum status     st = tok_want_str(e, field, o, "precompiled_charsmap", &s);
    if (st || !s.n) return st;
    struct tok_step *step = add(x, NORM_CHARSMAP);
    if (!step) return full(field, e);
    shrinks(x, 0);
    return tok_charsmap_new(&step->charsmap, s, field, e);
}

static enum status load_one(struct tok_norm *x, const json_t *o, const char *field, int nest, const struct tok_err *e);

static enum status load_sequence(struct tok_norm *x, const json_t *o, const char *field, int nest,
                                 const struct tok_err *e)
{
    const json_t *list = json_object_get(o, "normalizers");
    if (!json_is_array(list)) return tok_fail(e, "%s.normalizers: must be an array", field);
    if (nest >= NEST_MAX) return tok_fail(e, "%s: sequences nested too deeply", field);
    enum status st = ST_OK;
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        char place[200];
        snprintf(place, sizeof place, "%s.normalizers[%zu]", field, i);
        st = load_one(x, json_array_get(list, i), place, nest + 1, e);
    }
    return st;
}

/* Steps without members. shrink: see there; a form or a lower case makes at most a third of the bytes. */
static const struct {
    const char        *type;
    enum tok_norm_kind kind;
    enum tok_form      form;
    size_t             shrink;
} simple[] = {
    { "NFC", NORM_FORM, FORM_C, 4 },        { "NFD", NORM_FORM, FORM_D, 4 },
    { "NFKC", NORM_FORM, FORM_KC, 4 },      { "NFKD", NORM_FORM, FORM_KD, 4 },
    { "Lowercase", NORM_LOWER, FORM_C, 4 }, { "StripAccents", NORM_STRIP_ACCENTS, FORM_C, 0 },
    { "Nmt", NORM_NMT, FORM_C, 0 },         { "ByteLevel", NORM_BYTE_LEVEL, FORM_C, 1 },
};

static enum status load_one(struct tok_norm *x, const json_t *o, const char *field, int nest, const struct tok_err *e)
{
    const char *type = tok_type(o);
    if (!strcmp(type, "Sequence")) return load_sequence(x, o, field, nest, e);
    if (!strcmp(type, "Replace")) return load_replace(x, o, field, e);
    if (!strcmp(type, "Strip")) return load_strip(x, o, field, e);
    if (!strcmp(type, "BertNormalizer")) return load_bert(x, o, field, e);
    if (!strcmp(type, "Prepend")) {
        struct tok_span  s;
        struct tok_step *step = add(x, NORM_PREPEND);
        enum status      st = step ? tok_want_str(e, field, o, "prepend", &s) : full(field, e);
        if (st) return st;
        return s.p ? keep_text(step, s, field, e) : tok_fail(e, "%s.prepend: is missing", field);
    }
    if (!strcmp(type, "Precompiled")) return load_charsmap(x, o, field, e);
    for (size_t i = 0; i < sizeof simple / sizeof *simple; i++) {
        if (strcmp(type, simple[i].type)) continue;
        struct tok_step *s = add(x, simple[i].kind);
        if (!s) return full(field, e);
        s->form = simple[i].form;
        s->trait = TRAIT_ACCENT;
        shrinks(x, simple[i].shrink);
        return ST_OK;
    }
    return tok_fail(
        e,
        "%s.type: \"%.40s\" is not supported; supported: NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace, "
        "ByteLevel, Nmt, BertNormalizer, Precompiled, Sequence",
        field, type);
}

enum status tok_norm_load(struct tok_norm *x, const json_t *component, const struct tok_err *e)
{
    x->shrink = 1;
    return component && !json_is_null(component) ? load_one(x, component, "normalizer", 0, e) : ST_OK;
}

void tok_norm_free(struct tok_norm *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        tok_pattern_free(&x->step[i].pattern);
        tok_charsmap_free(x->step[i].charsmap);
        free(x->step[i].text);
    }
    x->n = 0;
}
