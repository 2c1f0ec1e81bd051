#include "api/schema/value_set.h"
#include "api/schema/schema_impl.h"
#include "base/hash.h"
#include <stdlib.h>
#include <string.h>

bool schema_equal(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b)) return json_integer_value(a) == json_integer_value(b);
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_is_array(a) && json_is_array(b)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!schema_equal(json_array_get(a, i), json_array_get(b, i))) return false;
        return true;
    }
    if (json_is_object(a) && json_is_object(b)) {
        const char *key;
        json_t     *value;
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach((json_t *)(uintptr_t)a, key, value)
        {
            const json_t *other = json_object_get(b, key);
            if (!other || !schema_equal(value, other)) return false;
        }
        return true;
    }
    return json_equal(a, b);
}

void value_set_init(struct value_set *s) { *s = (struct value_set){ .seed = hash_seed() }; }

void value_set_free(struct value_set *s)
{
    free(s->slot);
    free(s->hash);
}

static uint64_t hash_number(double v, uint64_t seed)
{
    v += 0.0; /* -0 is 0 */
    return hash_bytes(&v, sizeof v, seed);
}

/* Equal for values that are equal. */
static uint64_t hash_of(const json_t *v, uint64_t seed)
{
    uint64_t    h = hash_combine(seed, json_is_object(v) ? 1 : 2);
    const char *key;
    json_t     *member;
    if (json_is_number(v)) return hash_number(json_number_value(v), seed);
    if (json_is_string(v)) return hash_bytes(json_string_value(v), json_string_length(v), seed);
    for (size_t i = 0; i < json_array_size(v); i++) h = hash_combine(h, hash_of(json_array_get(v, i), seed));
    json_object_foreach((json_t *)(uintptr_t)v, key, member) h +=
        hash_combine(hash_bytes(key, strlen(key), seed), hash_of(member, seed));
    if (json_is_array(v) || json_is_object(v)) return h;
    return hash_combine(seed, 3 + (uint64_t)json_typeof(v));
}

/* Where the value is, or would be. room > 0 and a place is free. */
static size_t place(const struct value_set *s, const json_t *v, uint64_t hash)
{
    size_t at = hash & (s->room - 1);
    while (s->slot[at] && (s->hash[at] != hash || !schema_equal(s->slot[at], v))) at = (at + 1) & (s->room - 1);
    return at;
}

static bool grow(struct value_set *s)
{
    struct value_set more = { .room = s->room ? 2 * s->room : 16, .seed = s->seed, .n = s->n };
    more.slot = calloc(more.room, sizeof *more.slot);
    more.hash = calloc(more.room, sizeof *more.hash);
    if (!more.slot || !more.hash) {
        value_set_free(&more);
        s->failed = true;
        return false;
    }
    for (size_t i = 0; i < s->room; i++) {
        if (!s->slot[i]) continue;
        size_t at = s->hash[i] & (more.room - 1);
        while (more.slot[at]) at = (at + 1) & (more.room - 1);
        more.slot[at] = s->slot[i];
        more.hash[at] = s->hash[i];
    }
    value_set_free(s);
    *s = more;
    return true;
}

bool value_set_add(struct value_set *s, const json_t *v)
{
    if (s->failed || (2 * s->n >= s->room && !grow(s))) return false;
    uint64_t hash = hash_of(v, s->seed);
    size_t   at = place(s, v, hash);
    if (s->slot[at]) return false;
    s->slot[at] = v;
    s->hash[at] = hash;
    s->n++;
    return true;
}

bool value_set_has(const struct value_set *s, const json_t *v)
{
    return s->n > 0 && s->slot[place(s, v, hash_of(v, s->seed))] != NULL;
}
