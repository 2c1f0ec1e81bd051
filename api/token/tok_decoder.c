#include "api/token/tok_decoder.h"
#include "api/token/tok_unicode.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEST_MAX = 8, STRIP_MAX = 1024 };

static char *copy(struct tok_span s, size_t *n_out)
{
    char *p = malloc(s.n + 1);
    if (!p) return NULL;
    if (s.n) memcpy(p, s.p, s.n);
    p[s.n] = 0;
    *n_out = s.n;
    return p;
}

/* The n-th string of an object, or what it is when absent. */
static enum status load_texts(struct tok_dec_step *x, struct tok_span from, struct tok_span to, const char *field,
                              const struct tok_err *e)
{
    if (!from.n || memchr(from.p, 0, from.n)) return tok_fail(e, "%s: needs a text that is not empty", field);
    x->from = copy(from, &x->n_from);
    x->to = copy(to, &x->n_to);
    return x->from && x->to ? ST_OK : tok_fail(e, "%s: out of memory", field);
}

static enum status load_replace(struct tok_dec_step *x, const json_t *o, const char *field, const struct tok_err *e)
{
    const json_t   *pattern = json_object_get(o, "pattern");
    struct tok_span from, to;
    enum status     st = json_is_object(pattern) ? tok_want_str(e, field, pattern, "String", &from)
                                                 : tok_fail(e, "%s.pattern: must be an object", field);
    if (!st) st = tok_want_str(e, field, o, "content", &to);
    if (st) return st;
    if (!from.p) return tok_fail(e, "%s.pattern: not supported; supported: {\"String\": ..}", field);
    return load_texts(x, from, to, field, e);
}

static enum status load_char(const json_t *o, const char *key, uint32_t absent, uint32_t *cp_out, const char *field,
                             const struct tok_err *e)
{
    struct tok_span s;
    size_t          i = 0;
    enum status     st = tok_want_str(e, field, o, key, &s);
    if (st) return st;
    *cp_out = s.n ? tok_next(s.p, &i) : absent;
    return i == s.n ? ST_OK : tok_fail(e, "%s.%s: must be one character", field, key);
}

static enum status load_strip(struct tok_dec_step *x, const json_t *o, const char *field, const struct tok_err *e)
{
    int64_t start = 0, stop = 0;
    if (json_get_int(o, "start", 0, STRIP_MAX, &start) == ST_INVALID ||
        json_get_int(o, "stop", 0, STRIP_MAX, &stop) == ST_INVALID)
        return tok_fail(e, "%s: start and stop must be 0..%d", field, STRIP_MAX);
    x->start = (uint32_t)start;
    x->stop = (uint32_t)stop;
    return load_char(o, "content", ' ', &x->cp, field, e);
}

static enum status load_metaspace(struct tok_dec_step *x, const json_t *o, const char *field, const struct tok_err *e)
{
    struct tok_span scheme;
    bool            prefix;
    enum status     st = load_char(o, "replacement", 0x2581, &x->cp, field, e);
    if (!st) st = tok_want_bool(e, field, o, "add_prefix_space", true, &prefix);
    if (!st) st = tok_want_str(e, field, o, "prepend_scheme", &scheme);
    x->prepend = !st && prefix && (!scheme.p || strcmp(scheme.p, "never"));
    return st;
}

static enum status load_wordpiece(struct tok_dec_step *x, const json_t *o, const char *field, const struct tok_err *e)
{
    struct tok_span prefix;
    enum status     st = tok_want_str(e, field, o, "prefix", &prefix);
    if (!st) st = tok_want_bool(e, field, o, "cleanup", true, &x->cleanup);
    if (st) return st;
    if (!prefix.p) prefix = (struct tok_span){ "##", 2 };
    x->from = copy(prefix, &x->n_from);
    return x->from ? ST_OK : tok_fail(e, "%s: out of memory", field);
}

static bool has(const struct tok_decoder *d, enum tok_dec_kind kind)
{
    for (uint32_t i = 0; i < d->n; i++)
        if (d->step[i].kind == kind) return true;
    return false;
}

