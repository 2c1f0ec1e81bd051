/* router: method + path -> handler, who may call it, and how large its body may be (routes.h has the table).   Thread:
 * any. No path is ever normalised or decoded: what is not in the table letter by letter is 404. */
#pragma once
#include "server/http.h"

struct conn;
struct dialect;

/* Every row must choose; a row that does not fails to compile. */
enum auth_class {
    AUTH_UNSET = 0,
    AUTH_OPEN,    /* anyone: health and the page itself */
    AUTH_KEY,     /* a key, once keys are configured */
    AUTH_METRICS, /* open on loopback unless --protect-metrics, a key beyond it unless --open-metrics */
};
enum route_flag {
    ROUTE_JSON = 1,      /* POST: a JSON body is required */
    ROUTE_MODEL = 2,     /* 503 until the model is ready, and while draining */
    ROUTE_GEN = 4,       /* body limit is --max-body-mib; logged and counted as a generation */
    ROUTE_PREFIX = 8,    /* path is a beginning; the rest is conn's req.arg */
    ROUTE_QUIET = 16,    /* not in http_* metrics: probes and scrapes */
    ROUTE_PLATFORM = 32, /* its head has headers of a platform (sagemaker.h) */
};
enum { ROUTE_BODY_SMALL = 64 << 10, ROUTE_BODY_TEXT = 4 << 20, ROUTE_ALLOW_BYTES = 64 };

struct route {
    const char     *path, *label; /* label: of metrics */
    unsigned        methods;      /* enum http_method_bit */
    enum auth_class auth;
    unsigned        flags;
    size_t          body_max;
    void (*handle)(struct conn *c);
    const struct dialect *dialect; /* of a ROUTE_GEN: how it is asked and answered; else NULL */
};

struct routes {
    const struct route *row;
    uint32_t            n;
};

/* NULL: no such path. Exact paths win over prefixes. */
const struct route *route_find(const struct routes *t, struct slice path);
uint32_t            route_index(const struct routes *t, const struct route *r);
/* The method that names a route in lists and labels: POST where it takes POST, else the first that it takes. */
const char *route_method(const struct route *r);
/* What some route of the table takes. */
unsigned route_methods(const struct routes *t);
/* What an Allow header says of a set of enum http_method_bit, for example "GET, HEAD, POST"; into
 * out[ROUTE_ALLOW_BYTES]. Returns out. */
const char *route_allow(unsigned methods, char *out);
/* What the client of an unknown path may have meant: a path of the table, or NULL. A missing or doubled /v1, a slash at
 * the end, a prefix of another server (/api/v1/..), capitals. */
const char *route_hint(const struct routes *t, struct slice path);
/* "POST /v1/chat/completions, ..": the routes that clients call, in the order of the table. */
void route_list(const struct routes *t, char *out, size_t bytes);
