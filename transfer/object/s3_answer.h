/* s3_answer: parsers of an S3 server's headers, error bodies and lists. The input is untrusted.   Thread: any. */
#pragma once
#include "transfer/object/object.h"

struct s3_error {
    char code[64], message[160];
};
/* Reads code and message of an error's body; a missing one becomes "". */
void s3_error_parse(const char *text, size_t n, struct s3_error *out);
/* Reads an answer to ListObjectsV2: calls r->each for each name, without the prefix, and sets r->more and r->last.
 * false:
 * the text is no such answer. */
bool s3_list_parse(const char *text, size_t n, const char *prefix, struct object_req *r);
/* Whether a Content-Range such as "bytes 0-9/100" is the range asked for. *total_out: bytes of the object. */
bool s3_range_is(const char *value, uint64_t off, uint64_t bytes, uint64_t *total_out);
/* Parses "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7). false: value has another form. */
bool s3_date_parse(const char *value, uint64_t *unix_s_out);
