/* load: one client connection of a load generator: an answer parsed as it comes (llhttp, chunked or not, SSE or one
 * JSON), its times, its tokens as the server counts them, and samples with percentiles.   Thread: one. */
#pragma once
#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include <llhttp.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- samples ---- */

struct samples {
    double *v;
    size_t  n, cap;
    bool    sorted;
};

static inline void sample_add(struct samples *s, double v)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 1024;
        s->v = realloc(s->v, s->cap * sizeof *s->v);
        if (!s->v) exit(EXIT_SOFTWARE);
    }
    s->v[s->n++] = v;
    s->sorted = false;
}

static inline int sample_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The smallest value that at least p of all values do not exceed; 0 of none. */
static inline double sample_at(struct samples *s, double p)
{
    if (!s->n) return 0;
    if (!s->sorted) qsort(s->v, s->n, sizeof *s->v, sample_order);
    s->sorted = true;
    double i = ceil(p * (double)s->n) - 1;
    return s->v[i < 0 ? 0 : (size_t)i];
}

static inline double sample_mean(const struct samples *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->v[i];
    return s->n ? sum / (double)s->n : 0;
}

/* ---- one answer ---- */

enum { ANSWER_LINE_MAX = 1 << 20, ANSWER_TEXT_MAX = 1 << 22 };

struct answer {
    llhttp_t   http;
    bool       headed, complete, bad, sse, keep_alive, cut_error; /* cut_error: an event said error */
    uint16_t   status;
    struct buf line; /* of SSE, or the whole body */
    struct buf text; /* what the model said, JSON-escaped; kept only where the caller wants it */
    bool       keep_text;
    uint64_t   now_us, t_first_us, t_last_us; /* of content */
    uint32_t   n_content, prompt_tokens, output_tokens, cached_tokens;
    bool       has_usage;
    void (*content)(void *ctx, uint64_t gap_us, bool first); /* at each content event */
    void *ctx;
};

/* The string behind "content": or "text": in an event, as it stands there, escapes and all. Cheap, as a generator must
 * be: a whole JSON parse per token would cost more than the servers it measures. False: none, or empty. */
static inline bool event_text(const char *p, size_t n, const char **text_out, size_t *n_out)
{
    static const struct {
        const char *key;
        size_t      n;
    } keys[] = { { "content\":", 9 }, { "\"text\":", 7 } }; /* the first finds reasoning_content too */
    for (size_t k = 0; k < 2; k++)
        for (const char *at = p; (at = memmem(at, n - (size_t)(at - p), keys[k].key, keys[k].n));) {
            at += keys[k].n;
            while (at < p + n && *at == ' ') at++;
            if (at + 1 >= p + n || *at != '"' || at[1] == '"') continue;
            const char *end = ++at;
            while (end < p + n && *end != '"') end += *end == '\\' ? 2 : 1;
            *text_out = at;
            *n_out = end < p + n ? (size_t)(end - at) : 0;
            return *n_out > 0;
        }
    return false;
}

/* Streams say "usage":null in every event. */
static inline bool has_object(const char *p, size_t n, const char *key, size_t n_key)
{
    const char *at = memmem(p, n, key, n_key), *end = p + n;
    if (!at) return false;
    for (at += n_key; at < end && *at == ' ';) at++;
    return at < end && *at == '{';
}

static inline void answer_usage(struct answer *a, const char *p, size_t n)
{
    struct json_error err;
    json_t           *root = json_parse(p, n, 0, &err), *u = json_object_get(root, "usage");
    int64_t           v;
    if (json_is_object(u)) {
        a->has_usage = true;
        if (!json_get_int(u, "prompt_tokens", 0, UINT32_MAX, &v)) a->prompt_tokens = (uint32_t)v;
        if (!json_get_int(u, "completion_tokens", 0, UINT32_MAX, &v)) a->output_tokens = (uint32_t)v;
        const json_t *d = json_object_get(u, "prompt_tokens_details");
        if (json_is_object(d) && !json_get_int(d, "cached_tokens", 0, UINT32_MAX, &v)) a->cached_tokens = (uint32_t)v;
    }
    if (json_object_get(root, "error")) a->cut_error = true;
    json_decref(root);
}

