/* http: parses raw bytes into one request at a time, with scan.c and llhttp, both strict.   Thread: the connection's io
 * thread. http_begin -> http_head (repeatedly, with the head so far) -> http_body* until complete -> http_begin ...
 * After an error here the framing is in doubt, so the connection closes after the answer. */
#pragma once
#include "api/error.h"
#include "base/buf.h"
#include "server/scan.h"
#include <llhttp.h>

struct slice {
    const char *p;
    size_t      n;
};

enum http_method_bit {
    M_GET = 1,
    M_POST = 2,
    M_HEAD = 4,
    M_OPTIONS = 8,
    M_PUT = 16,
    M_DELETE = 32,
    M_PATCH = 64,
    M_OTHER = 128
};

const char *http_method_name(unsigned method); /* method: one bit */

struct http_field {
    struct slice name, value;
}; /* value: without surrounding blanks */

/* A parsed head. Slices point into the caller's bytes. */
struct http_head {
    unsigned     method; /* one enum http_method_bit */
    unsigned     minor;  /* of HTTP/1.x */
    struct slice target, path, query;
    bool         keep_alive, chunked, has_length, expect, expect_unknown;
    uint64_t     length;
    struct slice host;          /* without the port; empty if an HTTP/1.0 request has none */
    uint32_t     n_auth, n_key; /* number of Authorization and of x-api-key fields */
    struct slice authorization, api_key, content_type, content_encoding, request_id, origin, orca, traceparent,
        tracestate;
    uint32_t          n_content_type, n_content_encoding, n_request_id, n_traceparent;
    uint32_t          n_field;
    struct http_field field[HTTP_HEADERS_MAX];
};

struct http {
    llhttp_t          ll;
    struct scan_head  scan;
    struct scan_chunk chunk;
    uint64_t          left; /* bytes of Content-Length still to read */
    bool              chunked, complete;
    struct http_head *head; /* set during http_head  */
    struct buf       *body; /* set during http_body; NULL: the body is discarded */
};

/* Makes h ready for the next request of the connection. */
void http_begin(struct http *h);
/* p[0..n): all bytes of the head so far. 0: more bytes are needed. 1: *head is filled, and the head has *used_out
 * bytes. -1: refused with *e. */
int http_head(struct http *h, const char *p, size_t n, struct http_head *head, size_t *used_out, struct api_error *e);
/* Takes bytes of the body. 0: more bytes are needed. 1: the request is complete. -1: refused with *e. body NULL: bytes
 * are counted and discarded. */
int  http_body(struct http *h, const char *p, size_t n, uint64_t body_max, struct buf *body, size_t *used_out,
               struct api_error *e);
bool http_has_body(const struct http *h); /* call after the head: true if a body follows */

bool slice_is(struct slice s, const char *text); /* equal, ignoring ASCII case */
bool slice_is_id(struct slice s);                /* 1 to 128 letters, digits, '.', '_' and '-' */
/* "Not Found" of 404; a static string. */
const char *http_status_text(int status);
