#include "engine/model/hf.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HF_FILE_BYTES_MAX = 16 << 20 };

__attribute__((format(printf, 2, 3))) void hf_fail(struct hf *c, const char *fmt, ...)
{
    if (c->st) return;
    c->st = ST_CONFIG;
    size_t  n = (size_t)snprintf(c->err, c->err_bytes, "%s: ", c->file);
    va_list ap;
    va_start(ap, fmt);
    if (n < c->err_bytes) vsnprintf(c->err + n, c->err_bytes - n, fmt, ap);
    va_end(ap);
}

struct hf_shown hf_show(const json_t *v)
{
    struct hf_shown s = { "missing" };
    if (!v) return s;
    size_t n = json_dumpb(v, s.text, sizeof s.text - 4, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    if (n > sizeof s.text - 4) {
        n = sizeof s.text - 4;
        memcpy(s.text + n, "...", 3);
        n += 3;
    }
    s.text[n] = 0;
    return s;
}

const json_t *hf_value(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return v && !json_is_null(v) ? v : NULL;
}

const json_t *hf_value_or_top(const struct hf *c, const char *key)
{
    const json_t *v = hf_value(c->text, key);
    return v ? v : hf_value(c->top, key);
}

double hf_num_of(struct hf *c, const json_t *v, const char *key, double min, double max, double absent)
{
    if (!v) return absent;
    double d = json_is_number(v) ? json_number_value(v) : (double)NAN;
    if (d >= min && d <= max) return d;
    hf_fail(c, "%s is %s, must be a number from %g to %g", key, hf_show(v).text, min, max);
    return absent;
}

double hf_num(struct hf *c, const json_t *obj, const char *key, double min, double max, double absent)
{
    return hf_num_of(c, hf_value(obj, key), key, min, max, absent);
}

int64_t hf_int(struct hf *c, const json_t *obj, const char *key, int64_t min, int64_t max, int64_t absent)
{
    int64_t     i = 0;
    enum status st = json_get_int(obj, key, min, max, &i);
    if (st == ST_OK) return i;
    if (st == ST_NOT_FOUND && absent != HF_REQUIRED) return absent;
    hf_fail(c, "%s is %s, must be a whole number from %lld to %lld", key, hf_show(json_object_get(obj, key)).text,
            (long long)min, (long long)max);
    return min;
}

uint32_t hf_size(struct hf *c, const char *key, uint32_t min, uint32_t max, int64_t absent)
{
    static const struct {
        const char *key, *old; /* what GPT-2 calls it, and some who began with its configuration */
    } aliases[] = { { "hidden_size", "n_embd" },
                    { "num_hidden_layers", "n_layer" },
                    { "num_attention_heads", "n_head" },
                    { "intermediate_size", "n_inner" },
                    { "max_position_embeddings", "n_positions" } };
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(key, aliases[i].key) && !hf_value(c->text, key) && hf_value(c->text, aliases[i].old))
            key = aliases[i].old;
    return (uint32_t)hf_int(c, c->text, key, min, max, absent);
}

bool hf_flag(struct hf *c, const json_t *v, const char *key, bool absent)
{
    if (!v) return absent;
    if (!json_is_boolean(v)) hf_fail(c, "%s is %s, must be true or false", key, hf_show(v).text);
    return json_is_true(v);
}

const char *hf_str(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_string(v) ? json_string_value(v) : NULL;
}

/* jansson stops at NaN and Infinity, which Python writes: the key in front of that place is what a person looks for. */
static void key_before(const char *text, size_t offset, char *key, size_t key_bytes)
{
    key[0] = 0;
    size_t colon = offset;
    while (colon > 0 && text[colon - 1] != ':') colon--;
    size_t end = colon > 0 ? colon - 1 : 0;
    while (end > 0 && text[end - 1] != '"') end--;
    if (end < 2) return;
    size_t begin = end - 1;
    while (begin > 0 && text[begin - 1] != '"') begin--;
    if (begin == 0 || end - 1 - begin >= key_bytes) return;
    memcpy(key, text + begin, end - 1 - begin);
    key[end - 1 - begin] = 0;
}

enum status hf_read(struct hf *c, const struct source *src, json_t **root_out)
{
    char       *text = NULL;
    size_t      n = 0;
    enum status st = source_text(src, c->file, HF_FILE_BYTES_MAX, &text, &n);
    if (st == ST_NOT_FOUND) return st;
    if (st) {
        snprintf(c->err, c->err_bytes, "%s: cannot read: %s", c->file, strerror(errno));
        return c->st = st == ST_TOO_LARGE ? ST_CONFIG : st;
    }
    struct json_error je;
    json_t           *root = json_parse(text, n, 0, &je);
    char              key[64];
    if (root && json_is_object(root)) {
        *root_out = root;
    } else if (root) {
        hf_fail(c, "is not a JSON object");
        json_decref(root);
    } else if (!strncmp(text, "version https://git-lfs", 23)) {
        hf_fail(c, "is a git-lfs pointer: run git lfs pull in the model's folder");
    } else {
        key_before(text, je.offset < n ? je.offset : n, key, sizeof key);
        hf_fail(c, "not valid JSON at offset %zu%s%s: %s", je.offset, key[0] ? ", near key " : "", key, je.text);
    }
    free(text);
    return c->st;
}
