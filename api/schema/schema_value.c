/* schema_value: constants of a schema, each in its only spelling, and the white space between tokens. */
#include "api/schema/chars.h"
#include "api/schema/regex.h"
#include "api/schema/schema_impl.h"
#include "api/schema/value_set.h"
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

static void put_text(struct rx_texts *t, const char *text) { rx_texts_bytes(t, text, strlen(text)); }

/* Only bytes below 0x80 have escapes, so that characters need not be told apart. */
static void put_string(struct rx_texts *t, const char *s, size_t n)
{
    put_text(t, "\"");
    for (size_t i = 0; i < n; i++) {
        char        text[8];
        const char *escape = chars_escape((unsigned char)s[i], text);
        if (escape)
            put_text(t, escape);
        else
            rx_texts_bytes(t, s + i, 1);
    }
    put_text(t, "\"");
}

static void put_spaced(struct schema *s, struct rx_texts *t, const char *text)
{
    rx_texts_rx(t, schema_space(s));
    put_text(t, text);
    rx_texts_rx(t, schema_space(s));
}

static void put_number(struct schema *s, struct rx_texts *t, const json_t *value)
{
    struct buf  b;
    bool        one = true;
    const char *text = json_is_real(value) ? schema_big_text(s, json_real_value(value), &one) : NULL;
    if (!one)
        schema_beyond(s, json_object_get(s->node, "const") ? "const" : "enum",
                      "numbers beyond 64 bits are too near each other to be told apart");
    buf_init(&b, 400);
    if (text && one)
        buf_puts(&b, text);
    else if (json_is_integer(value))
        json_put_int(&b, json_integer_value(value));
    else
        json_put_num(&b, json_real_value(value));
    rx_texts_bytes(t, b.data, b.n);
    buf_free(&b);
}

static void put(struct schema *s, struct rx_texts *t, const json_t *value);

/* Members or elements in a row, with white space where it is allowed. */
static void put_list(struct schema *s, struct rx_texts *t, const json_t *value)
{
    bool   object = json_is_object(value);
    size_t n = object ? json_object_size(value) : json_array_size(value);
    void  *it = object ? json_object_iter((json_t *)(uintptr_t)value) : NULL;
    put_text(t, object ? "{" : "[");
    rx_texts_rx(t, schema_space(s));
    for (size_t i = 0; i < n; i++) {
        if (i) put_spaced(s, t, ",");
        if (object) {
            put_string(t, json_object_iter_key(it), json_object_iter_key_len(it));
            put_spaced(s, t, ":");
            put(s, t, json_object_iter_value(it));
            it = json_object_iter_next((json_t *)(uintptr_t)value, it);
        } else {
            put(s, t, json_array_get(value, i));
        }
    }
    if (n) rx_texts_rx(t, schema_space(s));
    put_text(t, object ? "}" : "]");
}

static void put(struct schema *s, struct rx_texts *t, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL: put_text(t, "null"); break;
    case JSON_TRUE: put_text(t, "true"); break;
    case JSON_FALSE: put_text(t, "false"); break;
    case JSON_STRING: put_string(t, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER:
    case JSON_REAL: put_number(s, t, value); break;
    default: put_list(s, t, value); break;
    }
}

void schema_put_string(struct rx_texts *t, const char *text, size_t n)
{
    put_string(t, text, n);
    rx_texts_end(t);
}

void schema_put(struct schema *s, struct rx_texts *t, const json_t *value)
{
    put(s, t, value);
    rx_texts_end(t);
}

uint32_t schema_literal(struct schema *s, const json_t *value)
{
    struct rx_texts t;
    rx_texts_init(&t, s->x);
    schema_put(s, &t, value);
    uint32_t r = rx_texts_any(&t);
    rx_texts_free(&t);
    return r;
}

/* ---------------------------------------------------------------- values */

/* Leaves of *all (NULL: nothing has narrowed it yet) what is in the list too, each value once. */
static void narrow(struct schema *s, json_t **all, const json_t *list)
{
    struct value_set in, kept;
    json_t          *out = json_array();
    value_set_init(&in);
    value_set_init(&kept);
    for (size_t i = 0; i < json_array_size(*all); i++) value_set_add(&in, json_array_get(*all, i));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *v = json_array_get(list, i);
        if ((!*all || value_set_has(&in, v)) && value_set_add(&kept, v)) json_array_append(out, v);
    }
    if (in.failed || kept.failed) schema_fail(s, "enum", "no memory");
    value_set_free(&in);
    value_set_free(&kept);
    json_decref(*all);
    *all = out;
}

json_t *schema_values(struct schema *s, const struct schema_all *all)
{
    const json_t *was = s->node;
    json_t       *values = NULL;
    for (uint32_t i = 0; i < all->n; i++) {
        s->node = all->part[i].node;
        json_t *one = json_object_get(all->part[i].node, "const"), *list = json_object_get(all->part[i].node, "enum");
        if (one) {
            json_t *alone = json_array();
            json_array_append(alone, one);
            narrow(s, &values, alone);
            json_decref(alone);
        }
        if (!list) continue;
        if (!json_is_array(list) || !json_array_size(list))
            schema_fail(s, "enum", "a list of values is needed");
        else
            narrow(s, &values, list);
    }
    s->node = was;
    return values;
}

void schema_excluded(const struct schema_all *all, struct value_set *no)
{
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *node = all->part[i].done & DONE_NOT ? NULL : json_object_get(all->part[i].node, "not");
        const json_t *one = json_object_get(node, "const"), *list = json_object_get(node, "enum");
        if (one) value_set_add(no, one);
        for (size_t k = 0; k < json_array_size(list); k++) value_set_add(no, json_array_get(list, k));
    }
}
