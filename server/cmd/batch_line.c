#include "server/cmd/batch_line.h"
#include "api/call.h"
#include "base/json.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status wrong_is(struct batch_wrong *w, const char *code, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static enum status wrong_is(struct batch_wrong *w, const char *code, const char *param, const char *fmt, ...)
{
    va_list ap;
    w->code = code;
    w->param = param;
    va_start(ap, fmt);
    vsnprintf(w->text, sizeof w->text, fmt, ap);
    va_end(ap);
    return ST_INVALID;
}

/* ---- a request ---- */

static bool name_is(const char *name, size_t n, const char *word)
{
    return strlen(word) == n && !memcmp(name, word, n);
}

static enum json_want wanted(void *ctx, const char *name, size_t n)
{
    (void)ctx;
    if (name_is(name, n, "custom_id") || name_is(name, n, "method") || name_is(name, n, "url")) return JSON_SCALAR;
    return name_is(name, n, "body") ? JSON_TYPE : JSON_SKIP;
}

static enum json_want wanted_of_body(void *ctx, const char *name, size_t n)
{
    (void)ctx;
    return name_is(name, n, "stream") ? JSON_SCALAR : JSON_SKIP;
}

static const char *kind_of(const json_t *v)
{
    if (!v) return "nothing";
    switch (json_typeof(v)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_NULL: return "null";
    default: return "a truth value";
    }
}

static enum status read_id(const json_t *v, struct batch_line *out, struct batch_wrong *w)
{
    if (!json_is_string(v))
        return wrong_is(w, v ? "invalid_custom_id" : "missing_custom_id", "custom_id",
                        "'custom_id': found %s, needed is a string", kind_of(v));
    size_t n = json_string_length(v);
    if (!n || n > BATCH_ID_MAX)
        return wrong_is(w, "invalid_custom_id", "custom_id", "'custom_id': found %zu bytes, allowed are 1 to %d", n,
                        BATCH_ID_MAX);
    memcpy(out->custom_id, json_string_value(v), n);
    out->n_custom_id = n;
    return ST_OK;
}

static enum status read_where(const json_t *line, struct batch_line *out, struct batch_wrong *w)
{
    char          shown[200];
    const json_t *method = json_object_get(line, "method"), *url = json_object_get(line, "url");
    if (!json_is_string(method))
        return wrong_is(w, "invalid_method", "method", "'method': found %s, needed is \"POST\"", kind_of(method));
    if (!json_str_is(method, "POST"))
        return wrong_is(w, "invalid_method", "method", "'method': found '%s', allowed is POST",
                        api_excerpt(shown, sizeof shown, json_string_value(method), json_string_length(method)));
    if (!json_is_string(url))
        return wrong_is(w, "invalid_url", "url", "'url': found %s, needed is a string", kind_of(url));
    size_t n = json_string_length(url);
    if (n > BATCH_URL_MAX || strlen(json_string_value(url)) != n)
        return wrong_is(w, "invalid_url", "url", "'url': found '%s', which is no route",
                        api_excerpt(shown, sizeof shown, json_string_value(url), n));
    memcpy(out->url, json_string_value(url), n);
    return ST_OK;
}

/* A body that is no JSON of its route's is not looked for here: the route's own error tells of it. */
static bool asks_for_stream(const char *body, size_t n)
{
    struct json_fields f;
    struct json_error  e;
    if (!json_fields_scan(body, n, &call_bounds, wanted_of_body, NULL, &f, &e)) return false;
    json_t *v = json_fields_build(body, &f, &e);
    bool    stream = json_is_true(json_object_get(v, "stream"));
    json_decref(v);
    return stream;
}

static enum status read_fields(const json_t *line, const char *text, const struct json_fields *f,
                               struct batch_line *out, struct batch_wrong *w)
{
    enum status st = read_id(json_object_get(line, "custom_id"), out, w);
    if (!st) st = read_where(line, out, w);
    if (st) return st;
    const json_t *body = json_object_get(line, "body");
    if (!json_is_object(body))
        return wrong_is(w, "invalid_body", "body", "'body': found %s, needed is an object", kind_of(body));
    for (uint32_t i = 0; i < f->n_field; i++) {
        if (!name_is(text + f->field[i].name, f->field[i].n_name, "body")) continue;
        out->body = text + f->field[i].value;
        out->n_body = f->field[i].n_value;
    }
    if (!out->body) /* a name that was written with escapes */
        return wrong_is(w, "invalid_body", "body", "'body': the name is written with escapes, needed is \"body\"");
    if (asks_for_stream(out->body, out->n_body))
        return wrong_is(w, "invalid_stream", "body.stream",
                        "'body.stream': found true, allowed is false: a line of a batch has one answer");
    return ST_OK;
}

