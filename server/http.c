#include "server/http.h"
#include <string.h>
#include <strings.h>

bool slice_is(struct slice s, const char *text) { return strlen(text) == s.n && !strncasecmp(s.p, text, s.n); }

bool slice_is_id(struct slice s)
{
    if (!s.n || s.n > 128) return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i], l = (char)(c | 0x20);
        if (!((c >= '0' && c <= '9') || (l >= 'a' && l <= 'z') || c == '.' || c == '_' || c == '-')) return false;
    }
    return true;
}

const char *http_status_text(int status)
{
    static const struct {
        int         status;
        const char *text;
    } row[] = {
        { 200, "OK" },
        { 204, "No Content" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 413, "Content Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 422, "Unprocessable Content" },
        { 424, "Failed Dependency" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
        { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].status == status) return row[i].text;
    return "Error";
}

/* ---- llhttp callbacks ---- */

static void slice_extend(struct slice *s, const char *p, size_t n)
{
    if (!s->p) s->p = p;
    s->n = (size_t)(p + n - s->p); /* one head is one piece of memory: pieces of one field touch */
}

static int on_url(llhttp_t *ll, const char *p, size_t n)
{
    struct http *h = ll->data;
    slice_extend(&h->head->target, p, n);
    return 0;
}

static int on_field(llhttp_t *ll, const char *p, size_t n)
{
    struct http *h = ll->data;
    if (!h->head || h->head->n_field >= HTTP_HEADERS_MAX) return -1;
    slice_extend(&h->head->field[h->head->n_field].name, p, n);
    return 0;
}

static int on_value(llhttp_t *ll, const char *p, size_t n)
{
    struct http *h = ll->data;
    if (!h->head || h->head->n_field >= HTTP_HEADERS_MAX) return -1;
    if (n) slice_extend(&h->head->field[h->head->n_field].value, p, n);
    return 0;
}

static int on_value_complete(llhttp_t *ll)
{
    struct http *h = ll->data;
    if (!h->head || h->head->n_field >= HTTP_HEADERS_MAX) return -1;
    struct slice *v = &h->head->field[h->head->n_field++].value;
    if (!v->p) v->p = "";
    while (v->n && (v->p[v->n - 1] == ' ' || v->p[v->n - 1] == '\t')) v->n--;
    while (v->n && (*v->p == ' ' || *v->p == '\t')) {
        v->p++;
        v->n--;
    }
    return 0;
}

static int on_headers_complete(llhttp_t *ll)
{
    struct http *h = ll->data;
    h->head->keep_alive = llhttp_should_keep_alive(ll) != 0;
    ll->upgrade = 0; /* Upgrade is ignored: an HTTP/1.1 answer follows */
    return 0;
}

static int on_body(llhttp_t *ll, const char *p, size_t n)
{
    struct http *h = ll->data;
    if (h->body) buf_put(h->body, p, n);
    return 0;
}

static int on_message_complete(llhttp_t *ll)
{
    ((struct http *)ll->data)->complete = true;
    return 0;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

void http_begin(struct http *h)
{
    memset(h, 0, sizeof *h);
    llhttp_init(&h->ll, HTTP_REQUEST, &settings);
    h->ll.data = h;
}

/* ---- what the fields say ---- */

static unsigned method_bit(const llhttp_t *ll)
{
    switch (ll->method) {
    case HTTP_GET: return M_GET;
    case HTTP_POST: return M_POST;
    case HTTP_HEAD: return M_HEAD;
    case HTTP_OPTIONS: return M_OPTIONS;
    case HTTP_PUT: return M_PUT;
    case HTTP_DELETE: return M_DELETE;
    case HTTP_PATCH: return M_PATCH;
    default: return M_OTHER;
    }
}

const char *http_method_name(unsigned method)
{
    switch (method) {
    case M_GET: return "GET";
    case M_POST: return "POST";
    case M_HEAD: return "HEAD";
    case M_OPTIONS: return "OPTIONS";
    case M_PUT: return "PUT";
    case M_DELETE: return "DELETE";
    case M_PATCH: return "PATCH";
    default: return "?";
    }
}

/* Plain digits, no leading zero, below 2^63. */
static bool parse_length(struct slice v, uint64_t *out)
{
    uint64_t x = 0;
    if (!v.n || v.n > 19 || (v.p[0] == '0' && v.n > 1)) return false;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] < '0' || v.p[i] > '9') return false;
        x = x * 10 + (unsigned)(v.p[i] - '0');
    }
    *out = x;
    return x <= INT64_MAX;
}

/* uri-host [":" port] of RFC 3986, no userinfo. *host_out is the host without the port, brackets kept. */
static bool parse_host(struct slice v, struct slice *host_out)
{
    size_t i = 0;
    if (v.n && v.p[0] == '[') {
        for (i = 1; i < v.n && v.p[i] != ']'; i++)
            if (!strchr("0123456789abcdefABCDEF:.", v.p[i])) return false;
        if (i == v.n || i < 3) return false;
        i++;
    } else {
        for (; i < v.n && v.p[i] != ':'; i++) {
            char c = v.p[i], l = (char)(c | 0x20);
            if (!((c >= '0' && c <= '9') || (l >= 'a' && l <= 'z') || strchr("-._~%!$&'()*+,;=", c))) return false;
        }
    }
    *host_out = (struct slice){ v.p, i };
    if (!i) return false;
    if (i == v.n) return true;
    if (v.p[i] != ':' || v.n - i > 6) return false;
    for (i++; i < v.n; i++)
        if (v.p[i] < '0' || v.p[i] > '9') return false;
    return true;
}

