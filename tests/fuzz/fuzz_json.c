/* Whatever json_parse takes, the writer must give back equal; whatever bytes come, they become a JSON string without
 * controls. */
#include "base/check.h"
#include "base/json_scan.h"
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_value(struct buf *b, const json_t *v)
{
    size_t        i;
    json_t       *item;
    const char   *key;
    const char   *sep = "";
    const json_t *c = v;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        buf_putc(b, '{');
        json_object_foreach((json_t *)(uintptr_t)c, key, item)
        {
            buf_puts(b, sep);
            json_put_str(b, key, strlen(key));
            buf_putc(b, ':');
            write_value(b, item);
            sep = ",";
        }
        buf_putc(b, '}');
        break;
    case JSON_ARRAY:
        buf_putc(b, '[');
        json_array_foreach(c, i, item)
        {
            buf_puts(b, sep);
            write_value(b, item);
            sep = ",";
        }
        buf_putc(b, ']');
        break;
    case JSON_STRING: json_put_str(b, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: json_put_int(b, json_integer_value(v)); break;
    case JSON_REAL: json_put_num(b, json_real_value(v)); break;
    case JSON_TRUE: buf_puts(b, "true"); break;
    case JSON_FALSE: buf_puts(b, "false"); break;
    case JSON_NULL: buf_puts(b, "null"); break;
    }
}

/* json_equal, but a real may come back as an integer of the same value. */
static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!same(json_array_get(a, i), json_array_get(b, i))) return false;
        return true;
    }
    if (json_is_object(a)) {
        const char *key;
        json_t     *item;
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach((json_t *)(uintptr_t)a, key, item)
        {
            const json_t *other = json_object_get(b, key);
            if (!other || !same(item, other)) return false;
        }
        return true;
    }
    return json_equal(a, b);
}

static enum json_want want(void *ctx, const char *name, size_t n)
{
    (void)ctx;
    return n ? (enum json_want)(name[0] % 4) : JSON_SKIP;
}

/* The scan takes what jansson takes, but for numbers beyond its types, what is nested too deeply, and a NUL behind a
 * number, which jansson takes for the end; and fields build as they lie. */
static void check_scan(const char *text, size_t n)
{
    static const struct json_bounds wide = { .members_max = 1 << 30, .tree_bytes_max = (uint64_t)1 << 40 };
    struct json_error               err = { .offset = 0 };
    struct json_cost                cost;
    struct json_fields              f;
    json_error_t                    e;
    json_t                         *v = json_loadb(text, n, JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    bool                            good = json_scan(text, n, &wide, &cost, &err);
    bool                            stricter =
        !strcmp(err.text, "nested too deeply") || strstr(err.text, "byte order") || strstr(err.text, "UTF-16");
    if (v) CHECK(good || stricter || memchr(text, 0, n));
    if (good) CHECK(v || json_error_code(&e) == json_error_numeric_overflow);
    json_decref(v);
    if (!json_fields_scan(text, n, &wide, want, NULL, &f, &err)) return;
    CHECK(good);
    v = json_fields_build(text, &f, &err);
    if (v) CHECK(json_object_size(v) == f.n_field);
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_error err;
    struct buf        b;
    buf_init(&b, 64 << 20);
    json_put_str(&b, (const char *)data, size);
    CHECK(!b.failed);
    for (size_t i = 0; i < b.n; i++) CHECK((unsigned char)b.data[i] >= 0x20 && b.data[i] != 0x7f);
    json_t *s = json_parse(b.data, b.n, 0, &err);
    CHECK(json_is_string(s));
    json_decref(s);

    check_scan((const char *)data, size);
    json_t *v = json_parse((const char *)data, size, 0, &err);
    if (v) {
        int64_t     n;
        double      d;
        const char *text;
        size_t      n_text;
        bool        flag;
        json_get_int(v, "a", -5, 5, &n);
        json_get_num(v, "a", -5, 5, &d);
        json_get_str(v, "a", &text, &n_text);
        json_get_bool(v, "a", &flag);
        buf_clear(&b);
        write_value(&b, v);
        CHECK(!b.failed);
        json_t *again = json_parse(b.data, b.n, 0, &err);
        CHECK(again);
        CHECK(same(v, again));
        json_decref(again);
        json_decref(v);
    } else {
        CHECK(err.offset <= size);
        CHECK(memchr(err.text, 0, sizeof err.text));
    }
    buf_free(&b);
    return 0;
}
