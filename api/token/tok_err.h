/* tok_err: the one-line error text that names the file and the field that cannot be served.   Thread: one owner. */
#pragma once
#include "api/token/tok_json.h"
#include "base/json.h"

struct tok_err {
    char       *text; /* [bytes] */
    size_t      bytes;
    const char *file; /* "tokenizer.json", "tokenizer_config.json" or "special_tokens_map.json" */
};

/* Writes "file: ..." and returns ST_CONFIG. Control bytes and invalid UTF-8 become '?'. */
enum status tok_fail(const struct tok_err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Parses a small part of a file; the caller owns the value. NULL: the part is invalid, and e has the reason. */
json_t *tok_parse(const struct tok_err *e, const char *field, struct tok_span span);

/* Read a member of the object o. field: the object's place ("normalizer.normalizers[1]"), for the error line. Member
 * absent or null: the default. ST_CONFIG: it has another type, and e says so. */
enum status tok_want_bool(const struct tok_err *e, const char *field, const json_t *o, const char *key, bool absent,
                          bool *out);
enum status tok_want_str(const struct tok_err *e, const char *field, const json_t *o, const char *key,
                         struct tok_span *out); /* borrowed from o; p NULL: absent */
const char *tok_type(const json_t *o);          /* its "type", or "" */
