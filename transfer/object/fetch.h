/* fetch: one small HTTP request at a time, in the caller's thread: for credentials.   Thread: any that may block.
 * No proxy, no redirect, no more than FETCH_BYTES_MAX bytes, no longer than FETCH_MS. */
#pragma once
#include "base/buf.h"
#include "base/status.h"

enum { FETCH_MS = 5000, FETCH_BYTES_MAX = 64 << 10 };

struct fetch {
    const char *method, *url;
    const char *header[4]; /* "name: value"; NULL: no more */
    const char *body;      /* of a form; NULL: none */
};
/* Prepares libcurl, once in the process; later calls do nothing. */
void fetch_init(void);
/* The body to out (buf_init is this function's, buf_free the caller's), and the HTTP status. ST_PEER_LOST: no answer,
 * err has one line. */
enum status fetch(const struct fetch *f, struct buf *out, long *code_out, char *err, size_t err_bytes);
