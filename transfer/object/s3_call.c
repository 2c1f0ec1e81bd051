/* s3_call: one attempt at a request: builds URL, headers and signature, stores the answer's body, judges the outcome.
 * */
#include "transfer/object/s3.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "transfer/object/s3_answer.h"
#include "transfer/object/xml.h"
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { URL_MAX = 8 << 10, CONNECT_MS = 3000, SLOW_S = 10, SLOW_BYTES = 1024, PAUSE_US = 50000, PAUSE_MAX_US = 3000000 };

static const struct {
    const char *method, *shown;
} ops[] = { [OBJECT_GET] = { "GET", "GET" },
            [OBJECT_PUT] = { "PUT", "PUT" },
            [OBJECT_DELETE] = { "DELETE", "DELETE" },
            [OBJECT_LIST] = { "GET", "LIST" },
            [OBJECT_UPLOAD_BEGIN] = { "POST", "CreateMultipartUpload" },
            [OBJECT_UPLOAD_PART] = { "PUT", "UploadPart" },
            [OBJECT_UPLOAD_END] = { "POST", "CompleteMultipartUpload" },
            [OBJECT_UPLOAD_ABORT] = { "DELETE", "AbortMultipartUpload" } };

void s3_call_fail(const struct s3 *s, struct s3_call *c, enum status st, const char *reason)
{
    struct object_req *r = c->req;
    r->st = st;
    snprintf(r->why, sizeof r->why, "%.120s: %s %.60s: %.110s", s->store.shown, ops[r->op].shown, r->name, reason);
}

/* ---- the request */

static void put_path(const struct s3 *s, const struct object_req *r, struct buf *out)
{
    buf_puts(out, s->base);
    buf_putc(out, '/');
    if (r->op == OBJECT_LIST) return;
    sigv4_encode(s->prefix, true, out);
    sigv4_encode(r->name, true, out);
}

/* In order of the names, as the signature wants them. */
static void put_query(const struct s3 *s, const struct object_req *r, struct buf *out)
{
    switch (r->op) {
    case OBJECT_LIST:
        buf_puts(out, "list-type=2&prefix=");
        sigv4_encode(s->prefix, false, out);
        sigv4_encode(r->name, false, out);
        if (!*r->after) break;
        buf_puts(out, "&start-after=");
        sigv4_encode(s->prefix, false, out);
        sigv4_encode(r->after, false, out);
        break;
    case OBJECT_UPLOAD_BEGIN: buf_puts(out, "uploads="); break;
    case OBJECT_UPLOAD_PART:
        buf_printf(out, "partNumber=%u&uploadId=", r->part);
        sigv4_encode(r->upload, false, out);
        break;
    case OBJECT_UPLOAD_END:
    case OBJECT_UPLOAD_ABORT:
        buf_puts(out, "uploadId=");
        sigv4_encode(r->upload, false, out);
        break;
    case OBJECT_GET:
    case OBJECT_PUT:
    case OBJECT_DELETE: break;
    }
}

static bool add_header(struct s3_call *c, const char *name, const char *value)
{
    struct buf line;
    buf_init(&line, CREDS_TOKEN + 64);
    buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *l = curl_slist_append(c->headers, buf_cstr(&line));
    buf_free(&line);
    if (l) c->headers = l;
    return l != NULL;
}

