#include "server/router.h"
#include "server/endpoint.h"
#include "server/gen.h"
#include "server/health.h"
#include "server/metrics.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* clang-format off */
/*    path                    label                   methods        auth          flags                                body             handler */
#define ROUTES(X)                                                                                                                           \
    X("/v1/chat/completions", "/v1/chat/completions", M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle_chat) \
    X("/v1/completions",      "/v1/completions",      M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL | ROUTE_GEN, 0,                gen_handle_completion) \
    X("/tokenize",            "/tokenize",            M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL,             ROUTE_BODY_TEXT,  endpoint_tokenize) \
    X("/detokenize",          "/detokenize",          M_POST,         AUTH_KEY,     ROUTE_JSON | ROUTE_MODEL,             ROUTE_BODY_TEXT,  endpoint_detokenize) \
    X("/tokenizer_info",      "/tokenizer_info",      M_GET,          AUTH_KEY,     ROUTE_MODEL,                          ROUTE_BODY_SMALL, endpoint_tokenizer_info) \
    X("/v1/models",           "/v1/models",           M_GET,          AUTH_KEY,     ROUTE_MODEL,                          ROUTE_BODY_SMALL, endpoint_models) \
    X("/v1/models/",          "/v1/models/{id}",      M_GET,          AUTH_KEY,     ROUTE_MODEL | ROUTE_PREFIX,           ROUTE_BODY_SMALL, endpoint_model_card) \
    X("/health",              "/health",              M_GET,          AUTH_OPEN,    ROUTE_QUIET,                          ROUTE_BODY_SMALL, health_handle_health) \
    X("/ready",               "/ready",               M_GET,          AUTH_OPEN,    ROUTE_QUIET,                          ROUTE_BODY_SMALL, health_handle_ready) \
    X("/livez",               "/livez",               M_GET,          AUTH_OPEN,    ROUTE_QUIET,                          ROUTE_BODY_SMALL, health_handle_livez) \
    X("/ping",                "/ping",                M_GET | M_POST, AUTH_OPEN,    ROUTE_QUIET,                          ROUTE_BODY_SMALL, health_handle_health) \
    X("/metrics",             "/metrics",             M_GET,          AUTH_METRICS, ROUTE_QUIET,                          ROUTE_BODY_SMALL, metrics_handle) \
    X("/version",             "/version",             M_GET,          AUTH_KEY,     ROUTE_QUIET,                          ROUTE_BODY_SMALL, endpoint_version) \
    X("/",                    "/",                    M_GET,          AUTH_OPEN,    0,                                    ROUTE_BODY_SMALL, endpoint_page)

/* clang-format on */

/* RFC 9110, 9.3.2: HEAD is taken wherever GET is; the answer goes out without its body (conn_respond_with). */
#define WITH_HEAD(m)             ((m)&M_GET ? (m) | M_HEAD : (m))
#define ROW(p, l, m, a, f, b, h) { .path = p, .label = l, .methods = WITH_HEAD(m), .auth = a, .flags = f, .body_max = b, .handle = h },
static const struct route table[] = { ROUTES(ROW) };
#define AUTH_IS_SET(p, l, m, a, f, b, h) static_assert((a) != AUTH_UNSET, "route " p " has no auth class");
ROUTES(AUTH_IS_SET)

enum { N_ROUTE = sizeof table / sizeof *table };

const struct route *route_table(uint32_t *n_out)
{
    *n_out = N_ROUTE;
    return table;
}

uint32_t route_index(const struct route *r) { return (uint32_t)(r - table); }

const struct route *route_find(struct slice path)
{
    const struct route *prefix = NULL;
    for (uint32_t i = 0; i < N_ROUTE; i++) {
        size_t n = strlen(table[i].path);
        if (path.n == n && !memcmp(path.p, table[i].path, n) && !(table[i].flags & ROUTE_PREFIX)) return &table[i];
        if ((table[i].flags & ROUTE_PREFIX) && path.n > n && !memcmp(path.p, table[i].path, n)) prefix = &table[i];
    }
    return prefix;
}

static bool same_folded(struct slice a, const char *b) { return a.n == strlen(b) && !strncasecmp(a.p, b, a.n); }

/* The exact path that p is but for capitals, with or without /v1 in front. */
static const char *meant(struct slice p)
{
    for (uint32_t i = 0; i < N_ROUTE; i++) {
        const char *path = table[i].path;
        if ((table[i].flags & ROUTE_PREFIX) || !path[1]) continue;
        if (same_folded(p, path)) return path;
        if (!strncmp(path, "/v1/", 4) && same_folded(p, path + 3)) return path;
    }
    return NULL;
}

const char *route_hint(struct slice path)
{
    while (path.n > 1 && path.p[path.n - 1] == '/') path.n--;
    /* Whatever stands in front, the longest end that is a route is what was meant: /v1/v1/models, /api/v1/models, //health. */
    for (size_t i = 0; i < path.n; i++) {
        if (path.p[i] != '/') continue;
        const char *found = meant((struct slice){ path.p + i, path.n - i });
        if (found) return found;
    }
    return NULL;
}

void route_list(char *out, size_t bytes)
{
    size_t n = 0;
    *out = 0;
    for (uint32_t i = 0; i < N_ROUTE && n < bytes; i++) {
        if ((table[i].flags & ROUTE_QUIET) || !table[i].path[1]) continue;
        int k = snprintf(out + n, bytes - n, "%s%s %s", n ? ", " : "", route_method(&table[i]), table[i].label);
        if (k < 0) return;
        n += (size_t)k;
    }
}

const char *route_method(const struct route *r)
{
    if (r->methods & M_POST) return http_method_name(M_POST);
    return http_method_name(r->methods & -r->methods);
}

unsigned route_methods(void)
{
    unsigned all = 0;
    for (uint32_t i = 0; i < N_ROUTE; i++) all |= table[i].methods;
    return all;
}

const char *route_allow(unsigned methods, char *out)
{
    static const enum http_method_bit order[] = { M_GET, M_HEAD, M_POST, M_PUT, M_PATCH, M_DELETE, M_OPTIONS };
    size_t                            n = 0;
    *out = 0;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        if (!(methods & order[i])) continue;
        n += (size_t)snprintf(out + n, ROUTE_ALLOW_BYTES - n, "%s%s", n ? ", " : "", http_method_name(order[i]));
    }
    return out;
}
