#include "api/token/tok_err.h"
#include "api/token/tok_unicode.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum status tok_fail(const struct tok_err *e, const char *fmt, ...)
{
    if (!e->bytes) return ST_CONFIG;
    int     head = snprintf(e->text, e->bytes, "%s: ", e->file);
    va_list ap;
    va_start(ap, fmt);
    if (head > 0 && (size_t)head < e->bytes) vsnprintf(e->text + head, e->bytes - (size_t)head, fmt, ap);
    va_end(ap);
    size_t n = strlen(e->text);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)e->text[i] < 0x20 || e->text[i] == 0x7f) e->text[i] = '?';
    for (uint32_t cp; n && !utf8_valid(e->text, n);) /* a character cut in two */
        for (size_t i = 0, len; i < n; i += len)
            if (!(len = utf8_decode(e->text + i, n - i, &cp))) {
                e->text[i] = '?';
                len = 1;
            }
    return ST_CONFIG;
}

json_t *tok_parse(const struct tok_err *e, const char *field, struct tok_span span)
{
    struct json_error je = { .offset = 0 };
    json_t           *v = json_parse(span.p, span.n, 0, &je);
    if (!v) tok_fail(e, "%s: %s", field, je.text);
    return v;
}

enum status tok_want_bool(const struct tok_err *e, const char *field, const json_t *o, const char *key, bool absent,
                          bool *out)
{
    *out = absent;
    return json_get_bool(o, key, out) == ST_INVALID ? tok_fail(e, "%s.%s: must be true or false", field, key) : ST_OK;
}

enum status tok_want_str(const struct tok_err *e, const char *field, const json_t *o, const char *key,
                         struct tok_span *out)
{
    *out = (struct tok_span){ NULL, 0 };
    return json_get_str(o, key, &out->p, &out->n) == ST_INVALID ? tok_fail(e, "%s.%s: must be a string", field, key)
                                                                : ST_OK;
}

const char *tok_type(const json_t *o)
{
    const char *s = json_string_value(json_object_get(o, "type"));
    return s ? s : "";
}
