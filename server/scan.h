/* scan: the strict grammar of HTTP/1 framing over raw bytes, beside llhttp. Both must agree on every byte: older llhttp
 * takes bare LF, spaces before a chunk's CRLF and leading zeros, and a proxy in front may not (RFC 9112; request
 * smuggling).
 * scan_head grows with the head as it comes; scan_chunk walks a chunked body.   Thread: the owner. Results are http
 * codes. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_URI_MAX = 2048,                /* else 414 */
    HTTP_FIRST_MAX = HTTP_URI_MAX + 40, /* the request line with method and version */
    HTTP_LINE_MAX = 8192,               /* one header line, else 431 */
    HTTP_HEADERS_MAX = 100,
    HTTP_FIELDS_MAX = 16384, /* all header lines */
    HTTP_HEAD_MAX = 2 + HTTP_FIRST_MAX + HTTP_FIELDS_MAX + 2,
    HTTP_TRAILER_MAX = 8192,
    HTTP_CHUNK_EXT_MAX = 4096,   /* of a whole body */
    HTTP_CHUNK_OVERHEAD = 102400 /* framing bytes after which a quarter of the body must be payload */
};

struct scan_head {
    size_t   start;  /* of the request line: after one empty line */
    size_t   line;   /* where the line being read starts */
    size_t   seen;   /* no LF before this */
    size_t   fields; /* where the header lines start */
    uint32_t n_line;
};
/* p[0..n): all bytes of the head so far (the same bytes as before, and more). 0: more is needed; 1: complete, *n_out
 * bytes long; else the http code to refuse it with. */
int scan_head(struct scan_head *s, const char *p, size_t n, size_t *n_out);

enum scan_chunk_state {
    CHUNK_SIZE,
    CHUNK_DIGITS,
    CHUNK_EXT_NAME0,
    CHUNK_EXT_NAME,
    CHUNK_EXT_VALUE0,
    CHUNK_EXT_VALUE,
    CHUNK_EXT_QUOTED,
    CHUNK_EXT_ESCAPED,
    CHUNK_EXT_END,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER0,
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER_VALUE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_DONE,
};
struct scan_chunk {
    enum scan_chunk_state st;
    uint32_t              n_digit, n_ext, n_trailer;
    uint64_t              left; /* of this chunk's data */
    uint64_t              payload, overhead;
};
/* Walks up to n bytes. *n_out: how many were taken; *feed_out: how many of them, from the start, the parser may see
 * (extensions and trailers are kept from it: they are dropped). Stops after each run, so call it until all is taken. 0:
 * more; 1: the body is complete; else the http code. payload_max: above it 413. */
int scan_chunk(struct scan_chunk *s, const char *p, size_t n, uint64_t payload_max, size_t *n_out, size_t *feed_out);
