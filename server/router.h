/* router: finds the row of a method and a path: handler, authentication and limit of the body (routes.h has the table).
 * Thread: any. Paths are never normalised or decoded; a path that is not literally in the table is a 404. */
#pragma once
#include "server/http.h"

struct conn;
struct dialect;

/* Every row must set it; a row without it does not compile. */
enum auth_class {
    AUTH_UNSET = 0,
    AUTH_OPEN,    /* no key: health and the page itself */
    AUTH_KEY,     /* a key, once keys are configured */
    AUTH_METRICS, /* open on loopback unless --protect-metrics, a key beyond it unless --open-metrics */
};
enum route_flag {
    ROUTE_JSON = 1,      /* POST: a JSON body is required */
    ROUTE_MODEL = 2,     /* 503 until the model is ready, and while draining */
    ROUTE_GEN = 4,       /* body limit is --max-body-mib; logged and counted as a generation */
    ROUTE_PREFIX = 8,    /* path is a prefix; the rest is in conn's req.arg */
    ROUTE_QUIET = 16,    /* not counted in http_* metrics: probes and scrapes */
    ROUTE_PLATFORM = 32, /* requests may have headers of a platform (sagemaker.h) */
};
enum { ROUTE_BODY_SMALL = 64 << 10, ROUTE_BODY_TEXT = 4 << 20, ROUTE_ALLOW_BYTES = 64 };

struct route {
    const char     *path, *label; /* label: in metrics */
    unsigned        methods;      /* enum http_method_bit */
    enum auth_class auth;
    unsigned        flags;
    size_t          body_max;
    void (*handle)(struct conn *c);
    const struct dialect *dialect; /* of a ROUTE_GEN: the form of requests and answers; else NULL */
};

struct routes {
    const struct route *row;
    uint32_t            n;
};

/* NULL: no such path. Exact paths take precedence over prefixes. */
const struct route *route_find(const struct routes *t, struct slice path);
uint32_t            route_index(const struct routes *t, const struct route *r);
/* Decodes the rest of a prefix route's path in place: a name may hold '/', sent raw or as %2F. Nothing that is decoded
 * here ever names a file. false: a wrong escape, or a control byte. */
bool route_decode(char *s, size_t *n_out);
/* The method of a route in lists and labels: POST if allowed, else the first allowed one, as for what can be
 * deleted. */
const char *route_method(const struct route *r);
/* All methods that any route of the table allows. */
unsigned route_methods(const struct routes *t);
/* The value of an Allow header for a set of enum http_method_bit, for example "GET, HEAD, POST", in
 * out[ROUTE_ALLOW_BYTES]. Returns out. */
const char *route_allow(unsigned methods, char *out);
/* A path of the table that an unknown path may stand for, or NULL. Recognises a missing or doubled /v1, a trailing
 * slash, a prefix of another server (/api/v1/..) and capitals. */
const char *route_hint(const struct routes *t, struct slice path);
/* "POST /v1/chat/completions, ..": the routes that clients call, in the order of the table. */
void route_list(const struct routes *t, char *out, size_t bytes);
