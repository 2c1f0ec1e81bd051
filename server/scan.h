/* scan: a strict parser of HTTP/1 framing over raw bytes, besides llhttp. Both must accept every byte, because older
 * llhttp accepts bare LF, spaces before a chunk's CRLF and leading zeros, and a proxy in front may not (RFC 9112;
 * request smuggling). scan_head parses the head as it arrives; scan_chunk walks through a chunked body.
 * Errors are HTTP status codes.   Thread: the owner. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_URI_MAX = 2048,                /* above: 414 */
    HTTP_FIRST_MAX = HTTP_URI_MAX + 40, /* longest request line, with method and version */
    HTTP_LINE_MAX = 8192,               /* one header line; above: 431 */
    HTTP_HEADERS_MAX = 100,
    HTTP_FIELDS_MAX = 16384, /* all header lines */
    HTTP_HEAD_MAX = 2 + HTTP_FIRST_MAX + HTTP_FIELDS_MAX + 2,
    HTTP_TRAILER_MAX = 8192,
    HTTP_CHUNK_EXT_MAX = 4096,   /* extensions of a whole body */
    HTTP_CHUNK_OVERHEAD = 102400 /* framing bytes from which on at least a quarter of the body must be payload */
};

struct scan_head {
    size_t   start;  /* offset of the request line, which may follow one empty line */
    size_t   line;   /* offset of the current line */
    size_t   seen;   /* no LF before this */
    size_t   fields; /* offset of the header lines */
    uint32_t n_line;
};
/* p[0..n): all bytes of the head so far (those of the previous call and more). 0: more bytes are needed; 1: complete,
 * *n_out bytes long; else the HTTP status for the refusal. */
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
    uint64_t              left; /* bytes left of this chunk's data */
    uint64_t              payload, overhead;
};
/* Walks through up to n bytes. *n_out: number of bytes consumed; *feed_out: how many of these, from the start, go to
 * llhttp. Extensions and trailers are dropped. It stops after each run, so call it until all bytes are consumed. 0:
 * more bytes are needed; 1: the body is complete; else the HTTP status. payload_max: more payload is a 413. */
int scan_chunk(struct scan_chunk *s, const char *p, size_t n, uint64_t payload_max, size_t *n_out, size_t *feed_out);
