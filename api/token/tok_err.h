/* tok_err: the one line that says which field of which file cannot be served.   Thread: one owner. */
#pragma once
#include "api/token/tok_json.h"
#include "base/json.h"

struct tok_err {
    char       *text; /* [bytes] */
    size_t      bytes;
    const char *file; /* "tokenizer.json" or "tokenizer_config.json" */
};

/* Writes "file: ..." and returns ST_CONFIG. Bytes that no line should hold become '?'. */
enum status tok_fail(const struct tok_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Parses a small part; NULL: failed, and said so. */
json_t *tok_parse(const struct tok_err *e, const char *field, struct tok_span span);

/* Members of a component. field is its place ("normalizer.normalizers[1]"). Wrong type: ST_CONFIG, said. Absent or
 * null: the default. */
enum status tok_want_bool(const struct tok_err *e, const char *field, const json_t *o, const char *key, bool absent,
                          bool *out);
enum status tok_want_str(const struct tok_err *e, const char *field, const json_t *o, const char *key,
                         struct tok_span *out); /* p NULL: absent */
const char *tok_type(const json_t *o);          /* its "type", or "" */
