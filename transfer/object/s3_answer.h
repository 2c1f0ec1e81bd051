/* s3_answer: what a server of S3 says: status lines apart, its headers, errors and lists, as bytes from outside.
 * Thread: any. */
#pragma once
#include "transfer/object/object.h"

struct s3_error {
    char code[64], message[160];
};
/* Of a body of an error; empty strings where it has none. */
void s3_error_parse(const char *text, size_t n, struct s3_error *out);
/* ListObjectsV2: each name behind the prefix goes to r->each, and fills r->more and r->last. false: no such answer. */
bool s3_list_parse(const char *text, size_t n, const char *prefix, struct object_req *r);
/* "bytes 0-9/100" as asked for; total_out: of the object. false: another range, or none. */
bool s3_range_is(const char *value, uint64_t off, uint64_t bytes, uint64_t *total_out);
/* "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110, 5.6.7). false: it is not one. */
bool s3_date_parse(const char *value, uint64_t *unix_s_out);