enum status batch_line_read(const char *text, size_t n, struct batch_line *out, struct batch_wrong *w)
{
    struct json_fields f;
    struct json_error  e;
    memset(out, 0, sizeof *out);
    if (!json_fields_scan(text, n, &call_bounds, wanted, NULL, &f, &e))
        return wrong_is(w, e.wrong == JSON_OVER ? "invalid_line" : "invalid_json", NULL,
                        "the line is no request: %s (at byte %zu)", e.text, e.offset);
    json_t *line = json_fields_build(text, &f, &e);
    if (!line) return wrong_is(w, "invalid_json", NULL, "the line is no request: %s (at byte %zu)", e.text, e.offset);
    enum status st = read_fields(line, text, &f, out, w);
    json_decref(line);
    return st;
}

/* ---- an answer ---- */

static void put_head(struct buf *out, const char *run, uint64_t line, const struct batch_line *l)
{
    buf_printf(out, "{\"id\":\"batch_req_%s-%" PRIu64 "\",\"custom_id\":", run, line);
    if (l->n_custom_id)
        json_put_str(out, l->custom_id, l->n_custom_id);
    else
        buf_puts(out, "null");
}

void batch_line_answer(struct buf *out, const char *run, uint64_t line, const struct batch_line *l, int status,
                       const char *request_id, const char *body, size_t n_body)
{
    put_head(out, run, line, l);
    buf_printf(out, ",\"response\":{\"status_code\":%d,\"request_id\":", status);
    json_put_str(out, request_id, strlen(request_id));
    buf_puts(out, ",\"body\":");
    size_t from = out->n;
    buf_put(out, body, n_body);
    for (size_t i = from; i < out->n && !out->failed; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r') out->data[i] = ' '; /* inside a string there can be none */
    buf_puts(out, "},\"error\":null}\n");
}

void batch_line_refuse(struct buf *out, const char *run, uint64_t line, const struct batch_line *l,
                       const struct batch_wrong *w)
{
    char text[sizeof w->text + 32];
    int  n = snprintf(text, sizeof text, "line %" PRIu64 ": %s", line, w->text);
    put_head(out, run, line, l);
    buf_printf(out, ",\"response\":null,\"error\":{\"code\":\"%s\",\"message\":", w->code);
    json_put_str(out, text, (size_t)n);
    buf_puts(out, ",\"param\":");
    if (w->param)
        json_put_str(out, w->param, strlen(w->param));
    else
        buf_puts(out, "null");
    buf_printf(out, ",\"line\":%" PRIu64 "}}\n", line);
}

bool batch_line_is_of(const char *text, size_t n, const char *run, uint64_t *line_out, bool *good_out)
{
    static const char response[] = ",\"response\":", good[] = "{\"status_code\":200,";
    char              head[64];
    int               n_head = snprintf(head, sizeof head, "{\"id\":\"batch_req_%s-", run);
    if (n <= (size_t)n_head || memcmp(text, head, (size_t)n_head) != 0 || text[n - 1] != '}') return false;
    uint64_t line = 0;
    size_t   i = (size_t)n_head;
    for (; i < n && text[i] >= '0' && text[i] <= '9' && line < UINT64_MAX / 100; i++)
        line = line * 10 + (uint64_t)(text[i] - '0');
    if (!line || i == n || text[i] != '"') return false;
    /* A custom_id cannot hold the words: its quotes are escaped. */
    size_t      window = n < BATCH_ENVELOPE_BYTES ? n : BATCH_ENVELOPE_BYTES;
    const char *at = memmem(text, window, response, sizeof response - 1);
    if (!at) return false;
    at += sizeof response - 1;
    *good_out = (size_t)(text + n - at) >= sizeof good && !memcmp(at, good, sizeof good - 1);
    *line_out = line;
    return true;
}
