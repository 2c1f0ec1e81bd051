/* tags_read: the members of a structural tag's nodes, and what is wrong with them. */
#include "api/lang/tags_impl.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

uint32_t tags_fail(struct tags *t, const char *fmt, ...)
{
    char    what[TAGS_ERR - POINTER_BYTES - 20];
    va_list args;
    if (t->failed) return 0;
    t->failed = true;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    snprintf(t->err, TAGS_ERR, "at '%s': %s", t->at.text, what);
    return 0;
}

uint32_t tags_fail_at(struct tags *t, const char *key, const char *why)
{
    size_t n = pointer_key(&t->at, key);
    tags_fail(t, "%s", why);
    pointer_leave(&t->at, n);
    return 0;
}

void tags_only(struct tags *t, const json_t *v, const char *const *members)
{
    const char *key;
    json_t     *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        bool known = !strcmp(key, "type") || json_is_null(value);
        for (size_t i = 0; members[i]; i++) known = known || !strcmp(key, members[i]);
        if (!known) tags_fail_at(t, key, "such a member is not supported here");
    }
}

bool tags_flag(struct tags *t, const json_t *v, const char *key)
{
    const json_t *flag = json_object_get(v, key);
    if (flag && !json_is_boolean(flag)) tags_fail_at(t, key, "it must be true or false");
    return json_is_true(flag);
}

bool tags_count(struct tags *t, const json_t *v, const char *key, uint32_t max, uint32_t *out)
{
    const json_t *count = json_object_get(v, key);
    char          why[60];
    if (!count || json_is_null(count)) return false;
    *out = (uint32_t)json_integer_value(count);
    if (json_is_integer(count) && json_integer_value(count) >= 0 && json_integer_value(count) <= max) return true;
    snprintf(why, sizeof why, "it must be a count up to %u", max);
    tags_fail_at(t, key, why);
    return false;
}

const char *tags_text_of(struct tags *t, const json_t *v, const char *what, size_t *n_out)
{
    *n_out = json_string_length(v);
    if (!json_is_string(v) || *n_out > TAGS_TEXT_MAX) {
        tags_fail(t, "'%s' must be a string of at most %d bytes", what, TAGS_TEXT_MAX);
        *n_out = 0;
        return "";
    }
    return json_string_value(v);
}

const json_t *tags_list(struct tags *t, const json_t *v, const char *key, bool needed)
{
    const json_t *list = json_object_get(v, key);
    if (!list && !needed) return NULL;
    if (!json_is_array(list) || json_array_size(list) > TAGS_LIST_MAX || (needed && !json_array_size(list))) {
        tags_fail(t, "'%s' must be a list of at most %d", key, TAGS_LIST_MAX);
        return NULL;
    }
    return list;
}

const json_t *tags_strings(struct tags *t, const json_t *v, const char *key, bool needed)
{
    const json_t *list = tags_list(t, v, key, needed);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        if (!json_string_length(s) || json_string_length(s) > TAGS_TEXT_MAX)
            tags_fail(t, "'%s' must be a list of strings of 1 to %d bytes", key, TAGS_TEXT_MAX);
    }
    return list;
}
