/* sigv4: signs HTTP requests by AWS Signature Version 4, and encodes the parts of a URL as that signature needs.
 * Thread: any.
 * The canonical form of a request: method, path, query, headers, names of the headers, SHA-256 of the body. The key is
 * derived from the secret by four HMACs over day, region, service and a constant. */
#pragma once
#include "base/buf.h"
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIGV4_HEX = 65, SIGV4_DATE = 17, SIGV4_TEXT_MAX = 16 << 10 };

struct sigv4_header {
    const char *name, *value; /* name in lower case; value without spaces around it */
};
struct sigv4_request {
    const char                *method;
    const char                *path;  /* encoded, begins with '/' */
    const char                *query; /* encoded, in order of the names, without '?'; "": none */
    const struct sigv4_header *header;
    uint32_t                   n_header; /* in order of the names */
    const char                *body_sha256;
};
struct sigv4_scope {
    const char *key_id, *secret;
    const char *region, *service;
    const char *date; /* as sigv4_date writes it */
};

/* Writes a time as "20130524T000000Z". */
void sigv4_date(uint64_t unix_s, char out[SIGV4_DATE]);
/* Writes the SHA-256 of n bytes in hex. */
void sigv4_sha256(const void *p, size_t n, char hex_out[SIGV4_HEX]);
/* Appends the value of the Authorization header. ST_TOO_LARGE: the request is longer than SIGV4_TEXT_MAX. */
enum status sigv4_sign(const struct sigv4_scope *scope, const struct sigv4_request *r, struct buf *out);
/* Appends text with all bytes but letters, digits and "-._~" as %XX. keep_slash: '/' stays too. */
void sigv4_encode(const char *text, bool keep_slash, struct buf *out);
