#include "api/calls/calls_impl.h"
#include "base/utf8.h"
#include "base/hash.h"
#include "base/json_scan.h"
#include <string.h>

/* Arguments with markers around each become the object {"K": V, ..}. The schema says what V is: strings go out as they
 * come, everything else when it is whole. Text that is not of its kind is a string. */

static const struct json_bounds bounds = { .depth_max = CALLS_DEPTH_MAX,
                                           .members_max = 1 << 16,
                                           .tree_bytes_max = 64 << 20 };

/* ---------------------------------------------------------------- characters of a string */

bool calls_arg_char(struct calls *p, char c)
{
    static const char hex[] = "0123456789abcdef";
    unsigned char     u = (unsigned char)c;
    switch (c) {
    case '"': return calls_arg(p, "\\\"", 2);
    case '\\': return calls_arg(p, "\\\\", 2);
    case '\n': return calls_arg(p, "\\n", 2);
    case '\r': return calls_arg(p, "\\r", 2);
    case '\t': return calls_arg(p, "\\t", 2);
    default: break;
    }
    if (u >= 0x20) return calls_arg(p, &c, 1);
    const char code[] = { '\\', 'u', '0', '0', hex[u >> 4], hex[u & 15] };
    return calls_arg(p, code, sizeof code);
}

bool calls_arg_code(struct calls *p, uint32_t cp)
{
    char b[4];
    if (cp < 0x80) return calls_arg_char(p, (char)cp);
    return calls_arg(p, b, utf8_encode(cp, b));
}

static bool put_string(struct calls *p, const char *s, size_t n)
{
    bool fits = calls_arg(p, "\"", 1);
    for (size_t i = 0; fits && i < n; i++) fits = calls_arg_char(p, s[i]);
    return fits && calls_arg(p, "\"", 1);
}

/* ---------------------------------------------------------------- what a text is */

bool calls_number_good(const char *s, size_t n, bool integer)
{
    size_t i = 0, from;
    if (i < n && s[i] == '-') i++;
    from = i;
    while (i < n && s[i] >= '0' && s[i] <= '9') i++;
    if (i == from || (s[from] == '0' && i > from + 1)) return false;
    if (integer) return i == n;
    if (i < n && s[i] == '.') {
        from = ++i;
        while (i < n && s[i] >= '0' && s[i] <= '9') i++;
        if (i == from) return false;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-')) i++;
        from = i;
        while (i < n && s[i] >= '0' && s[i] <= '9') i++;
        if (i == from) return false;
    }
    return i == n;
}

static bool is(const char *s, size_t n, const char *word) { return n == strlen(word) && !memcmp(s, word, n); }

bool calls_word_good(const char *s, size_t n)
{
    return is(s, n, "true") || is(s, n, "false") || is(s, n, "null") || calls_number_good(s, n, false);
}

static bool put_typed(struct calls *p, uint8_t kinds, const char *s, size_t n)
{
    struct json_cost  cost;
    struct json_error je;
    const char       *t = s;
    size_t            k = n;
    while (k && calls_blank(*t)) {
        t++;
        k--;
    }
    while (k && calls_blank(t[k - 1])) k--;
    if (kinds & CALLS_NULL && is(t, k, "null")) return calls_arg(p, t, k);
    if (kinds & CALLS_BOOL && (is(t, k, "true") || is(t, k, "True"))) return calls_arg(p, "true", 4);
    if (kinds & CALLS_BOOL && (is(t, k, "false") || is(t, k, "False"))) return calls_arg(p, "false", 5);
    if (kinds & CALLS_INTEGER && calls_number_good(t, k, true)) return calls_arg(p, t, k);
    if (kinds & CALLS_NUMBER && calls_number_good(t, k, false)) return calls_arg(p, t, k);
    bool shape = k && ((kinds & CALLS_OBJECT && *t == '{') || (kinds & CALLS_ARRAY && *t == '['));
    bool quoted = k && kinds == CALLS_ANY && *t == '"';
    if ((shape || quoted) && json_scan(t, k, &bounds, &cost, &je)) return calls_arg(p, t, k);
    return put_string(p, s, n);
}

/* ---------------------------------------------------------------- keys and values */

bool calls_key_end(struct calls *p)
{
    uint32_t from = 0;
    while (from < p->n_key && calls_blank(p->key[from])) from++;
    while (p->n_key > from && calls_blank(p->key[p->n_key - 1])) p->n_key--;
    const char *key = p->key + from;
    size_t      n = p->n_key - from, n_seen = p->keys.n / sizeof(uint64_t);
    uint64_t    h = hash_bytes(key, n, 0), seen;
    p->value_skip = false;
    p->n_look += n_seen;
    for (size_t i = 0; i < n_seen; i++) {
        memcpy(&seen, p->keys.data + i * sizeof seen, sizeof seen);
        if (seen == h) p->value_skip = true; /* the first one counts */
    }
    p->kinds = calls_tool_kinds(p->tool, key, n);
    if (p->value_skip) return true;
    if (n_seen >= CALLS_KEYS_MAX) return false;
    buf_put(&p->keys, &h, sizeof h);
    return (n_seen ? calls_arg(p, ", ", 2) : calls_arg(p, "{", 1)) && put_string(p, key, n) && calls_arg(p, ": ", 2);
}

void calls_value_begin(struct calls *p)
{
    buf_clear(&p->value);
    p->value_first = p->cfg.model->row->cut;
    p->value_newline = false;
    p->value_open = false;
}

static bool value_put(struct calls *p, char c)
{
    if (p->value_skip) return true;
    if (p->kinds != CALLS_STRING) {
        buf_put(&p->value, &c, 1);
        return !p->value.failed;
    }
    if (!p->value_open && !calls_arg(p, "\"", 1)) return false;
    p->value_open = true;
    return calls_arg_char(p, c);
}

bool calls_value_byte(struct calls *p, char c)
{
    bool first = p->value_first, fits = true;
    p->value_first = false;
    if (first && c == '\n') return true;
    if (p->value_newline) fits = value_put(p, '\n'); /* it was not the last one */
    p->value_newline = p->cfg.model->row->cut && c == '\n';
    return fits && (p->value_newline || value_put(p, c));
}

bool calls_value_end(struct calls *p)
{
    p->value_newline = false;
    if (p->value_skip) return true;
    if (p->kinds != CALLS_STRING) return put_typed(p, p->kinds, p->value.data ? p->value.data : "", p->value.n);
    if (!p->value_open && !calls_arg(p, "\"", 1)) return false;
    p->value_open = false;
    return calls_arg(p, "\"", 1);
}
