#include "base/json_load.h"
#include "base/buf.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY,
    DIGITS_SAFE = 18,        /* a number of so many digits fits 64 bits */
    COPY_BYTES_MAX = 4 << 20 /* of text that is written anew for its numbers; more is refused as jansson refuses it */
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_of_number(char c) { return is_digit(c) || c == '.' || c == 'e' || c == 'E' || c == '+' || c == '-'; }

/* Whether text[0..n), a number, is a whole one beyond 64 bits. */
static bool is_too_big(const char *text, size_t n)
{
    char   digits[32];
    size_t sign = *text == '-';
    if (n - sign <= DIGITS_SAFE) return false;
    for (size_t i = sign; i < n; i++)
        if (!is_digit(text[i])) return false;
    if (n >= sizeof digits) return true;
    memcpy(digits, text, n);
    digits[n] = 0;
    errno = 0;
    (void)strtoll(digits, NULL, 10);
    return errno == ERANGE;
}

/* 123 becomes 1.23e2. */
static void put_float(struct buf *b, const char *text, size_t n)
{
    size_t sign = *text == '-', power = n - sign - 1;
    buf_put(b, text, sign + 1);
    buf_putc(b, '.');
    buf_put(b, text + sign + 1, power);
    buf_printf(b, "e%zu", power);
}

/* The end of the string, with its quote, that begins at `at`. */
static size_t string_end(const char *text, size_t n, size_t at)
{
    for (at++; at < n && text[at] != '"'; at++) at += text[at] == '\\';
    return at < n ? at + 1 : n;
}

/* The end of the number, the string, or the byte that begins at `at`. */
static size_t token_end(const char *text, size_t n, size_t at, bool *number_out)
{
    size_t end = text[at] == '"' ? string_end(text, n, at) : at + 1;
    *number_out = is_digit(text[at]) || text[at] == '-';
    while (*number_out && end < n && is_of_number(text[end])) end++;
    return end;
}

bool json_load_big(const char *text, size_t n, json_t *list)
{
    bool number;
    for (size_t at = 0, end; at < n; at = end) {
        end = token_end(text, n, at, &number);
        if (!number || !is_too_big(text + at, end - at)) continue;
        if (json_array_append_new(list, json_stringn(text + at, end - at))) return false;
    }
    return true;
}

/* text with floats for whole numbers beyond 64 bits. */
static void rewrite(struct buf *b, const char *text, size_t n)
{
    bool number;
    for (size_t at = 0, end; at < n; at = end) {
        end = token_end(text, n, at, &number);
        if (number && is_too_big(text + at, end - at))
            put_float(b, text + at, end - at);
        else
            buf_put(b, text + at, end - at);
    }
}

json_t *json_load(const char *text, size_t n, json_error_t *e, bool *big_out)
{
    json_t *v = json_loadb(text, n, FLAGS, e);
    if (v || json_error_code(e) != json_error_numeric_overflow || n > COPY_BYTES_MAX) return v;
    struct buf   b;
    json_error_t again; /* its places are of the copy */
    buf_init(&b, 2 * COPY_BYTES_MAX);
    rewrite(&b, text, n);
    if (!b.failed) v = json_loadb(b.data, b.n, FLAGS, &again);
    if (v) *big_out = true;
    buf_free(&b);
    return v;
}