/* Headers that are signed, in order of their names; each also goes into the request. */
static enum status sign(const struct s3 *s, struct s3_call *c, const char *path, const char *query,
                        const struct creds *creds)
{
    struct object_req  *r = c->req;
    struct sigv4_header h[6];
    uint32_t            n = 0;
    char                range[64], date[SIGV4_DATE];
    struct buf          auth;
    sigv4_date((uint64_t)(clock_wall_s() + atomic_load(&s->skew_s)), date);
    if (!*c->sha256) sigv4_sha256(r->body ? r->body : "", r->body ? r->bytes : 0, c->sha256);
    h[n++] = (struct sigv4_header){ "host", s->host };
    if (r->op == OBJECT_GET && *r->etag) h[n++] = (struct sigv4_header){ "if-match", r->etag };
    if (r->op == OBJECT_GET) {
        snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)r->off,
                 (unsigned long long)(r->off + r->bytes - 1));
        h[n++] = (struct sigv4_header){ "range", range };
    }
    h[n++] = (struct sigv4_header){ "x-amz-content-sha256", c->sha256 };
    h[n++] = (struct sigv4_header){ "x-amz-date", date };
    if (*creds->token) h[n++] = (struct sigv4_header){ "x-amz-security-token", creds->token };
    struct sigv4_request q = {
        .method = ops[r->op].method, .path = path, .query = query, .header = h, .n_header = n, .body_sha256 = c->sha256
    };
    struct sigv4_scope scope = {
        .key_id = creds->id, .secret = creds->secret, .region = s->region, .service = "s3", .date = date
    };
    buf_init(&auth, 4096);
    enum status st = sigv4_sign(&scope, &q, &auth);
    bool        ok = !st;
    for (uint32_t i = 0; i < n; i++) ok = ok && add_header(c, h[i].name, h[i].value);
    ok = ok && add_header(c, "authorization", buf_cstr(&auth));
    c->headers = ok ? curl_slist_append(c->headers, "content-type:") : c->headers; /* curl's own would say: a form */
    buf_free(&auth);
    if (ok) return ST_OK;
    return st ? st : ST_NOMEM;
}

/* ---- the answer */

static bool is_object(const struct s3_call *c)
{
    return c->req->op == OBJECT_GET && (c->code == 206 || c->code == 200);
}

static bool scatter(struct s3_call *c, const char *p, size_t n)
{
    const struct object_req *r = c->req;
    if (n > r->bytes - c->got) {
        c->overflow = true;
        return false;
    }
    c->got += n;
    while (n) {
        CHECK(c->piece < r->n_piece);
        const struct object_piece *k = &r->piece[c->piece];
        size_t                     some = n < k->bytes - c->piece_off ? n : (size_t)(k->bytes - c->piece_off);
        memcpy(k->base + c->piece_off, p, some);
        c->piece_off += some;
        p += some;
        n -= some;
        if (c->piece_off == k->bytes) {
            c->piece++;
            c->piece_off = 0;
        }
    }
    return true;
}

static size_t take_body(char *p, size_t size, size_t n, void *ctx)
{
    struct s3_call *c = ctx;
    if (!c->code) curl_easy_getinfo(c->h, CURLINFO_RESPONSE_CODE, &c->code);
    if (is_object(c)) {
        uint64_t total;
        bool     whole = c->code == 200 && c->req->off == 0; /* a server without ranges: its length will tell */
        if (!whole && !s3_range_is(c->range, c->req->off, c->req->bytes, &total)) c->overflow = true;
        return !c->overflow && scatter(c, p, size * n) ? size * n : 0;
    }
    buf_put(&c->answer, p, size * n);
    return c->answer.failed ? 0 : size * n;
}

static void take_value(const char *line, size_t n, const char *name, char *out, size_t out_bytes)
{
    size_t k = strlen(name);
    if (n <= k || strncasecmp(line, name, k) || line[k] != ':') return;
    for (k++; k < n && line[k] == ' '; k++) continue;
    while (n > k && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' ')) n--;
    if (n - k >= out_bytes || memchr(line + k, 0, n - k)) return;
    memcpy(out, line + k, n - k);
    out[n - k] = 0;
}

static size_t take_header(char *p, size_t size, size_t n, void *ctx)
{
    struct s3_call *c = ctx;
    take_value(p, size * n, "content-range", c->range, sizeof c->range);
    take_value(p, size * n, "etag", c->etag, sizeof c->etag);
    take_value(p, size * n, "date", c->date, sizeof c->date);
    take_value(p, size * n, "x-amz-bucket-region", c->bucket_region, sizeof c->bucket_region);
    return size * n;
}

/* ---- an attempt */

static void reset(struct s3_call *c)
{
    curl_slist_free_all(c->headers);
    c->headers = NULL;
    c->got = c->piece_off = 0;
    c->piece = 0;
    c->code = 0;
    c->overflow = false;
    *c->range = *c->etag = *c->date = *c->bucket_region = *c->reason = 0;
    buf_clear(&c->answer);
}

