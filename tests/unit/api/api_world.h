/* api_world: a model of one-byte tokens for tests of the dialects: every byte of text is one id, so what is said can be
 * counted. Included once per test. */
#pragma once
#include "api/answer.h"

#include "tests/unit/api/tiny_model.h"
#include "test.h"

/* ---------------------------------------------------------------- requests */

static enum status ask(struct call *c, const struct dialect *d, const char *body, struct api_error *e)
{
    enum status st = call_pick(&d, &(struct call_shape){ &world.m, body, strlen(body), LMI_LINES }, e);
    *c = (struct call){ .model = &world.m };
    if (!st) st = call_parse(c, d, &world.m, body, strlen(body), &(struct call_from){ .request_id = "x1" }, e);
    return st ? st : call_prepare(c, e);
}

static void ask_ok(struct call *c, const struct dialect *d, const char *body)
{
    struct api_error e;
    if (ask(c, d, body, &e)) fail_msg("%s: %s", body, e.message);
}

static inline void accepts(const struct dialect *d, const char *body)
{
    struct call c;
    ask_ok(&c, d, body);
    call_free(&c);
}

static inline void refuses_as(const struct dialect *d, const char *body, int http, const char *param, const char *code)
{
    struct call      c;
    struct api_error e;
    char             shown[400];
    snprintf(shown, sizeof shown, "%.399s", body);
    if (ask(&c, d, body, &e) == ST_OK) fail_msg("accepted: %s", shown);
    call_free(&c);
    if (e.http != http) fail_msg("%s: %d %s", shown, e.http, e.message);
    if (strcmp(e.param, param)) fail_msg("%s: param %s, %s", shown, e.param, e.message);
    if (strcmp(e.code, code)) fail_msg("%s: code %s, %s", shown, e.code, e.message);
    assert_true(strlen(e.message) > 5);
}

/* A chat request with these fields more ("\"n\":2"), or a completion request. */
static inline const char *with(const struct dialect *d, const char *fields)
{
    static char body[1 << 16];
    snprintf(body, sizeof body, "{%s%s%s}",
             d == &dialect_chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]" : "\"prompt\":\"Hi\"",
             *fields ? "," : "", fields);
    return body;
}
static inline void chat_refuses(const char *fields, const char *param)
{
    refuses_as(&dialect_chat, with(&dialect_chat, fields), 400, param, "");
}
static inline void completion_refuses(const char *fields, const char *param)
{
    refuses_as(&dialect_completion, with(&dialect_completion, fields), 400, param, "");
}
static inline void both_refuse(const char *fields, const char *param)
{
    chat_refuses(fields, param);
    completion_refuses(fields, param);
}
static inline void both_accept(const char *fields)
{
    accepts(&dialect_chat, with(&dialect_chat, fields));
    accepts(&dialect_completion, with(&dialect_completion, fields));
}

/* head, unit n times, tail: one at a time. */
static inline const char *long_text(const char *head, const char *unit, size_t n, const char *tail)
{
    static char *last;
    struct buf   b;
    free(last);
    buf_init(&b, 64 << 20);
    buf_puts(&b, head);
    while (n--) buf_puts(&b, unit);
    buf_puts(&b, tail);
    buf_cstr(&b);
    return last = b.data;
}

/* The ids of a prompt as text: special ones by name. */
static inline const char *prompt_text(const struct call *c, uint32_t p)
{
    static struct buf b;
    static char       text[1 << 16];
    buf_init(&b, sizeof text - 1);
    for (uint32_t i = 0; i < c->prompt[p].n_id; i++) {
        uint32_t id = c->prompt[p].id[i];
        if (id < 256)
            buf_putc(&b, (char)id);
        else
            buf_printf(&b, "[%u]", id);
    }
    snprintf(text, sizeof text, "%s", buf_cstr(&b));
    buf_free(&b);
    return text;
}

/* ---------------------------------------------------------------- the engine's part */

