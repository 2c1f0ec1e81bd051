#include "server/scan.h"
#include "base/hex.h"
#include <string.h>

/* RFC 9110, 5.6.2: tchar */
static bool is_tchar(unsigned char c)
{
    static const char mark[] = "!#$%&'*+-.^_`|~";
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c && strchr(mark, c));
}

static bool is_token(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_tchar((unsigned char)p[i])) return false;
    return n > 0;
}

static bool is_field_byte(unsigned char c) { return c == '\t' || (c >= 0x20 && c != 0x7f); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* method SP target SP HTTP/d.d */
static int scan_request_line(const char *p, size_t n)
{
    const char *sp = memchr(p, ' ', n);
    if (!sp || !is_token(p, (size_t)(sp - p))) return 400;
    const char *target = sp + 1, *end = p + n;
    const char *sp2 = memchr(target, ' ', (size_t)(end - target));
    if (!sp2 || sp2 == target) return 400;
    if (sp2 - target > HTTP_URI_MAX) return 414;
    for (const char *u = target; u < sp2; u++)
        if (*u <= ' ' || *u > '~' || *u == '\\' || *u == '"' || *u == '<' || *u == '>' || *u == '^' || *u == '`' ||
            *u == '{' || *u == '|' || *u == '}' || *u == '#')
            return 400;
    const char *v = sp2 + 1;
    if (end - v != 8 || memcmp(v, "HTTP/", 5) || !is_digit(v[5]) || v[6] != '.' || !is_digit(v[7])) return 400;
    return v[5] == '1' && (v[7] == '0' || v[7] == '1') ? 0 : 505;
}

/* name ':' value, no space before the colon, no folding */
static int scan_field_line(const char *p, size_t n)
{
    const char *colon = memchr(p, ':', n);
    if (!colon || !is_token(p, (size_t)(colon - p))) return 400;
    for (const char *v = colon + 1; v < p + n; v++)
        if (!is_field_byte((unsigned char)*v)) return 400;
    return 0;
}

int scan_head(struct scan_head *s, const char *p, size_t n, size_t *n_out)
{
    for (;;) {
        /* TLS on a plain port, or another protocol: no need to wait for a line */
        if (!s->n_line && n > s->start && !is_tchar((unsigned char)p[s->start]) && (s->start || p[0] != '\r'))
            return 400;
        const char *lf = n > s->seen ? memchr(p + s->seen, '\n', n - s->seen) : NULL;
        size_t      end = lf ? (size_t)(lf - p) : n, len = end - s->line; /* with the CR */
        if (!s->n_line && len > HTTP_FIRST_MAX) return 414;
        if (s->n_line && (len > HTTP_LINE_MAX + 1 || end - s->fields > HTTP_FIELDS_MAX)) return 431;
        if (!lf) {
            s->seen = n;
            return 0;
        }
        if (!len || p[end - 1] != '\r') return 400;
        size_t next = end + 1;
        if (len == 1 && !s->n_line) { /* RFC 9112, 2.2: one empty line before the request line is ignored */
            if (s->line) return 400;
            s->start = s->line = s->seen = next;
            continue;
        }
        if (len == 1) {
            *n_out = next;
            return 1;
        }
        if (s->n_line > HTTP_HEADERS_MAX) return 431;
        int code = s->n_line ? scan_field_line(p + s->line, len - 1) : scan_request_line(p + s->line, len - 1);
        if (code) return code;
        if (!s->n_line++) s->fields = next;
        s->line = s->seen = next;
    }
}

/* ---- chunked bodies ---- */

/* One byte of framing. 0, or the http code. */
static int scan_chunk_byte(struct scan_chunk *s, char c, uint64_t payload_max)
{
    unsigned char u = (unsigned char)c;
    switch (s->st) {
    case CHUNK_SIZE:
    case CHUNK_DIGITS: {
        int x = hex_value(c);
        if (x >= 0) {
            if (++s->n_digit > 16) return 400;
            s->left = s->left << 4 | (unsigned)x;
            s->st = CHUNK_DIGITS;
            return 0;
        }
        if (s->st == CHUNK_SIZE) return 400;
        if (s->left > payload_max || s->payload > payload_max - s->left) return c == '\r' || c == ';' ? 413 : 400;
        if (c != '\r' && c != ';') return 400;
        s->st = c == '\r' ? CHUNK_SIZE_LF : CHUNK_EXT_NAME0;
        return 0;
    }
    case CHUNK_EXT_NAME0:
        if (!is_tchar(u)) return 400;
        s->st = CHUNK_EXT_NAME;
        break;
    case CHUNK_EXT_NAME:
        if (is_tchar(u)) break;
        if (c != '=' && c != ';' && c != '\r') return 400;
        s->st = c == ';' ? CHUNK_EXT_NAME0 : CHUNK_SIZE_LF;
        if (c == '=') s->st = CHUNK_EXT_VALUE0;
        break;
    case CHUNK_EXT_VALUE0:
        if (c != '"' && !is_tchar(u)) return 400;
        s->st = c == '"' ? CHUNK_EXT_QUOTED : CHUNK_EXT_VALUE;
        break;
    case CHUNK_EXT_VALUE:
        if (is_tchar(u)) break;
        /* fall through */
    case CHUNK_EXT_END:
        if (c != ';' && c != '\r') return 400;
        s->st = c == ';' ? CHUNK_EXT_NAME0 : CHUNK_SIZE_LF;
        break;
    case CHUNK_EXT_QUOTED:
        if (!is_field_byte(u)) return 400;
        if (c == '"' || c == '\\') s->st = c == '"' ? CHUNK_EXT_END : CHUNK_EXT_ESCAPED;
        break;
    case CHUNK_EXT_ESCAPED:
        if (!is_field_byte(u)) return 400;
        s->st = CHUNK_EXT_QUOTED;
        break;
    case CHUNK_SIZE_LF:
        if (c != '\n') return 400;
        s->st = s->left ? CHUNK_DATA : CHUNK_TRAILER0;
        return 0;
    case CHUNK_DATA_CR:
        if (c != '\r') return 400;
        s->st = CHUNK_DATA_LF;
        return 0;
    case CHUNK_DATA_LF:
        if (c != '\n') return 400;
        s->st = CHUNK_SIZE;
        s->n_digit = 0;
        return 0;
    case CHUNK_TRAILER0:
        if (c == '\r') {
            s->st = CHUNK_END_LF;
            return 0;
        }
        if (!is_tchar(u)) return 400;
        s->st = CHUNK_TRAILER_NAME;
        return ++s->n_trailer > HTTP_TRAILER_MAX ? 431 : 0;
    case CHUNK_TRAILER_NAME:
        if (c != ':' && !is_tchar(u)) return 400;
        if (c == ':') s->st = CHUNK_TRAILER_VALUE;
        return ++s->n_trailer > HTTP_TRAILER_MAX ? 431 : 0;
    case CHUNK_TRAILER_VALUE:
        if (c != '\r' && !is_field_byte(u)) return 400;
        if (c == '\r') s->st = CHUNK_TRAILER_LF;
        return ++s->n_trailer > HTTP_TRAILER_MAX ? 431 : 0;
    case CHUNK_TRAILER_LF:
        if (c != '\n') return 400;
        s->st = CHUNK_TRAILER0;
        return 0;
    case CHUNK_END_LF:
        if (c != '\n') return 400;
        s->st = CHUNK_DONE;
        return 0;
    case CHUNK_DATA:
    case CHUNK_DONE: break;
    }
    return ++s->n_ext > HTTP_CHUNK_EXT_MAX ? 400 : 0; /* the states of extensions end here */
}

/* Trailers are dropped, and so are extensions, which llhttp reads by another grammar (no quoted-pair): neither of them
 * reaches the parser. */
static bool is_hidden(enum scan_chunk_state st, char c)
{
    if (st >= CHUNK_TRAILER0 && st <= CHUNK_END_LF) return true;
    if (st == CHUNK_DIGITS) return c == ';';
    return st >= CHUNK_EXT_NAME0 && st <= CHUNK_EXT_END && c != '\r';
}

int scan_chunk(struct scan_chunk *s, const char *p, size_t n, uint64_t payload_max, size_t *n_out, size_t *feed_out)
{
    bool   hidden = n && is_hidden(s->st, *p);
    size_t i = 0;
    int    code = 0;
    while (i < n && s->st != CHUNK_DONE && is_hidden(s->st, p[i]) == hidden) {
        if (s->st == CHUNK_DATA) {
            size_t take = s->left < n - i ? (size_t)s->left : n - i;
            s->left -= take;
            s->payload += take;
            i += take;
            if (!s->left) s->st = CHUNK_DATA_CR;
            continue;
        }
        code = scan_chunk_byte(s, p[i], payload_max);
        if (code) break;
        i++;
        s->overhead++;
        /* as h2o since 2024-01: chunk framing may not outweigh the data by far (CVE-2023-39326) */
        if (s->overhead > HTTP_CHUNK_OVERHEAD && s->payload < (s->payload + s->overhead) / 4) {
            code = 400;
            break;
        }
    }
    *n_out = i;
    *feed_out = hidden ? 0 : i;
    return code ? code : s->st == CHUNK_DONE;
}
