/* fetch: a small HTTP request, run to its end in the caller's thread; used for credentials.   Thread: any that may
 * block.
 * It uses no proxy, follows no redirect, accepts at most FETCH_BYTES_MAX bytes and lasts at most FETCH_MS. */
#pragma once
#include "base/buf.h"
#include "base/status.h"

enum { FETCH_MS = 5000, FETCH_BYTES_MAX = 64 << 10 };

struct fetch {
    const char *method, *url;
    const char *header[4]; /* "name: value"; the first NULL ends the list */
    const char *body;      /* a form; NULL: none */
};
/* Prepares libcurl, once in the process; later calls do nothing. */
void fetch_init(void);
/* Writes the answer's body to out and the HTTP status to *code_out. The function calls buf_init; the caller calls
 * buf_free, also on error. ST_PEER_LOST: no answer came. ST_NOMEM. err has one line. */
enum status fetch(const struct fetch *f, struct buf *out, long *code_out, char *err, size_t err_bytes);
