/* sagemaker: the headers that SageMaker's platform adds to POST /invocations.   Thread: the connection's io thread.
 * Headers that are not named here are ignored, as the platform asks. */
#pragma once
#include "server/conn.h"

/* Called when the head of a request to such a route is complete. It may replace c->req.route (route= of the custom
 * attributes) and c->req.id, and adds lines to the answer's head. False: the request is refused, with *e. */
bool sagemaker_head(struct conn *c, const struct http_head *d, struct api_error *e);
/* Adds one line to the answer's head. False: no memory, or the line is too long, with *e. */
bool sagemaker_answer_line(struct conn *c, struct api_error *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* sagemaker_sessions_on: whether this server has sessions. sagemaker_session_open: opens a session as c->req.session,
 * and adds its id to the answer's head. False: *e has the reason. */
bool sagemaker_sessions_on(struct conn *c, struct api_error *e);
bool sagemaker_session_open(struct conn *c, struct api_error *e);