static void put_id(struct call *c, uint32_t i, uint32_t n_out, uint32_t id)
{
    struct eng_choice *g = &c->choice[i].eng;
    g->id[n_out] = id;
    if (!c->s.logprobs) return;
    g->logprob[n_out] = -0.5f;
    for (uint32_t k = 0; k < c->s.n_top; k++)
        g->top[n_out * c->s.n_top + k] = (struct eng_top){ k ? 'a' + k : id, k ? -1.0f - (float)k : -0.5f };
}

/* One answer_feed per byte. True: a stop string ended it. */
static inline bool say(struct call *c, uint32_t i, const char *text, struct buf *out)
{
    bool stopped = false;
    for (; *text && !stopped; text++) {
        uint32_t n = c->choice[i].n_fed;
        put_id(c, i, n, (unsigned char)*text);
        stopped = answer_feed(c, i, n + 1, out);
    }
    return stopped;
}
static inline bool say_id(struct call *c, uint32_t i, uint32_t id, struct buf *out)
{
    uint32_t n = c->choice[i].n_fed;
    put_id(c, i, n, id);
    return answer_feed(c, i, n + 1, out);
}
static inline void end_eos(struct call *c, uint32_t i, struct buf *out)
{
    say_id(c, i, EOS, out);
    c->choice[i].eng.stop_is_eos = true;
    c->choice[i].eng.stop_id = EOS;
    answer_choice_end(c, i, ENG_STOP, out);
}

/* ---------------------------------------------------------------- answers */

static inline json_t *body_of(struct buf *out)
{
    struct json_error e;
    json_t           *v = json_parse(out->data, out->n, 0, &e);
    if (!v) fail_msg("%s at %zu of %.*s", e.text, e.offset, (int)out->n, out->data);
    return v;
}

/* The frames of a stream; the last one must be [DONE], which is not among them. */
static inline json_t *frames_of(struct buf *out)
{
    json_t *list = json_array();
    bool    done = false;
    for (char *p = (char *)(uintptr_t)buf_cstr(out); *p;) {
        struct json_error e;
        char             *end = strstr(p, "\n\n");
        assert_non_null(end);
        assert_false(done);
        assert_memory_equal(p, "data: ", 6);
        for (char *q = p; q < end; q++) assert_true((unsigned char)*q >= 0x20);
        if (!strncmp(p, "data: [DONE]", 12)) {
            done = true;
        } else {
            json_t *v = json_parse(p + 6, (size_t)(end - p) - 6, 0, &e);
            if (!v) fail_msg("%s in %.*s", e.text, (int)(end - p), p);
            json_array_append_new(list, v);
        }
        p = end + 2;
    }
    assert_true(done);
    return list;
}

/* "choices.0.delta.content" */
static const json_t *at(const json_t *v, const char *path)
{
    char key[64];
    while (v && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
        path += n + (path[n] == '.');
    }
    return v;
}
static inline const char *str_at(const json_t *v, const char *path)
{
    const char *s = json_string_value(at(v, path));
    return s ? s : "(none)";
}
static inline long long int_at(const json_t *v, const char *path)
{
    const json_t *x = at(v, path);
    if (!json_is_integer(x)) fail_msg("%s is no integer", path);
    return json_integer_value(x);
}
static inline bool null_at(const json_t *v, const char *path) { return json_is_null(at(v, path)); }

/* What the frames say of choice i, put together. */
static inline const char *said(const json_t *frames, uint32_t i)
{
    static char *last;
    struct buf   b;
    size_t       k;
    json_t      *f;
    free(last);
    buf_init(&b, 1 << 20);
    json_array_foreach(frames, k, f)
    {
        const json_t *c = at(f, "choices.0"), *s = at(c, "delta.content");
        if (c && int_at(c, "index") == (long long)i && s) buf_put(&b, json_string_value(s), json_string_length(s));
    }
    buf_cstr(&b);
    return last = b.data;
}
