/* sagemaker: the headers that SageMaker's platform adds to POST /invocations.   Thread: the connection's io thread.
 * Headers that are not named here are ignored, as the platform asks. */
#pragma once
#include "server/conn.h"

/* Called when the head of a request to such a route is complete. It may replace c->req.route (route= of the custom
 * attributes), c->req.id, and sets what the answer's head carries. False: refused, with *e. */
bool sagemaker_head(struct conn *c, const struct http_head *d, struct api_error *e);
/* One more line of the answer's head. False: *e. */
bool sagemaker_answer_line(struct conn *c, struct api_error *e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* False: *e. on: this server has sessions. open: c->req.session is a new one, and the answer's head tells it. */
bool sagemaker_sessions_on(struct conn *c, struct api_error *e);
bool sagemaker_session_open(struct conn *c, struct api_error *e);