/* origin-form, absolute-form (its host must be the Host field's), "*" */
static int parse_target(struct http_head *d, struct slice host_field, struct api_error *e)
{
    struct slice t = d->target;
    size_t       n_scheme = 0;
    if (t.n > 7 && !strncasecmp(t.p, "http://", 7)) n_scheme = 7;
    if (t.n > 8 && !strncasecmp(t.p, "https://", 8)) n_scheme = 8;
    if (n_scheme) {
        const char *a = t.p + n_scheme, *end = t.p + t.n, *slash = memchr(a, '/', (size_t)(end - a)),
                   *q = memchr(a, '?', (size_t)(end - a));
        const char *stop = q ? q : end;
        if (slash && slash < stop) stop = slash;
        struct slice authority = { a, (size_t)(stop - a) }, host;
        if (!parse_host(authority, &host)) {
            api_fail(e, 400, "", "the request target has a bad host");
            return -1;
        }
        if (authority.n != host_field.n || strncasecmp(authority.p, host_field.p, host_field.n)) {
            api_fail(e, 400, "", "the request target names another host than the Host header");
            return -1;
        }
        t = (struct slice){ stop, (size_t)(end - stop) };
        if (!t.n || *t.p == '?') t = (struct slice){ "/", 1 };
    } else if (!(t.n == 1 && *t.p == '*') && (!t.n || *t.p != '/')) {
        api_fail(e, 400, "", "the request target is not a path");
        return -1;
    }
    const char *q = memchr(t.p, '?', t.n);
    d->path = (struct slice){ t.p, q ? (size_t)(q - t.p) : t.n };
    if (q) d->query = (struct slice){ q + 1, t.n - d->path.n - 1 };
    return 0;
}

static int read_fields(struct http *h, struct http_head *d, struct api_error *e)
{
    uint32_t     n_host = 0, n_length = 0, n_te = 0, n_expect = 0;
    struct slice host = { "", 0 }, length = { 0 }, te = { 0 };
    for (uint32_t i = 0; i < d->n_field; i++) {
        struct slice n = d->field[i].name, v = d->field[i].value;
        switch (n.n) {
        case 4:
            if (slice_is(n, "host")) {
                n_host++;
                host = v;
            }
            break;
        case 6:
            if (slice_is(n, "expect")) {
                n_expect++;
                if (slice_is(v, "100-continue"))
                    d->expect = true;
                else
                    d->expect_unknown = true;
            } else if (slice_is(n, "origin")) {
                d->origin = v;
            }
            break;
        case 9:
            if (slice_is(n, "x-api-key")) {
                d->n_key++;
                d->api_key = v;
            }
            break;
        case 10:
            if (slice_is(n, "tracestate")) d->tracestate = v;
            break;
        case 11:
            if (slice_is(n, "traceparent")) {
                d->n_traceparent++;
                d->traceparent = v;
            }
            break;
        case 12:
            if (slice_is(n, "content-type")) {
                d->n_content_type++;
                d->content_type = v;
            }
            if (slice_is(n, "x-request-id")) {
                d->n_request_id++;
                d->request_id = v;
            }
            break;
        case 13:
            if (slice_is(n, "authorization")) {
                d->n_auth++;
                d->authorization = v;
            }
            break;
        case 14:
            if (slice_is(n, "content-length")) {
                n_length++;
                length = v;
            }
            break;
        case 16:
            if (slice_is(n, "content-encoding")) {
                d->n_content_encoding++;
                d->content_encoding = v;
            }
            break;
        case 17:
            if (slice_is(n, "transfer-encoding")) {
                n_te++;
                te = v;
            }
            break;
        case 28:
            if (slice_is(n, "endpoint-load-metrics-format")) d->orca = v;
            break;
        default: break;
        }
    }
    if (n_te) {
        if (n_length) {
            api_fail(e, 400, "", "Content-Length and Transfer-Encoding are both given");
            return -1;
        }
        if (n_te > 1 || !slice_is(te, "chunked")) {
            api_fail(e, 400, "", "Transfer-Encoding is not exactly 'chunked'");
            return -1;
        }
        if (d->minor == 0) {
            api_fail(e, 400, "", "Transfer-Encoding is not part of HTTP/1.0");
            return -1;
        }
        d->chunked = true;
    }
    if (n_length) {
        if (n_length > 1 || !parse_length(length, &d->length)) {
            api_fail(e, 400, "", "Content-Length is not one plain number");
            return -1;
        }
        d->has_length = true;
    }
    if (n_host > 1 || (n_host == 0 && d->minor == 1)) {
        api_fail(e, 400, "", "exactly one Host header is needed");
        return -1;
    }
    if (n_host && !parse_host(host, &d->host)) {
        api_fail(e, 400, "", "the Host header is not a host");
        return -1;
    }
    if (n_expect && d->minor == 0) d->expect = d->expect_unknown = false;
    h->chunked = d->chunked;
    h->left = d->length;
    return parse_target(d, host, e);
}

