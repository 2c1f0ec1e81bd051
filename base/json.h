/* json: a thin interface over jansson for input, and a fast writer for output.   Thread: any, one per value.
 * Input: strict UTF-8, no duplicate keys, at most JSON_DEPTH_MAX levels, no NaN, no BOM, no trailing bytes.
 * Output: straight into a buf; strings are escaped so that they hold no raw control byte (safe in SSE). */
#pragma once
#include "base/buf.h"
#include "base/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 64 };

enum json_wrong {
    JSON_MALFORMED, /* not JSON, or not strict JSON */
    JSON_OVER,      /* over a bound; the text names the bound */
    JSON_NO_OBJECT, /* another value where an object is needed */
};
struct json_error {
    enum json_wrong wrong;
    size_t          offset; /* bytes from the start */
    char            text[160];
};

/* Any JSON value (the caller checks its type). On error NULL and *err filled. Free with json_decref.
 * depth_max 0: JSON_DEPTH_MAX. \u0000 inside strings is kept: use json_string_length. This function is for files, whose
 * objects may have millions of members. Text from clients goes through json_scan.h or json_parse_bounded. */
json_t *json_parse(const char *text, size_t n, uint32_t depth_max, struct json_error *err);

/* Typed look-ups in an object. Absent or null: ST_NOT_FOUND, *out untouched. Wrong type or out of [min,max]:
 * ST_INVALID. json_get_int takes integral doubles too (1.0 is 1), never casts out of range. */
enum status json_get_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *out);
enum status json_get_num(const json_t *obj, const char *key, double min, double max, double *out); /* finite only */
enum status json_get_bool(const json_t *obj, const char *key, bool *out);
enum status json_get_str(const json_t *obj, const char *key, const char **s_out, size_t *n_out); /* borrowed */
/* Whether v (NULL too) is a string of these characters. */
bool json_str_is(const json_t *v, const char *s);

void json_put_str(struct buf *b, const char *s, size_t n);      /* with quotes; invalid UTF-8 becomes U+FFFD */
void json_put_str_body(struct buf *b, const char *s, size_t n); /* without quotes */
/* In decimal digits. */
void json_put_int(struct buf *b, int64_t v);
void json_put_num(struct buf *b, double v); /* shortest that reads back equal, locale-free; not finite: null */
