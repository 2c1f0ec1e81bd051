#include "server/door.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/conn.h"
#include "server/metrics.h"
#include "server/strikes.h"
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

/* ---- Host ---- */

static bool ends_with(struct slice s, const char *end)
{
    size_t n = strlen(end);
    return s.n > n && !strncasecmp(s.p + s.n - n, end, n);
}

static bool is_address(struct slice host, bool *loopback_out)
{
    char text[64];
    *loopback_out = false;
    if (!host.n || host.n >= sizeof text) return false;
    bool bracketed = host.p[0] == '[' && host.p[host.n - 1] == ']';
    memcpy(text, host.p + bracketed, host.n - 2 * (size_t)bracketed);
    text[host.n - 2 * (size_t)bracketed] = 0;
    struct in_addr  v4;
    struct in6_addr v6;
    if (bracketed && inet_pton(AF_INET6, text, &v6) == 1) {
        *loopback_out = IN6_IS_ADDR_LOOPBACK(&v6);
        return true;
    }
    if (bracketed || inet_pton(AF_INET, text, &v4) != 1) return false;
    *loopback_out = ntohl(v4.s_addr) >> 24 == 127;
    return true;
}

bool door_name_is_local(struct slice host, const char *own_name)
{
    static const char *const private[] = { ".local", ".internal", ".localhost",
                                           ".svc" }; /* RFC 6762, 6761; ICANN 2024; Kubernetes */
    bool loopback;
    if (is_address(host, &loopback)) return true;
    if (host.n && host.p[host.n - 1] == '.') host.n--; /* of a name that is written in full */
    if (host.n && !memchr(host.p, '.', host.n)) return true;
    if (*own_name && slice_is(host, own_name)) return true;
    for (size_t i = 0; i < sizeof private / sizeof *private; i++)
        if (ends_with(host, private[i])) return true;
    return false;
}

bool door_takes_host(const struct server *s, struct slice host)
{
    const struct str_list *more = &s->cfg->allowed_host;
    bool                   anonymous = !auth_enabled(s->auth), loopback;
    if (!s->loopback && !anonymous && !more->n) return true;
    if (!host.n) return true; /* HTTP/1.0 without one: no browser */
    if (slice_is(host, "localhost") || slice_is(host, s->cfg->host)) return true;
    for (uint32_t i = 0; i < more->n; i++)
        if (slice_is(host, more->s[i]) || !strcmp(more->s[i], "*")) return true;
    if (is_address(host, &loopback) && loopback) return true;
    return !s->loopback && anonymous && door_name_is_local(host, s->host_name);
}

/* ---- keys ---- */

static bool needs_key(const struct server *s, const struct route *rt)
{
    if (!auth_enabled(s->auth)) return false;
    if (rt->auth == AUTH_METRICS) return s->cfg->protect_metrics || !(s->loopback || s->cfg->open_metrics);
    return rt->auth == AUTH_KEY;
}

bool door_takes_key(struct conn *c, const struct route *rt, const struct http_head *d, struct api_error *e)
{
    struct server *s = c->io->srv;
    uint64_t       now = clock_us(), tenant = 0;
    char           from[PEER_TEXT];
    if (!needs_key(s, rt)) return true;
    bool right = auth_check(s->auth, d, &tenant), missing = !d->n_auth && !d->n_key;
    if (!missing && strikes_slowed(s->strikes, c->peer, right ? tenant : 0, now)) {
        metrics_key_refused(s->metrics, KEY_SLOWED);
        api_fail(e, 429, "", "too many wrong API keys came from this address; try again later");
        return false;
    }
    if (right) {
        if (c->tenant_seen != tenant) strikes_right(s->strikes, c->peer, tenant, now); /* once a connection and key */
        c->tenant_seen = tenant;
        c->req.tenant = tenant;
        return true;
    }
    metrics_key_refused(s->metrics, missing ? KEY_MISSING : KEY_WRONG);
    if (!missing) {
        uint32_t n =
            strikes_wrong(s->strikes, c->peer, now); /* not within the macro, which does not always look at it */
        LOG_WARN_LIMITED("auth: a wrong key from %s, number %u from there", peer_text(c->peer, from), n);
    }
    api_fail(e, 401, "", "a valid API key is needed: Authorization: Bearer KEY");
    return false;
}
