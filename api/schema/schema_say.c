/* schema_say: what is wrong with a schema, and counts that the compiler reads. */
#include "api/schema/schema_impl.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t schema_nothing(struct schema *s) { return gr_terminal(s->r, RX_NONE); }

uint32_t schema_fail(struct schema *s, const char *keyword, const char *fmt, ...)
{
    struct pointer at;
    char           what[160];
    va_list        args;
    if (s->failed) return schema_nothing(s);
    s->failed = true;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    schema_place(s, keyword, &at);
    snprintf(s->err, SCHEMA_ERR, "at '%s': %s", at.text[0] ? at.text : "/", what);
    return schema_nothing(s);
}

void schema_beyond(struct schema *s, const char *keyword, const char *why)
{
    char  *list = s->form.ignored;
    size_t n = strlen(keyword);
    if (!list) {
        schema_fail(s, keyword, "%s", why);
        return;
    }
    for (const char *at = list; (at = strstr(at, keyword)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == ',' || !at[n])) return;
    size_t used = strlen(list);
    snprintf(list + used, SCHEMA_IGNORED - used, "%s%s", used ? "," : "", keyword);
}

void schema_beyond_not(struct schema *s, const char *keyword)
{
    static const char why[] = "the opposite of this cannot be enforced";
    if (s->form.ignored) {
        schema_beyond(s, keyword, why);
        return;
    }
    s->node = s->bad;
    schema_fail(s, s->bad_key, "%s", why);
}

bool schema_count(struct schema *s, const json_t *node, const char *key, uint32_t *out)
{
    const json_t *v = json_object_get(node, key);
    double        n = json_number_value(v);
    if (!v) return false;
    if (!json_is_number(v) || n < 0 || n > 1e9 || n != (double)(uint32_t)n) {
        schema_fail(s, key, "a count from 0 to 1000000000 is needed");
        return false;
    }
    *out = (uint32_t)n;
    return true;
}
