#include "server/sagemaker.h"
#include "base/clock.h"
#include "server/sessions.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    ATTRIBUTES_MAX = 1024,
    INFERENCE_ID_MAX = 64,
    SESSION_VALUE_MAX = 256,
    ADAPTER_MAX = 256,
    ACCEPT_MAX = 8192,
    LINE_MAX = ATTRIBUTES_MAX + 80
};

/* ---- what the answer carries ---- */

bool sagemaker_answer_line(struct conn *c, struct api_error *e, const char *fmt, ...)
{
    char    line[LINE_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    size_t have = c->req.answer_head ? strlen(c->req.answer_head) : 0;
    char  *grown = n < 0 || n >= LINE_MAX ? NULL : realloc(c->req.answer_head, have + (size_t)n + 3);
    if (!grown) {
        api_fail(e, 503, "", "out of memory");
        return false;
    }
    snprintf(grown + have, (size_t)n + 3, "%s\r\n", line);
    c->req.answer_head = grown;
    return true;
}

/* ---- one header each ---- */

/* "Accept: text/event-stream" asks for events where a body's own form is another. */
static bool take_accept(struct conn *c, struct slice v, struct api_error *e)
{
    static const char events[] = "text/event-stream";
    (void)e;
    for (size_t i = 0; i + sizeof events - 1 <= v.n; i++)
        if (!strncasecmp(v.p + i, events, sizeof events - 1)) c->req.events = true;
    return true;
}

static struct slice trim(struct slice s)
{
    while (s.n && (*s.p == ' ' || *s.p == '\t')) {
        s.p++;
        s.n--;
    }
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t')) s.n--;
    return s;
}

/* Whether a body that was sent to /invocations may go there: a route that takes JSON for the model. */
static bool may_answer(const struct route *rt)
{
    unsigned needed = ROUTE_JSON | ROUTE_MODEL;
    return rt && (rt->methods & M_POST) && rt->auth == AUTH_KEY && (rt->flags & needed) == needed;
}

static bool take_route(struct conn *c, struct slice path, struct api_error *e)
{
    const struct routes *routes = c->io->srv->routes;
    const struct route  *rt = route_find(routes, path);
    char                 shown[200], list[400];
    if (may_answer(rt)) {
        c->req.route = rt;
        return true;
    }
    route_list(routes, list, sizeof list);
    api_fail(e, 404, "", "X-Amzn-SageMaker-Custom-Attributes: route=%s is no route that takes a body; here are %s",
             api_excerpt(shown, sizeof shown, path.p, path.n), list);
    return false;
}

/* key=value pairs with ',' or ';' between. Only route is ours; all of it goes back with the answer. */
static bool take_attributes(struct conn *c, struct slice v, struct api_error *e)
{
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] >= ' ' && v.p[i] <= '~') continue;
        api_fail(e, 400, "", "X-Amzn-SageMaker-Custom-Attributes: byte %zu is not visible ASCII", i);
        return false;
    }
    for (size_t at = 0; at < v.n;) {
        size_t end = at;
        while (end < v.n && v.p[end] != ',' && v.p[end] != ';') end++;
        struct slice one = trim((struct slice){ v.p + at, end - at });
        if (one.n > 6 && !strncasecmp(one.p, "route=", 6) &&
            !take_route(c, trim((struct slice){ one.p + 6, one.n - 6 }), e))
            return false;
        at = end + 1;
    }
    return sagemaker_answer_line(c, e, "X-Amzn-SageMaker-Custom-Attributes: %.*s", (int)v.n, v.p);
}

/* The request's id in the log and in x-request-id, unless X-Request-Id names another. */
static bool take_inference_id(struct conn *c, struct slice v, struct api_error *e)
{
    (void)e;
    if (c->req.id_given || !slice_is_id(v)) return true;
    memcpy(c->req.id, v.p, v.n);
    c->req.id[v.n] = 0;
    c->req.id_given = true;
    return true;
}

bool sagemaker_session_open(struct conn *c, struct api_error *e)
{
    struct sessions *all = c->io->srv->sessions;
    char             when[40];
    enum status      st = sessions_open(all, clock_us(), c->req.session);
    if (st) {
        api_fail(e, 424, "", "%s",
                 st == ST_AGAIN ? "too many sessions are open; see --max-sessions" : "no session can be made");
        return false;
    }
    time_t    end = (time_t)(clock_wall_s() + sessions_seconds(all));
    struct tm t;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&end, &t));
    return sagemaker_answer_line(c, e, "X-Amzn-SageMaker-New-Session-Id: %s; Expires=%s", c->req.session, when);
}