/* first: the head's first byte. A TLS record of a handshake begins with 22 (RFC 8446, 5.1). */
static int head_refused(int code, char first, struct api_error *e)
{
    const char *text =
        first == 22 ? "TLS came to a port that speaks plain HTTP: ask http://, or start with --tls-cert and --tls-key"
                    : "the request head is not HTTP";
    if (code == 414) text = "the request line is longer than 2 KiB";
    if (code == 431) text = "the header fields are too large: at most 16 KiB, 100 lines, 8 KiB a line";
    if (code == 505) text = "only HTTP/1.0 and HTTP/1.1 are spoken here";
    api_fail(e, code, "", "%s", text);
    return -1;
}

/* Feeds the bytes [p, end) of a complete head to llhttp, which takes a space behind a value for what it is (OWS, RFC
 * 9110, 5.6.3) and a tab for a part of the value. Lines that end in blanks are therefore fed without them; everything
 * else in one piece. */
static llhttp_errno_t head_feed(struct http *h, const char *p, const char *end)
{
    llhttp_errno_t err = HPE_OK;
    const char    *from = p;
    for (const char *lf; err == HPE_OK && (lf = memchr(p, '\n', (size_t)(end - p))); p = lf + 1) {
        const char *stop = lf - 1; /* the CR: scan_head has seen to it */
        while (stop > p && (stop[-1] == '\t' || stop[-1] == ' ')) stop--;
        if (stop == lf - 1) continue;
        err = llhttp_execute(&h->ll, from, (size_t)(stop - from));
        from = lf - 1;
    }
    return err == HPE_OK ? llhttp_execute(&h->ll, from, (size_t)(end - from)) : err;
}

int http_head(struct http *h, const char *p, size_t n, struct http_head *d, size_t *used_out, struct api_error *e)
{
    size_t len = 0;
    int    got = scan_head(&h->scan, p, n, &len);
    if (got == 0) return 0;
    if (got != 1) return head_refused(got, p[h->scan.start], e);
    memset(d, 0, offsetof(struct http_head, field));
    memset(d->field, 0, sizeof *d->field * (h->scan.n_line - 1));
    h->head = d;
    llhttp_errno_t err = head_feed(h, p + h->scan.start, p + len);
    h->head = NULL;
    if (err == HPE_INVALID_METHOD) {
        api_fail(e, 501, "", "the method is not known here");
        return -1;
    }
    if (err != HPE_OK) {
        api_fail(e, 400, "", "the request head is not HTTP");
        return -1;
    }
    d->method = method_bit(&h->ll);
    d->minor = h->ll.http_minor;
    if (d->n_field + 1 != h->scan.n_line) {
        api_fail(e, 400, "", "the request head is ambiguous");
        return -1;
    }
    if (d->method == M_OTHER) {
        api_fail(e, 501, "", "the method is not known here");
        return -1;
    }
    if (read_fields(h, d, e)) return -1;
    /* the two parsers must agree on where the body ends */
    if (h->complete != !http_has_body(h)) {
        api_fail(e, 400, "", "the request head is ambiguous");
        return -1;
    }
    *used_out = len;
    return 1;
}

bool http_has_body(const struct http *h) { return h->chunked || h->left > 0; }

static int body_refused(int code, struct api_error *e)
{
    const char *text = "the chunked body is not well-formed";
    if (code == 413) text = "the body is too large";
    if (code == 431) text = "the trailers are larger than 8 KiB";
    api_fail(e, code, "", "%s", text);
    return -1;
}

static int body_feed(struct http *h, const char *p, size_t n, struct api_error *e)
{
    if (n && llhttp_execute(&h->ll, p, n) != HPE_OK) return body_refused(400, e);
    return 0;
}

int http_body(struct http *h, const char *p, size_t n, uint64_t body_max, struct buf *body, size_t *used_out,
              struct api_error *e)
{
    size_t at = 0;
    int    done = 0;
    h->body = body;
    while (at < n && !done) {
        size_t take, feed;
        if (h->chunked) {
            int got = scan_chunk(&h->chunk, p + at, n - at, body_max, &take, &feed);
            if (got > 1) return body_refused(got, e);
            done = got;
        } else {
            take = feed = h->left < n - at ? (size_t)h->left : n - at;
            h->left -= take;
            done = h->left == 0;
        }
        if (body_feed(h, p + at, feed, e)) return -1;
        at += take;
        if (done && h->chunked && body_feed(h, "\r\n", 2, e)) return -1; /* trailers were kept from it */
    }
    h->body = NULL;
    *used_out = at;
    if (body && body->failed) return body_refused(413, e);
    if (done != h->complete) return body_refused(400, e);
    return done;
}