static const struct {
    const char       *type;
    enum tok_dec_kind kind;
} kinds[] = {
    { "ByteLevel", DEC_BYTE_LEVEL },
    { "Replace", DEC_REPLACE },
    { "ByteFallback", DEC_BYTE_FALLBACK },
    { "Fuse", DEC_FUSE },
    { "Strip", DEC_STRIP },
    { "Metaspace", DEC_METASPACE },
    { "BPEDecoder", DEC_SUFFIX },
    { "WordPiece", DEC_WORDPIECE },
};

static enum status load_one(struct tok_decoder *d, const json_t *o, const char *field, int nest,
                            const struct tok_err *e);

static enum status load_sequence(struct tok_decoder *d, const json_t *o, const char *field, int nest,
                                 const struct tok_err *e)
{
    const json_t *list = json_object_get(o, "decoders");
    if (!json_is_array(list)) return tok_fail(e, "%s.decoders: must be an array", field);
    if (nest >= NEST_MAX) return tok_fail(e, "%s: sequences nested too deeply", field);
    enum status st = ST_OK;
    for (size_t i = 0; i < json_array_size(list) && !st; i++) {
        char place[200];
        snprintf(place, sizeof place, "%s.decoders[%zu]", field, i);
        st = load_one(d, json_array_get(list, i), place, nest + 1, e);
    }
    return st;
}

static enum status load_one(struct tok_decoder *d, const json_t *o, const char *field, int nest,
                            const struct tok_err *e)
{
    const char *type = tok_type(o);
    size_t      k = 0;
    if (!strcmp(type, "Sequence")) return load_sequence(d, o, field, nest, e);
    while (k < sizeof kinds / sizeof *kinds && strcmp(type, kinds[k].type)) k++;
    if (k == sizeof kinds / sizeof *kinds)
        return tok_fail(
            e,
            "%s.type: \"%.40s\" is not supported; supported: ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, BPEDecoder, WordPiece, "
            "Sequence",
            field, type);
    enum tok_dec_kind kind = kinds[k].kind;
    bool              fused = d->fuse < d->n;
    if (fused && kind == DEC_FUSE) return ST_OK;
    if (fused && (kind != DEC_STRIP || has(d, DEC_STRIP)))
        return tok_fail(e, "%s: %s is not supported behind a step that fuses", field, type);
    if (kind != DEC_REPLACE && kind != DEC_STRIP && has(d, kind))
        return tok_fail(e, "%s: %s twice is not supported", field, type);
    if (has(d, DEC_SUFFIX) || (kind == DEC_SUFFIX && d->n))
        return tok_fail(e, "%s: BPEDecoder with others is not supported", field);
    if (d->n >= DECODER_STEPS_MAX) return tok_fail(e, "%s: more than %d steps", field, DECODER_STEPS_MAX);
    if (!fused) d->fuse = d->n + (kind != DEC_FUSE && kind != DEC_BYTE_LEVEL);
    struct tok_dec_step *x = &d->step[d->n++];
    *x = (struct tok_dec_step){ .kind = kind };
    struct tok_span suffix;
    switch (kind) {
    case DEC_REPLACE: return load_replace(x, o, field, e);
    case DEC_STRIP: return load_strip(x, o, field, e);
    case DEC_METASPACE: return load_metaspace(x, o, field, e);
    case DEC_WORDPIECE: return load_wordpiece(x, o, field, e);
    case DEC_SUFFIX:
        if (tok_want_str(e, field, o, "suffix", &suffix)) return ST_CONFIG;
        if (!suffix.p) suffix = (struct tok_span){ "</w>", 4 };
        return load_texts(x, suffix, (struct tok_span){ " ", 1 }, field, e);
    default: return ST_OK;
    }
}

enum status tok_decoder_load(struct tok_decoder *d, const json_t *component, const struct tok_err *e)
{
    d->none = !component || json_is_null(component);
    return d->none ? ST_OK : load_one(d, component, "decoder", 0, e);
}

void tok_decoder_free(struct tok_decoder *d)
{
    for (uint32_t i = 0; i < d->n; i++) {
        free(d->step[i].from);
        free(d->step[i].to);
    }
    *d = (struct tok_decoder){ 0 };
}
