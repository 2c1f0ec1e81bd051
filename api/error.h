/* error: an error for the client. Fixed strings; the client's bytes only as an escaped excerpt of at most 64
 * characters. Thread: any. */
#pragma once
#include "base/buf.h"
#include "base/status.h"

struct api_error {
    int      http;      /* 400, 404, ...; 0: no error                  */
    char     type[40];  /* "BadRequestError", ...                      */
    char     code[40];  /* "" : the http number                        */
    char     param[64]; /* "" : null                                   */
    char     message[800];
    char     request_id[129]; /* of a request that failed, for dialects whose errors tell it; "": not known */
    uint32_t n_public; /* bytes of the message that may be logged; the rest quotes the client or the template. 0: all */
};
/* Fills e and returns ST_INVALID. type follows from http (400 BadRequestError, 401 AuthenticationError, 404
 * NotFoundError, 429 RateLimitError, 500 InternalServerError, 501 NotImplementedError, 503 ServiceUnavailableError,
 * else by name). */
enum status api_fail(struct api_error *e, int http, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same with a code: "context_length_exceeded", "model_not_found". */
enum status api_fail_code(struct api_error *e, int http, const char *param, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Keeps the part after the first ": " of e's message out of the log. Returns ST_INVALID. */
enum status api_keep_private(struct api_error *e);
/* {"error":{"message":..,"type":..,"param":..,"code":..}} */
void api_error_json(struct buf *b, const struct api_error *e);
/* An excerpt of user bytes fit for a message: escaped, at most 64 characters, into dst[>= 200]. Returns dst. */
const char *api_excerpt(char *dst, size_t dst_bytes, const char *s, size_t n);
