/* sagemaker: the headers that SageMaker's platform adds to POST /invocations.   Thread: the connection's io thread.
 * Headers that are not named here are ignored, as the platform asks. */
#pragma once
#include "server/conn.h"

/* Call it when the head of a request to a ROUTE_PLATFORM route is complete. It may replace c->req.route (route= of the
 * custom attributes) and c->req.id, and sets c->req.answer_head and c->req.session. False: refused, with *e. */
bool sagemaker_head(struct conn *c, const struct http_head *d, struct api_error *e);
/* Adds a line to c->req.answer_head. False: refused, with *e. */
bool sagemaker_answer_line(struct conn *c, struct api_error *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether this server has sessions. False: *e says so. */
bool sagemaker_sessions_on(struct conn *c, struct api_error *e);
/* Opens a session, writes its id to c->req.session, and adds it to the answer's head. False: refused, with *e. */
bool sagemaker_session_open(struct conn *c, struct api_error *e);
