/* batch_line: a line of OpenAI's batch files: a request as it is read, and an answer as it is written.   Thread: any.
 *
 *   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {..}}
 *   {"id": "batch_req_RUN-LINE", "custom_id": "a", "response": {"status_code": 200, "request_id": "..", "body":
 *   {..}}, "error": null}
 *
 * RUN names the run (batch_book.h), LINE is the number of the request's line, from 1. */
#pragma once
#include "base/buf.h"

enum {
    BATCH_ID_MAX = 512,             /* bytes of a custom_id */
    BATCH_URL_MAX = 128,            /* bytes of a url */
    BATCH_ENVELOPE_BYTES = 4 << 10, /* of a line beside its body */
    BATCH_RUN_BYTES = 17,           /* 16 hex digits and a NUL */
};

/* Why a line is no request. */
struct batch_wrong {
    const char *code;      /* static: "invalid_json", "duplicate_custom_id", .. */
    const char *param;     /* static: the field; NULL: the whole line */
    char        text[400]; /* what was found, and what is allowed; without the number of the line */
};

struct batch_line {
    char        custom_id[BATCH_ID_MAX + 1], url[BATCH_URL_MAX + 1];
    size_t      n_custom_id; /* 0: none, or one that is not valid */
    const char *body;        /* of the text that was read: an object */
    size_t      n_body;
};

/* text: a line without its end. ST_INVALID with *wrong; then out->custom_id is set if the line has a valid one. */
enum status batch_line_read(const char *text, size_t n, struct batch_line *out, struct batch_wrong *wrong);
/* Appends a line of output: the answer of a handler. body: JSON; line ends in it become blanks. */
void batch_line_answer(struct buf *out, const char *run, uint64_t line, const struct batch_line *l, int status,
                       const char *request_id, const char *body, size_t n_body);
/* Appends a line of output for a line that never was a request. */
void batch_line_refuse(struct buf *out, const char *run, uint64_t line, const struct batch_line *l,
                       const struct batch_wrong *wrong);
/* Which line of the input a line of output answers, and whether with status 200. False: it is no line of this run. */
bool batch_line_is_of(const char *text, size_t n, const char *run, uint64_t *line_out, bool *good_out);
