#include "server/invoke.h"
#include "base/clock.h"
#include "server/gen.h"
#include "server/sagemaker.h"
#include "server/sessions.h"
#include <stdio.h>
#include <string.h>

enum { VERB_BODY_MAX = 256 };

/* {"requestType":"..."} and nothing else: the word, which is borrowed from *body_out; NULL: another body. */
static const char *verb_of(const struct buf *b, json_t **body_out)
{
    struct json_error e;
    *body_out = NULL;
    if (!b->n || b->n > VERB_BODY_MAX || !memmem(b->data, b->n, "\"requestType\"", 13)) return NULL;
    *body_out = json_parse(b->data, b->n, 0, &e);
    if (json_object_size(*body_out) != 1) return NULL;
    return json_string_value(json_object_get(*body_out, "requestType"));
}

static void tell(struct conn *c, const char *key)
{
    char body[100];
    int  n = snprintf(body, sizeof body, "{\"%s\":\"%s\"}", key, c->req.session);
    conn_respond(c, 200, "application/json", body, (size_t)n);
}

static void open_session(struct conn *c)
{
    struct api_error e;
    if (!*c->req.session && !sagemaker_session_open(c, &e)) /* the header may have opened it */
        conn_error(c, &e);
    else
        tell(c, "session_id");
}

static void close_session(struct conn *c)
{
    struct api_error e;
    if (!*c->req.session)
        conn_fail(c, 400, "", "requestType CLOSE needs the header X-Amzn-SageMaker-Session-Id");
    else if (!sessions_close(c->io->srv->sessions, c->req.session, strlen(c->req.session), clock_us()))
        conn_fail(c, 424, "", "the session is closed already");
    else if (!sagemaker_answer_line(c, &e, "X-Amzn-SageMaker-Closed-Session-Id: %s", c->req.session))
        conn_error(c, &e);
    else
        tell(c, "closed_session_id");
}

static const struct verb {
    const char *name;
    void (*handle)(struct conn *c);
} verbs[] = { { "NEW_SESSION", open_session }, { "CLOSE", close_session } };

static void handle_verb(struct conn *c, const char *name)
{
    struct api_error e;
    char             shown[200];
    if (!sagemaker_sessions_on(c, &e)) {
        conn_error(c, &e);
        return;
    }
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verbs[i].name, name) != 0) continue;
        verbs[i].handle(c);
        return;
    }
    conn_fail(c, 400, "requestType", "'requestType': found '%s', allowed are NEW_SESSION and CLOSE",
              api_excerpt(shown, sizeof shown, name, strlen(name)));
}

void invoke_handle(struct conn *c)
{
    json_t     *body;
    const char *verb = verb_of(&c->body, &body);
    if (verb)
        handle_verb(c, verb);
    else
        gen_handle(c);
    json_decref(body);
}