bool sagemaker_sessions_on(struct conn *c, struct api_error *e)
{
    if (c->io->srv->sessions) return true;
    api_fail(
        e, 400, "",
        "X-Amzn-SageMaker-Session-Id: sessions are off; SAGEMAKER_ENABLE_STATEFUL_SESSIONS=true or --stateful-sessions turns them on");
    return false;
}

static bool take_session(struct conn *c, struct slice v, struct api_error *e)
{
    if (!sagemaker_sessions_on(c, e)) return false;
    if (v.n == 11 && !memcmp(v.p, "NEW_SESSION", 11)) return sagemaker_session_open(c, e);
    if (sessions_has(c->io->srv->sessions, v.p, v.n, clock_us())) {
        memcpy(c->req.session, v.p, v.n); /* it has the bytes of an id */
        c->req.session[v.n] = 0;
        return true;
    }
    api_fail(e, 424, "",
             "X-Amzn-SageMaker-Session-Id: no such session is open here; it may have expired, ask for NEW_SESSION");
    return false;
}

/* The adapter that answers, whatever the body's "model" is. */
static bool set_adapter(struct conn *c, struct slice v, struct api_error *e)
{
    char shown[200];
    if (!c->io->srv->cfg->lora) {
        api_fail(e, 400, "",
                 "X-Amzn-SageMaker-Adapter-Identifier: found '%s', but adapters are not served; leave the header out, "
                 "or start the server with --enable-lora",
                 api_excerpt(shown, sizeof shown, v.p, v.n));
        return false;
    }
    free(c->req.adapter);
    c->req.adapter = malloc(v.n + 1);
    if (!c->req.adapter) {
        api_fail(e, 503, "", "out of memory");
        return false;
    }
    memcpy(c->req.adapter, v.p, v.n);
    c->req.adapter[v.n] = 0;
    return true;
}

static bool take_adapter(struct conn *c, struct slice v, struct api_error *e)
{
    c->req.adapter_given = true;
    return set_adapter(c, v, e);
}

/* A second name, for where the first is not given. */
static bool take_alias(struct conn *c, struct slice v, struct api_error *e)
{
    return c->req.adapter_given || set_adapter(c, v, e);
}

static const struct header {
    const char *name;
    size_t      bytes_max;
    bool (*take)(struct conn *c, struct slice v, struct api_error *e); /* v: not empty. False: *e */
} headers[] = {
    { "Accept", ACCEPT_MAX, take_accept },
    { "X-Amzn-SageMaker-Accept", ACCEPT_MAX, take_accept },
    { "X-Amzn-SageMaker-Custom-Attributes", ATTRIBUTES_MAX, take_attributes },
    { "X-Amzn-SageMaker-Inference-Id", INFERENCE_ID_MAX, take_inference_id },
    { "X-Amzn-SageMaker-Session-Id", SESSION_VALUE_MAX, take_session },
    { "X-Amzn-SageMaker-Adapter-Identifier", ADAPTER_MAX, take_adapter },
    { "X-Amzn-SageMaker-Adapter-Alias", ADAPTER_MAX, take_alias },
};
enum { HEADERS = sizeof headers / sizeof *headers, N_ACCEPT = 2 /* the first, which may come several times */ };

bool sagemaker_head(struct conn *c, const struct http_head *d, struct api_error *e)
{
    bool seen[HEADERS] = { 0 };
    for (uint32_t i = 0; i < d->n_field; i++) {
        struct slice v = d->field[i].value;
        size_t       k = 0;
        while (k < HEADERS && !slice_is(d->field[i].name, headers[k].name)) k++;
        if (k == HEADERS || !v.n) continue;
        if (v.n > headers[k].bytes_max) {
            api_fail(e, 400, "", "%s: found %zu bytes, allowed are %zu", headers[k].name, v.n, headers[k].bytes_max);
            return false;
        }
        if (seen[k] && k >= N_ACCEPT) {
            api_fail(e, 400, "", "%s is given twice", headers[k].name);
            return false;
        }
        seen[k] = true;
        if (!headers[k].take(c, v, e)) return false;
    }
    return true;
}
