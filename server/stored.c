#include "server/stored.h"
#include "api/responses/stored.h"
#include "server/conn.h"
#include <stdlib.h>
#include <string.h>

enum { BODY_MAX = 1 << 30, VALUE_BYTES = 64 };

/* ---------------------------------------------------------------- the query */

/* Copies the value of a parameter, as it stands there: no value that is allowed has an escape. False: it is not there.
 * One that is too long becomes "?", which is no value of any. */
static bool query_value(const char *query, const char *name, char out[VALUE_BYTES])
{
    size_t n_name = strlen(name);
    for (const char *p = query; p && *p;) {
        size_t n = strcspn(p, "&");
        if (n > n_name && p[n_name] == '=' && !memcmp(p, name, n_name)) {
            const char *value = p + n_name + 1;
            size_t      n_value = n - n_name - 1;
            bool        fits = n_value < VALUE_BYTES;
            snprintf(out, VALUE_BYTES, "%.*s", fits ? (int)n_value : 1, fits ? value : "?");
            return true;
        }
        p += n + (p[n] == '&');
    }
    return false;
}

/* ---------------------------------------------------------------- what is asked for */

static enum status get(struct conn *c, const char *id, struct buf *out, struct api_error *e)
{
    char stream[VALUE_BYTES];
    if (query_value(c->req.query, "stream", stream) && strcmp(stream, "false") != 0)
        return api_fail(e, 400, "stream", "a stored response is not streamed: ask for it without 'stream'");
    return api_response_get(c->io->srv->model, c->req.tenant, id, out, e);
}

static enum status remove_it(struct conn *c, const char *id, struct buf *out, struct api_error *e)
{
    return api_response_delete(c->io->srv->model, c->req.tenant, id, out, e);
}

static enum status cancel(struct conn *c, const char *id, struct buf *out, struct api_error *e)
{
    (void)out;
    return api_response_cancel(c->io->srv->model, c->req.tenant, id, e);
}

static enum status items(struct conn *c, const char *id, struct buf *out, struct api_error *e)
{
    char               limit[VALUE_BYTES], order[VALUE_BYTES], after[VALUE_BYTES];
    struct stored_page page = { .limit = STORED_PAGE_DEFAULT };
    if (query_value(c->req.query, "limit", limit)) {
        char         *end;
        unsigned long n = strtoul(limit, &end, 10);
        if (*limit < '0' || *limit > '9' || *end || n < 1 || n > STORED_PAGE_MAX)
            return api_fail(e, 400, "limit", "'limit' must be a number from 1 to %d", STORED_PAGE_MAX);
        page.limit = (uint32_t)n;
    }
    if (query_value(c->req.query, "order", order)) {
        page.oldest_first = !strcmp(order, "asc");
        if (!page.oldest_first && strcmp(order, "desc") != 0)
            return api_fail(e, 400, "order", "'order' must be asc or desc");
    }
    if (query_value(c->req.query, "after", after)) {
        page.after = after;
        page.n_after = strlen(after);
    }
    return api_response_items(c->io->srv->model, c->req.tenant, id, &page, out, e);
}

/* ---------------------------------------------------------------- the route */

typedef enum status stored_fn(struct conn *c, const char *id, struct buf *out, struct api_error *e);

static const struct {
    const char *tail; /* of the path, behind the id */
    unsigned    method;
    stored_fn  *fn;
} table[] = {
    { "", M_GET | M_HEAD, get },
    { "", M_DELETE, remove_it },
    { "/input_items", M_GET | M_HEAD, items },
    { "/cancel", M_POST, cancel },
};

void stored_handle(struct conn *c)
{
    char            *tail = strchr(c->req.arg, '/');
    const char      *rest = tail ? tail : "";
    unsigned         allowed = 0;
    stored_fn       *fn = NULL;
    struct api_error e = { 0 };
    struct buf       out;
    char             allow[ROUTE_ALLOW_BYTES];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].tail, rest) != 0) continue;
        allowed |= table[i].method;
        if (table[i].method & c->req.method) fn = table[i].fn;
    }
    if (!fn) {
        if (allowed)
            conn_fail(c, 405, "", "this route takes %s", route_allow(allowed, allow));
        else
            conn_fail(c, 404, "", "no such route: behind the id come input_items and cancel");
        return;
    }
    if (tail) *tail = 0;
    buf_init(&out, BODY_MAX);
    enum status st = fn(c, c->req.arg, &out, &e);
    if (st)
        conn_error(c, &e);
    else if (out.failed)
        conn_fail(c, 503, "", "out of memory");
    else
        conn_respond(c, 200, "application/json", out.data, out.n);
    buf_free(&out);
}
