#include "transfer/object/xml.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void xml_begin(struct xml *x, const char *text, size_t n) { *x = (struct xml){ .text = text, .n = n }; }

static enum xml_kind bad(struct xml *x)
{
    x->at = x->n + 1;
    return XML_BAD;
}

/* The place of `end` at or after x->at; n: there is none. */
static size_t find(const struct xml *x, const char *end)
{
    const char *p = memmem(x->text + x->at, x->n - x->at, end, strlen(end));
    return p ? (size_t)(p - x->text) : x->n;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Reads a name up to space, '/' or '>' and drops its prefix. */
static bool take_name(struct xml *x)
{
    size_t from = x->at;
    while (x->at < x->n && !is_space(x->text[x->at]) && x->text[x->at] != '/' && x->text[x->at] != '>') {
        if (x->text[x->at] == '<') return false;
        if (x->text[x->at] == ':') from = x->at + 1;
        x->at++;
    }
    size_t bytes = x->at - from;
    if (!bytes || bytes >= XML_NAME || memchr(x->text + from, 0, bytes)) return false;
    memcpy(x->name, x->text + from, bytes);
    x->name[bytes] = 0;
    return true;
}

/* Behind the '>' of a tag; attributes may hold '>' in quotes. */
static bool take_tag_end(struct xml *x, bool *shut_out)
{
    char quote = 0, before = 0;
    for (; x->at < x->n; x->at++) {
        char c = x->text[x->at];
        if (quote) {
            if (c == quote) quote = 0;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '>') {
            x->at++;
            *shut_out = before == '/';
            return true;
        } else if (c == '<') {
            return false;
        }
        before = c;
    }
    return false;
}

static enum xml_kind take_tag(struct xml *x)
{
    bool shut = false;
    x->at++;
    if (x->at < x->n && x->text[x->at] == '/') {
        x->at++;
        if (!take_name(x) || !take_tag_end(x, &shut) || x->depth == 0) return bad(x);
        x->depth--;
        return XML_CLOSE;
    }
    if (!take_name(x) || !take_tag_end(x, &shut) || x->depth == XML_DEPTH_MAX) return bad(x);
    x->depth++;
    x->shut = shut;
    return XML_OPEN;
}

enum xml_kind xml_next(struct xml *x)
{
    if (x->at > x->n) return XML_BAD;
    if (x->shut) {
        x->shut = false;
        x->depth--;
        return XML_CLOSE;
    }
    while (x->at < x->n) {
        if (x->text[x->at] != '<') {
            x->from = x->at;
            x->at = find(x, "<");
            x->bytes = x->at - x->from;
            if (x->depth) return XML_TEXT;
            continue; /* spaces around the document */
        }
        const char *skip = NULL;
        if (x->n - x->at >= 4 && !memcmp(x->text + x->at, "<!--", 4))
            skip = "-->";
        else if (x->n - x->at >= 2 && x->text[x->at + 1] == '?')
            skip = "?>";
        else if (x->n - x->at >= 2 && x->text[x->at + 1] == '!')
            return bad(x); /* a document type could define entities */
        if (!skip) return take_tag(x);
        x->at = find(x, skip);
        if (x->at == x->n) return bad(x);
        x->at += strlen(skip);
    }
    return x->depth ? bad(x) : XML_END;
}

/* The byte of an entity, or -1; *n: its length with '&' and ';'. Characters beyond ASCII come as UTF-8, not so. */
static int entity(const char *p, size_t left, size_t *n)
{
    static const struct {
        const char *name;
        char        c;
    } known[] = { { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *n = strlen(known[i].name);
        if (left >= *n && !memcmp(p, known[i].name, *n)) return known[i].c;
    }
    if (left < 4 || p[1] != '#') return -1;
    bool     is_hex = p[2] == 'x';
    uint32_t v = 0;
    for (*n = is_hex ? 3 : 2; *n < left && *n < 8 && p[*n] != ';'; (*n)++) {
        char c = p[*n];
        if (c >= '0' && c <= '9')
            v = v * (is_hex ? 16 : 10) + (uint32_t)(c - '0');
        else if (is_hex && (c | 32) >= 'a' && (c | 32) <= 'f')
            v = v * 16 + (uint32_t)((c | 32) - 'a' + 10);
        else
            return -1;
    }
    if (*n >= left || p[*n] != ';' || v == 0 || v > 127) return -1;
    (*n)++;
    return (int)v;
}

bool xml_text(const struct xml *x, char *out, size_t out_bytes)
{
    const char *p = x->text + x->from;
    size_t      k = 0;
    for (size_t i = 0; i < x->bytes; k++) {
        int    c = (unsigned char)p[i];
        size_t n = 1;
        if (c == '&') c = entity(p + i, x->bytes - i, &n);
        if (c <= 0 || k + 1 >= out_bytes) return false;
        out[k] = (char)c;
        i += n;
    }
    if (k >= out_bytes) return false;
    out[k] = 0;
    return true;
}

bool xml_find(const char *text, size_t n, const char *name, char *out, size_t out_bytes)
{
    struct xml    x;
    enum xml_kind k;
    bool          inside = false;
    xml_begin(&x, text, n);
    while ((k = xml_next(&x)) != XML_END && k != XML_BAD) {
        if (k == XML_TEXT && inside) return xml_text(&x, out, out_bytes);
        inside = k == XML_OPEN && !strcmp(x.name, name);
    }
    return false;
}
