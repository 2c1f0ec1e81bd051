/* schema_value: constants of a schema, each in its only spelling, and the white space between tokens. */
#include "api/schema/chars.h"
#include "api/schema/regex.h"
#include "api/schema/schema_impl.h"
#include <string.h>

/* ---------------------------------------------------------------- spelling */

uint32_t schema_space(struct schema *s)
{
    if (s->form.compact) return RX_EMPTY;
    if (s->space) return s->space;
    if (s->form.space) {
        const struct regex_form whole = { .search = false };
        char                    err[REGEX_ERR]; /* regex_is_blank has seen to it */
        if (!regex_rx(s->x, s->form.space, strlen(s->form.space), whole, &s->space, err)) return s->space;
    }
    uint32_t line = rx_of_byte(s->x, '\n'), blank = rx_of_byte(s->x, ' ');
    uint32_t any[] = { RX_EMPTY, blank, rx_cat(s->x, line, rx_repeat(s->x, blank, 0, 32)),
                       rx_cat(s->x, line, rx_repeat(s->x, rx_of_byte(s->x, '\t'), 1, 8)) };
    return s->space = rx_or(s->x, any, 4);
}

uint32_t schema_string_rx(struct schema *s, uint32_t inner)
{
    uint32_t quote = rx_of_byte(s->x, '"');
    return rx_cat(s->x, quote, rx_cat(s->x, inner, quote));
}

static uint32_t literal_text(struct schema *s, const char *text) { return rx_of_bytes(s->x, text, strlen(text)); }

/* Members or elements in a row, with white space where it is allowed. */
static uint32_t literal_list(struct schema *s, const json_t *value)
{
    uint32_t space = schema_space(s), r = RX_EMPTY;
    uint32_t comma = rx_cat(s->x, space, rx_cat(s->x, rx_of_byte(s->x, ','), space));
    uint32_t colon = rx_cat(s->x, space, rx_cat(s->x, rx_of_byte(s->x, ':'), space));
    bool     object = json_is_object(value);
    size_t   n = object ? json_object_size(value) : json_array_size(value), i = 0;
    void    *it = object ? json_object_iter((json_t *)(uintptr_t)value) : NULL;
    for (; i < n; i++) {
        uint32_t one = RX_EMPTY;
        if (object) {
            const char *key = json_object_iter_key(it);
            size_t      len = json_object_iter_key_len(it);
            one = rx_cat(s->x, schema_string_rx(s, chars_text(s->x, key, len, true)),
                         rx_cat(s->x, colon, schema_literal(s, json_object_iter_value(it))));
            it = json_object_iter_next((json_t *)(uintptr_t)value, it);
        } else {
            one = schema_literal(s, json_array_get(value, i));
        }
        r = rx_cat(s->x, r, i ? rx_cat(s->x, comma, one) : one);
    }
    uint32_t open = rx_cat(s->x, rx_of_byte(s->x, object ? '{' : '['), space);
    uint32_t close = rx_cat(s->x, n ? space : (uint32_t)RX_EMPTY, rx_of_byte(s->x, object ? '}' : ']'));
    return rx_cat(s->x, open, rx_cat(s->x, r, close));
}

uint32_t schema_literal(struct schema *s, const json_t *value)
{
    if (json_is_null(value)) return literal_text(s, "null");
    if (json_is_boolean(value)) return literal_text(s, json_is_true(value) ? "true" : "false");
    if (json_is_string(value))
        return schema_string_rx(s, chars_text(s->x, json_string_value(value), json_string_length(value), true));
    if (json_is_number(value)) {
        struct buf b;
        buf_init(&b, 400);
        if (json_is_integer(value))
            json_put_int(&b, json_integer_value(value));
        else
            json_put_num(&b, json_real_value(value));
        uint32_t r = rx_of_bytes(s->x, b.data, b.n);
        buf_free(&b);
        return r;
    }
    return literal_list(s, value);
}

/* ---------------------------------------------------------------- values */

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

static bool has(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (schema_equal(json_array_get(list, i), v)) return true;
    return false;
}

/* Leaves of *all (NULL: nothing has narrowed it yet) what is in the list too. */
static void narrow(json_t **all, const json_t *list)
{
    json_t *kept = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *v = json_array_get(list, i);
        if ((!*all || has(*all, v)) && !has(kept, v)) json_array_append(kept, v);
    }
    json_decref(*all);
    *all = kept;
}

json_t *schema_values(struct schema *s, const struct schema_all *all)
{
    json_t *values = NULL;
    for (uint32_t i = 0; i < all->n; i++) {
        json_t *one = json_object_get(all->part[i].node, "const"), *list = json_object_get(all->part[i].node, "enum");
        if (one) {
            json_t *alone = json_array();
            json_array_append(alone, one);
            narrow(&values, alone);
            json_decref(alone);
        }
        if (!list) continue;
        if (!json_is_array(list) || !json_array_size(list))
            schema_fail(s, "enum", "a list of values is needed");
        else if (json_array_size(list) > 2000 && !values)
            values =
                json_incref(list); /* a long list is taken as it is: to look for equal ones would take its square */
        else
            narrow(&values, list);
    }
    return values;
}