/* One event's JSON, or the whole body of an answer that is no stream. */
static inline void answer_event(struct answer *a, const char *p, size_t n)
{
    const char *text;
    size_t      n_text;
    if (event_text(p, n, &text, &n_text)) {
        if (a->keep_text) buf_put(&a->text, text, n_text);
        if (a->content) a->content(a->ctx, a->t_last_us ? a->now_us - a->t_last_us : 0, !a->t_first_us);
        if (!a->t_first_us) a->t_first_us = a->now_us;
        a->t_last_us = a->now_us;
        a->n_content++;
    }
    if (has_object(p, n, "\"usage\":", 8) || has_object(p, n, "\"error\":", 8)) answer_usage(a, p, n);
}

static inline void answer_line(struct answer *a)
{
    const char *p = a->line.data;
    size_t      n = a->line.n;
    if (n && p[n - 1] == '\r') n--;
    if (n > 5 && !memcmp(p, "data:", 5)) {
        p += 5;
        n -= 5;
        while (n && *p == ' ') {
            p++;
            n--;
        }
        if (n && *p == '{') answer_event(a, p, n);
    }
    buf_clear(&a->line);
}

static inline int answer_on_head(llhttp_t *h)
{
    struct answer *a = h->data;
    a->headed = true;
    a->status = (uint16_t)llhttp_get_status_code(h);
    return 0;
}

static inline int answer_on_value(llhttp_t *h, const char *p, size_t n)
{
    struct answer *a = h->data;
    if (!a->headed && memmem(p, n, "text/event-stream", 17)) a->sse = true;
    return 0;
}

static inline int answer_on_body(llhttp_t *h, const char *p, size_t n)
{
    struct answer *a = h->data;
    for (const char *nl; a->sse && (nl = memchr(p, '\n', n));) {
        buf_put(&a->line, p, (size_t)(nl - p));
        n -= (size_t)(nl + 1 - p);
        p = nl + 1;
        answer_line(a);
    }
    buf_put(&a->line, p, n);
    return a->line.failed ? -1 : 0;
}

static inline int answer_on_end(llhttp_t *h)
{
    struct answer *a = h->data;
    if (!a->sse && a->status == 200) answer_event(a, a->line.data, a->line.n);
    a->complete = true;
    a->keep_alive = llhttp_should_keep_alive(h);
    return HPE_PAUSED; /* one answer per request: what comes after it was not asked for */
}

static inline void answer_begin(struct answer *a, bool keep_text)
{
    static llhttp_settings_t settings;
    llhttp_settings_init(&settings);
    settings.on_header_value = answer_on_value;
    settings.on_headers_complete = answer_on_head;
    settings.on_body = answer_on_body;
    settings.on_message_complete = answer_on_end;
    struct buf line = a->line, text = a->text;
    void (*content)(void *, uint64_t, bool) = a->content;
    void *ctx = a->ctx;
    *a = (struct answer){ .line = line, .text = text, .keep_text = keep_text, .content = content, .ctx = ctx };
    if (!a->line.bytes_max) {
        buf_init(&a->line, ANSWER_LINE_MAX);
        buf_init(&a->text, ANSWER_TEXT_MAX);
    }
    buf_clear(&a->line);
    buf_clear(&a->text);
    llhttp_init(&a->http, HTTP_RESPONSE, &settings);
    a->http.data = a;
}

/* Bytes off the socket; n 0: its end. False: not HTTP, or it ended too early (a->bad). */
static inline bool answer_bytes(struct answer *a, const char *p, size_t n, uint64_t now_us)
{
    a->now_us = now_us;
    llhttp_errno_t e = n ? llhttp_execute(&a->http, p, n) : llhttp_finish(&a->http);
    a->bad = !a->complete && (e != HPE_OK || !n);
    return !a->bad;
}
