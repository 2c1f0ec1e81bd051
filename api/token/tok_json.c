#include "api/token/tok_json.h"
#include "base/utf8.h"
#include "base/hex.h"
#include <string.h>

enum { TOK_JSON_DEPTH_MAX = 64 };

void tok_json_init(struct tok_json *j, const char *text, size_t n)
{
    *j = (struct tok_json){ .begin = text, .p = text, .end = text + n };
    buf_init(&j->unescaped, n);
}

void tok_json_free(struct tok_json *j) { buf_free(&j->unescaped); }

int tok_json_peek(struct tok_json *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t')) j->p++;
    return j->p < j->end ? (unsigned char)*j->p : -1;
}

/* The next byte that is no white space, if it is c. */
static bool take(struct tok_json *j, char c)
{
    if (tok_json_peek(j) != (unsigned char)c) return false;
    j->p++;
    return true;
}

static int hex4(const char *p, const char *end)
{
    if (end - p < 4) return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int d = hex_value(p[i]);
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

static void put_utf8(struct buf *b, uint32_t cp)
{
    char text[4];
    buf_put(b, text, utf8_encode(cp, text));
}

/* After the backslash. */
static bool escape(struct tok_json *j)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (j->p >= j->end) return false;
    const char *at = *j->p ? strchr(from, *j->p) : NULL;
    if (at) {
        buf_putc(&j->unescaped, to[at - from]);
        j->p++;
        return true;
    }
    int hi = *j->p == 'u' ? hex4(j->p + 1, j->end) : -1;
    if (hi < 0 || (hi >= 0xdc00 && hi < 0xe000)) return false;
    uint32_t cp = (uint32_t)hi;
    if (hi >= 0xd800 && hi < 0xdc00) {
        const char *q = j->p + 5;
        int         lo = j->end - q >= 6 && q[0] == '\\' && q[1] == 'u' ? hex4(q + 2, j->end) : -1;
        if (lo < 0xdc00 || lo >= 0xe000) return false;
        cp = 0x10000 + ((uint32_t)(hi - 0xd800) << 10) + (uint32_t)(lo - 0xdc00);
        j->p += 6;
    }
    j->p += 5;
    put_utf8(&j->unescaped, cp);
    return true;
}

bool tok_json_string(struct tok_json *j, struct tok_span *s_out)
{
    if (!take(j, '"')) return false;
    const char *run = j->p;
    bool        escaped = false;
    for (; j->p < j->end && *j->p != '"';) {
        if ((unsigned char)*j->p < 0x20) return false;
        if (*j->p != '\\') {
            j->p++;
            continue;
        }
        if (!escaped) buf_clear(&j->unescaped);
        escaped = true;
        buf_put(&j->unescaped, run, (size_t)(j->p - run));
        j->p++;
        if (!escape(j)) return false;
        run = j->p;
    }
    if (j->p >= j->end) return false;
    if (escaped) {
        buf_put(&j->unescaped, run, (size_t)(j->p - run));
        if (j->unescaped.failed) return false;
    }
    *s_out = escaped ? (struct tok_span){ j->unescaped.data, j->unescaped.n }
                     : (struct tok_span){ run, (size_t)(j->p - run) };
    j->p++;
    return true;
}

bool tok_json_u32(struct tok_json *j, uint32_t *v_out)
{
    tok_json_peek(j);
    const char *first = j->p;
    uint64_t    v = 0;
    for (; j->p < j->end && *j->p >= '0' && *j->p <= '9'; j->p++) {
        v = v * 10 + (uint64_t)(*j->p - '0');
        if (v > UINT32_MAX) return false;
    }
    if (j->p == first || (j->p - first > 1 && *first == '0')) return false;
    *v_out = (uint32_t)v;
    return j->p >= j->end || (*j->p != '.' && *j->p != 'e' && *j->p != 'E');
}

bool tok_json_value(struct tok_json *j, struct tok_span *span_out)
{
    if (tok_json_peek(j) < 0) return false;
    const char *first = j->p;
    uint32_t    depth = 0;
    do {
        switch (tok_json_peek(j)) {
        case -1: return false;
        case '"':
            for (j->p++; j->p < j->end && *j->p != '"'; j->p++)
                if (*j->p == '\\') j->p++;
            if (j->p >= j->end) return false;
            j->p++;
            break;
        case '{':
        case '[':
            if (++depth > TOK_JSON_DEPTH_MAX) return false;
            j->p++;
            break;
        case '}':
        case ']':
            if (!depth--) return false;
            j->p++;
            break;
        case ',':
        case ':':
            if (!depth) return false;
            j->p++;
            break;
        default: /* a number or a word */
            while (j->p < j->end && !strchr(" \t\r\n,:]}[{\"", *j->p)) j->p++;
            if (j->p < j->end && !*j->p) return false;
        }
    } while (depth);
    *span_out = (struct tok_span){ first, (size_t)(j->p - first) };
    return j->p > first;
}

bool tok_json_begin(struct tok_json *j, struct tok_json_walk *w, char open)
{
    *w = (struct tok_json_walk){ .close = open == '{' ? '}' : ']' };
    return take(j, open);
}

bool tok_json_next(struct tok_json *j, struct tok_json_walk *w)
{
    if (take(j, w->close)) {
        w->ok = true;
        return false;
    }
    if (w->begun && !take(j, ',')) return false;
    if (w->begun && tok_json_peek(j) == (unsigned char)w->close) return false; /* "[1,]" */
    w->begun = true;
    return true;
}

bool tok_json_key(struct tok_json *j, struct tok_span *key_out) { return tok_json_string(j, key_out) && take(j, ':'); }
