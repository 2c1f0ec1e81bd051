#include "server/router.h"
#include "base/hex.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

uint32_t route_index(const struct routes *t, const struct route *r) { return (uint32_t)(r - t->row); }

const struct route *route_find(const struct routes *t, struct slice path)
{
    const struct route *prefix = NULL;
    for (uint32_t i = 0; i < t->n; i++) {
        size_t n = strlen(t->row[i].path);
        if (path.n == n && !memcmp(path.p, t->row[i].path, n) && !(t->row[i].flags & ROUTE_PREFIX)) return &t->row[i];
        if ((t->row[i].flags & ROUTE_PREFIX) && path.n > n && !memcmp(path.p, t->row[i].path, n)) prefix = &t->row[i];
    }
    return prefix;
}

static bool same_folded(struct slice a, const char *b) { return a.n == strlen(b) && !strncasecmp(a.p, b, a.n); }

/* The exact path that p is but for capitals, with or without /v1 in front. */
static const char *meant(const struct routes *t, struct slice p)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const char *path = t->row[i].path;
        if ((t->row[i].flags & ROUTE_PREFIX) || !path[1]) continue;
        if (same_folded(p, path)) return path;
        if (!strncmp(path, "/v1/", 4) && same_folded(p, path + 3)) return path;
    }
    return NULL;
}

const char *route_hint(const struct routes *t, struct slice path)
{
    while (path.n > 1 && path.p[path.n - 1] == '/') path.n--;
    /* Whatever stands in front, the longest end that is a route is what was meant: /v1/v1/models, /api/v1/models,
     * //health. */
    for (size_t i = 0; i < path.n; i++) {
        if (path.p[i] != '/') continue;
        const char *found = meant(t, (struct slice){ path.p + i, path.n - i });
        if (found) return found;
    }
    return NULL;
}

void route_list(const struct routes *t, char *out, size_t bytes)
{
    size_t n = 0;
    *out = 0;
    for (uint32_t i = 0; i < t->n && n < bytes; i++) {
        if ((t->row[i].flags & ROUTE_QUIET) || !t->row[i].path[1]) continue;
        int k = snprintf(out + n, bytes - n, "%s%s %s", n ? ", " : "", route_method(&t->row[i]), t->row[i].label);
        if (k < 0) return;
        n += (size_t)k;
    }
}

const char *route_method(const struct route *r)
{
    if (r->methods & M_POST && !(r->methods & M_DELETE)) return http_method_name(M_POST);
    return http_method_name(r->methods & -r->methods);
}

unsigned route_methods(const struct routes *t)
{
    unsigned all = 0;
    for (uint32_t i = 0; i < t->n; i++) all |= t->row[i].methods;
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

bool route_decode(char *s, size_t *n_out)
{
    size_t at = 0;
    for (const char *p = s; *p; p++) {
        char ch = *p;
        if (ch == '%') {
            int a = hex_value(p[1]), b = a < 0 ? -1 : hex_value(p[2]);
            if (b < 0) return false;
            ch = (char)(a << 4 | b);
            p += 2;
        }
        if ((unsigned char)ch < 0x20 || ch == 0x7f) return false;
        s[at++] = ch;
    }
    *n_out = at;
    return true;
}