static void set_options(struct s3_call *c, const char *url, uint64_t left_us)
{
    struct object_req *r = c->req;
    curl_easy_reset(c->h);
    curl_common(c->h);
    curl_easy_setopt(c->h, CURLOPT_URL, url);
    curl_easy_setopt(c->h, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(c->h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c->h, CURLOPT_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(c->h, CURLOPT_UPLOAD_BUFFERSIZE, 1L << 20);
    curl_easy_setopt(c->h, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(c->h, CURLOPT_TIMEOUT_MS, (long)(left_us / 1000 + 1));
    curl_easy_setopt(c->h, CURLOPT_LOW_SPEED_LIMIT, (long)SLOW_BYTES);
    curl_easy_setopt(c->h, CURLOPT_LOW_SPEED_TIME, (long)SLOW_S);
    curl_easy_setopt(c->h, CURLOPT_TCP_KEEPALIVE, 1L);
    if (r->body) {
        curl_easy_setopt(c->h, CURLOPT_POSTFIELDS, r->body);
        curl_easy_setopt(c->h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->bytes);
    } else if (r->op == OBJECT_UPLOAD_BEGIN) {
        curl_easy_setopt(c->h, CURLOPT_POSTFIELDS, "");
        curl_easy_setopt(c->h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)0);
    }
    c->headers = curl_slist_append(c->headers, "expect:");
    curl_easy_setopt(c->h, CURLOPT_CUSTOMREQUEST, ops[r->op].method);
    curl_easy_setopt(c->h, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(c->h, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c->h, CURLOPT_WRITEDATA, c);
    curl_easy_setopt(c->h, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(c->h, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(c->h, CURLOPT_ERRORBUFFER, c->reason);
    curl_easy_setopt(c->h, CURLOPT_PRIVATE, c);
}

enum status s3_call_begin(struct s3 *s, struct s3_call *c, uint64_t now_us)
{
    struct creds creds;
    struct buf   path, query, url;
    char         why[CREDS_WHY] = "";
    reset(c);
    c->n_try++;
    enum status st = creds_get(s->creds, c->refused ? c->key_id : NULL, &creds, why, sizeof why);
    if (st) {
        s3_call_fail(s, c, ST_CONFIG, why);
        return ST_CONFIG;
    }
    c->refused = false;
    memcpy(c->key_id, creds.id, sizeof c->key_id);
    buf_init(&path, URL_MAX);
    buf_init(&query, URL_MAX);
    buf_init(&url, 3 * URL_MAX);
    put_path(s, c->req, &path);
    put_query(s, c->req, &query);
    st = path.failed || query.failed ? ST_TOO_LARGE : sign(s, c, buf_cstr(&path), buf_cstr(&query), &creds);
    if (!st) {
        buf_printf(&url, "%s://%s%s%s%s", s->tls ? "https" : "http", s->host, buf_cstr(&path), query.n ? "?" : "",
                   buf_cstr(&query));
        set_options(c, buf_cstr(&url), c->req->deadline_us > now_us ? c->req->deadline_us - now_us : 1);
    } else {
        s3_call_fail(s, c, st, "the request cannot be made: it is too long, or there is no memory");
    }
    OPENSSL_cleanse(&creds, sizeof creds);
    buf_free(&path);
    buf_free(&query);
    buf_free(&url);
    return st;
}

/* ---- what its end means */

/* Plans another attempt after a pause, half of which is random. false: the deadline or S3_TRIES_MAX is reached. */
static bool again(struct s3 *s, struct s3_call *c, uint64_t now_us, bool at_once)
{
    uint64_t pause = (uint64_t)PAUSE_US << (c->n_try < 7 ? c->n_try - 1 : 6);
    if (pause > PAUSE_MAX_US) pause = PAUSE_MAX_US;
    pause = at_once ? 0 : pause / 2 + hash_u64(now_us ^ (uintptr_t)c) % (pause / 2);
    if (c->n_try >= S3_TRIES_MAX || now_us + pause >= c->req->deadline_us) return false;
    c->again_us = now_us + pause;
    atomic_fetch_add_explicit(&s->store.n_retried, 1, memory_order_relaxed);
    return true;
}

static bool mend_clock(struct s3 *s, const struct s3_call *c)
{
    uint64_t server_s;
    if (!s3_date_parse(c->date, &server_s)) return false;
    atomic_store(&s->skew_s, (int64_t)server_s - clock_wall_s());
    return true;
}

/* Whether new credentials or a corrected clock may help a refused request; notes which credentials, or corrects it. */
static bool can_mend(struct s3 *s, struct s3_call *c, const char *code)
{
    static const char *const expired[] = { "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidToken",
                                           "InvalidAccessKeyId" };
    if (c->n_try > 2) return false;
    if (!strcmp(code, "RequestTimeTooSkewed")) return mend_clock(s, c);
    for (size_t i = 0; i < sizeof expired / sizeof *expired; i++)
        if (!strcmp(code, expired[i])) {
            c->refused = true;
            return true;
        }
    return false;
}

static enum s3_verdict judge_error(struct s3 *s, struct s3_call *c, uint64_t now_us)
{
    struct s3_error e;
    char            text[OBJECT_WHY];
    s3_error_parse(c->answer.data ? c->answer.data : "", c->answer.n, &e);
    bool busy = c->code >= 500 || c->code == 429 || c->code == 408 || !strcmp(e.code, "RequestTimeout");
    if (busy && again(s, c, now_us, false)) return S3_AGAIN;
    if (!busy && can_mend(s, c, e.code) && again(s, c, now_us, true)) return S3_AGAIN;
    if (*c->bucket_region && strcmp(c->bucket_region, s->region) && (c->code == 301 || c->code == 400))
        snprintf(text, sizeof text, "%ld: the bucket is in region %s, asked for was %s", c->code, c->bucket_region,
                 s->region);
    else
        snprintf(text, sizeof text, "%ld %.40s%s%.60s", c->code, e.code, *e.message ? ": " : "", e.message);
    if (c->code == 412) snprintf(text, sizeof text, "412: the object has changed while it was read");
    enum status st = c->code == 412 ? ST_INVALID : ST_CONFIG;
    if (busy) st = ST_PEER_LOST;
    if (c->code == 404 && strcmp(e.code, "NoSuchBucket")) st = ST_NOT_FOUND;
    s3_call_fail(s, c, st, text);
    return S3_DONE;
}

/* A body that should say something; empty text: it does. */
static const char *read_answer(const struct s3 *s, struct s3_call *c)
{
    struct object_req *r = c->req;
    const char        *text = c->answer.data ? c->answer.data : "";
    struct s3_error    e;
    switch (r->op) {
    case OBJECT_GET: return c->got == r->bytes ? "" : "the object is shorter than what was asked for";
    case OBJECT_LIST: return s3_list_parse(text, c->answer.n, s->prefix, r) ? "" : "the answer is no list";
    case OBJECT_UPLOAD_PART: memcpy(r->etag, c->etag, sizeof r->etag); return *r->etag ? "" : "the answer has no ETag";
    case OBJECT_UPLOAD_BEGIN:
        return xml_find(text, c->answer.n, "UploadId", r->upload, sizeof r->upload) ? "" : "the answer has no UploadId";
    case OBJECT_UPLOAD_END: /* 200 comes first, an error may follow in the body */
        s3_error_parse(text, c->answer.n, &e);
        return *e.code ? "the parts were refused" : "";
    case OBJECT_PUT:
    case OBJECT_DELETE:
    case OBJECT_UPLOAD_ABORT: break;
    }
    return "";
}

enum s3_verdict s3_call_judge(struct s3 *s, struct s3_call *c, CURLcode code, uint64_t now_us)
{
    struct object_req *r = c->req;
    if (c->overflow) {
        s3_call_fail(s, c, ST_INVALID, "the answer has other bytes than those that were asked for");
        return S3_DONE;
    }
    if (code != CURLE_OK) {
        if (again(s, c, now_us, false)) return S3_AGAIN;
        s3_call_fail(s, c, now_us >= r->deadline_us ? ST_TIMEOUT : ST_PEER_LOST,
                     *c->reason ? c->reason : curl_easy_strerror(code));
        return S3_DONE;
    }
    curl_easy_getinfo(c->h, CURLINFO_RESPONSE_CODE, &c->code);
    if (c->code / 100 != 2) return judge_error(s, c, now_us);
    const char *wrong = read_answer(s, c);
    if (!*wrong) {
        r->st = ST_OK;
        return S3_DONE;
    }
    if (r->op != OBJECT_GET && again(s, c, now_us, false)) return S3_AGAIN;
    s3_call_fail(s, c, ST_INVALID, wrong);
    return S3_DONE;
}
