#include "api/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int         http;
    const char *type;
} types[] = {
    { 400, "BadRequestError" },
    { 401, "AuthenticationError" },
    { 403, "PermissionDeniedError" },
    { 404, "NotFoundError" },
    { 405, "Method Not Allowed" },
    { 408, "Request Timeout" },
    { 411, "Length Required" },
    { 413, "Payload Too Large" },
    { 414, "URI Too Long" },
    { 415, "Unsupported Media Type" },
    { 417, "Expectation Failed" },
    { 421, "Misdirected Request" },
    { 422, "UnprocessableEntityError" },
    { 424, "FailedDependencyError" },
    { 429, "RateLimitError" },
    { 431, "Request Header Fields Too Large" },
    { 500, "InternalServerError" },
    { 501, "NotImplementedError" },
    { 503, "ServiceUnavailableError" },
    { 505, "HTTP Version Not Supported" },
};

static void fill(struct api_error *e, int http, const char *param, const char *code, const char *fmt, va_list ap)
{
    *e = (struct api_error){ .http = http };
    const char *type = http < 500 ? "BadRequestError" : "InternalServerError";
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].http == http) type = types[i].type;
    snprintf(e->type, sizeof e->type, "%s", type);
    snprintf(e->code, sizeof e->code, "%s", code);
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    vsnprintf(e->message, sizeof e->message, fmt, ap);
}

enum status api_fail(struct api_error *e, int http, const char *param, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(e, http, param, "", fmt, ap);
    va_end(ap);
    return ST_INVALID;
}

enum status api_keep_private(struct api_error *e)
{
    const char *colon = strstr(e->message, ": ");
    if (colon) e->n_public = (uint32_t)(colon - e->message);
    return ST_INVALID;
}

enum status api_fail_code(struct api_error *e, int http, const char *param, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(e, http, param, code, fmt, ap);
    va_end(ap);
    return ST_INVALID;
}

static void put_string(struct buf *b, const char *key, const char *s, bool null_if_empty)
{
    buf_puts(b, key);
    if (null_if_empty && !*s)
        buf_puts(b, "null");
    else
        json_put_str(b, s, strlen(s));
}

void api_error_json(struct buf *b, const struct api_error *e)
{
    put_string(b, "{\"error\":{\"message\":", e->message, false);
    put_string(b, ",\"type\":", e->type, false);
    put_string(b, ",\"param\":", e->param, true);
    buf_puts(b, ",\"code\":");
    if (*e->code)
        json_put_str(b, e->code, strlen(e->code));
    else
        json_put_int(b, e->http);
    buf_puts(b, "}}");
}

enum { EXCERPT_CHARS = 64 };

const char *api_excerpt(char *dst, size_t dst_bytes, const char *s, size_t n)
{
    static const char more[] = "...";
    size_t            k = 0, chars = 0, cut = 0; /* cut: where "..." goes when it turns out to be too long */
    for (size_t i = 0; i < n;) {
        uint32_t cp, len = utf8_decode(s + i, n - i, &cp);
        bool     plain = len && cp >= 0x20 && cp != 0x7f && cp != '\\' &&
                     (cp < 0x80 || (cp >= 0xa0 && cp != 0x2028 && cp != 0x2029));
        size_t cost = plain ? 1 : 4, bytes = plain ? len : 4;
        if (chars + cost > EXCERPT_CHARS || k + bytes + sizeof more > dst_bytes) {
            memcpy(dst + cut, more, sizeof more);
            return dst;
        }
        if (plain)
            memcpy(dst + k, s + i, len);
        else
            snprintf(dst + k, 5, "\\x%02x", (unsigned char)s[i]);
        k += bytes;
        chars += cost;
        i += plain ? len : 1;
        if (chars + sizeof more - 1 <= EXCERPT_CHARS) cut = k;
    }
    dst[k] = 0;
    return dst;
}
