#include "transfer/object/creds.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "transfer/object/fetch.h"
#include "transfer/object/sigv4.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { URL_BYTES = 600, TEXT_BYTES = 12 << 10, FIELDS = 13, RETRY_S = 15, SOON_S = 2 };

struct creds_source {
    struct creds_cfg cfg;
    char            *copy[FIELDS];
    uint32_t         n_copy;
    const char      *name; /* in logs: where they come from */
    enum status (*ask)(struct creds_source *c, struct creds *out, char *why, size_t why_bytes);
    /* lock: everything below */
    pthread_mutex_t lock;
    struct creds    now;
    bool            have;
    uint64_t        again_s; /* after a failed attempt: no new one before this time */
    char            failed[CREDS_WHY];
};

void creds_environment(struct creds_cfg *c)
{
    const char *off = getenv("AWS_EC2_METADATA_DISABLED");
    const char *region = getenv("AWS_REGION");
    *c = (struct creds_cfg){ .key_id = getenv("AWS_ACCESS_KEY_ID"),
                             .secret = getenv("AWS_SECRET_ACCESS_KEY"),
                             .token = getenv("AWS_SESSION_TOKEN"),
                             .web_token_file = getenv("AWS_WEB_IDENTITY_TOKEN_FILE"),
                             .role_arn = getenv("AWS_ROLE_ARN"),
                             .role_session = getenv("AWS_ROLE_SESSION_NAME"),
                             .sts_endpoint = getenv("AWS_ENDPOINT_URL_STS"),
                             .container_relative = getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
                             .container_full = getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
                             .container_token = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
                             .container_token_file = getenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
                             .metadata_endpoint = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
                             .no_metadata = off && !strcmp(off, "true"),
                             .region = region ? region : getenv("AWS_DEFAULT_REGION") };
}

static bool given(const char *s) { return s && *s; }

/* ---- the four places */

static bool put(char *out, size_t bytes, const char *s)
{
    size_t n = strlen(s);
    if (n >= bytes) return false;
    memcpy(out, s, n + 1);
    return true;
}

static enum status ask_fixed(struct creds_source *c, struct creds *out, char *why, size_t why_bytes)
{
    struct creds r = { .ends_s = 0 };
    bool         fits = put(r.id, sizeof r.id, c->cfg.key_id) && put(r.secret, sizeof r.secret, c->cfg.secret) &&
                put(r.token, sizeof r.token, given(c->cfg.token) ? c->cfg.token : "");
    if (!fits) {
        snprintf(why, why_bytes, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN is too long");
        return ST_CONFIG;
    }
    *out = r;
    return ST_OK;
}

/* A secret from a file, without its line end. */
static bool read_text(const char *path, char *out, size_t out_bytes, char *why, size_t why_bytes)
{
    size_t n = 0;
    int    e = file_read_first(path, out, out_bytes - 1, &n);
    if (e) {
        snprintf(why, why_bytes, "%.160s: %s", path, strerror(e));
        return false;
    }
    out[file_without_line_end(out, n)] = 0;
    return true;
}

static enum status ask_web(struct creds_source *c, struct creds *out, char *why, size_t why_bytes)
{
    char       *token = malloc(TEXT_BYTES), url[URL_BYTES];
    struct buf  form, answer = { 0 };
    long        code = 0;
    enum status st = ST_CONFIG;
    buf_init(&form, 4 * TEXT_BYTES);
    const char *region = given(c->cfg.region) ? c->cfg.region : "us-east-1";
    const char *end = strncmp(region, "cn-", 3) ? "amazonaws.com" : "amazonaws.com.cn";
    if (given(c->cfg.sts_endpoint))
        snprintf(url, sizeof url, "%s", c->cfg.sts_endpoint);
    else
        snprintf(url, sizeof url, "https://sts.%s.%s/", region, end);
    if (!token || !read_text(c->cfg.web_token_file, token, TEXT_BYTES, why, why_bytes)) goto out;
    buf_puts(&form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=");
    sigv4_encode(c->cfg.role_arn, false, &form);
    buf_puts(&form, "&RoleSessionName=");
    sigv4_encode(given(c->cfg.role_session) ? c->cfg.role_session : "spillway", false, &form);
    buf_puts(&form, "&WebIdentityToken=");
    sigv4_encode(token, false, &form);
    struct fetch f = { .method = "POST", .url = url, .body = buf_cstr(&form) };
    st = fetch(&f, &answer, &code, why, why_bytes);
    if (!st && !creds_parse_sts(answer.data, answer.n, out, why, why_bytes)) st = ST_CONFIG;
out:
    free(token);
    buf_free(&form);
    buf_free(&answer);
    return st;
}

static enum status get_json(const struct fetch *f, struct creds *out, char *why, size_t why_bytes)
{
    struct buf  answer = { 0 };
    long        code = 0;
    enum status st = fetch(f, &answer, &code, why, why_bytes);
    if (!st && code != 200) {
        snprintf(why, why_bytes, "%.160s answers %ld", f->url, code);
        st = ST_CONFIG;
    }
    if (!st && !creds_parse_json(answer.data, answer.n, out, why, why_bytes)) st = ST_CONFIG;
    buf_free(&answer);
    return st;
}

static enum status ask_container(struct creds_source *c, struct creds *out, char *why, size_t why_bytes)
{
    char         url[URL_BYTES], token[2048] = "", header[2100];
    struct fetch f = { .method = "GET", .url = url };
    if (given(c->cfg.container_relative))
        snprintf(url, sizeof url, "http://169.254.170.2%s", c->cfg.container_relative);
    else
        snprintf(url, sizeof url, "%s", c->cfg.container_full);
    if (!creds_url_is_safe(url)) {
        snprintf(why, why_bytes,
                 "AWS_CONTAINER_CREDENTIALS_FULL_URI: found '%.160s', allowed is https, or http to this machine", url);
        return ST_CONFIG;
    }
    if (given(c->cfg.container_token_file)) {
        if (!read_text(c->cfg.container_token_file, token, sizeof token, why, why_bytes)) return ST_CONFIG;
    } else if (given(c->cfg.container_token)) {
        snprintf(token, sizeof token, "%s", c->cfg.container_token);
    }
    if (*token) {
        snprintf(header, sizeof header, "Authorization: %s", token);
        f.header[0] = header;
    }
    return get_json(&f, out, why, why_bytes);
}

/* Version 2 only: a token is fetched first, and every other request carries it. */
static enum status ask_metadata(struct creds_source *c, struct creds *out, char *why, size_t why_bytes)
{
    const char *base = given(c->cfg.metadata_endpoint) ? c->cfg.metadata_endpoint : "http://169.254.169.254";
    const char *path = "latest/meta-data/iam/security-credentials/";
    char        url[URL_BYTES], header[400];
    struct buf  token = { 0 }, role = { 0 };
    long        code = 0;
    size_t      n = strlen(base);
    const char *slash = n && base[n - 1] == '/' ? "" : "/";
    snprintf(url, sizeof url, "%s%slatest/api/token", base, slash);
    struct fetch f = { .method = "PUT", .url = url, .header = { "X-aws-ec2-metadata-token-ttl-seconds: 300" } };
    enum status  st = fetch(&f, &token, &code, why, why_bytes);
    if (!st && (code != 200 || token.n == 0 || token.n > 256)) {
        snprintf(why, why_bytes, "instance metadata gives no token (answer %ld)", code);
        st = ST_CONFIG;
    }
    if (st) goto out;
    snprintf(header, sizeof header, "X-aws-ec2-metadata-token: %s", buf_cstr(&token));
    f = (struct fetch){ .method = "GET", .url = url, .header = { header } };
    snprintf(url, sizeof url, "%s%s%s", base, slash, path);
    st = fetch(&f, &role, &code, why, why_bytes);
    size_t n_role = st ? 0 : strcspn(buf_cstr(&role), "\r\n");
    if (!st && (code != 200 || n_role == 0 || n_role > 128)) {
        snprintf(why, why_bytes, "this instance has no role (answer %ld)", code);
        st = ST_CONFIG;
    }
    if (st) goto out;
    snprintf(url, sizeof url, "%s%s%s%.*s", base, slash, path, (int)n_role, buf_cstr(&role));
    st = get_json(&f, out, why, why_bytes);
out:
    buf_free(&token);
    buf_free(&role);
    return st;
}

/* ---- */

static void keep(struct creds_source *c, const char **field)
{
    if (!given(*field)) return;
    c->copy[c->n_copy] = strdup(*field);
    *field = c->copy[c->n_copy] ? c->copy[c->n_copy] : "";
    c->n_copy++;
}

enum status creds_open(const struct creds_cfg *cfg, struct creds_source **c_out, char *err, size_t err_bytes)
{
    struct creds_source *c = calloc(1, sizeof *c);
    if (!c) {
        snprintf(err, err_bytes, "no memory for credentials");
        return ST_NOMEM;
    }
    c->cfg = *cfg;
    const char **field[FIELDS] = { &c->cfg.key_id,
                                   &c->cfg.secret,
                                   &c->cfg.token,
                                   &c->cfg.web_token_file,
                                   &c->cfg.role_arn,
                                   &c->cfg.role_session,
                                   &c->cfg.sts_endpoint,
                                   &c->cfg.container_relative,
                                   &c->cfg.container_full,
                                   &c->cfg.container_token,
                                   &c->cfg.container_token_file,
                                   &c->cfg.metadata_endpoint,
                                   &c->cfg.region };
    for (int i = 0; i < FIELDS; i++) keep(c, field[i]);
    pthread_mutex_init(&c->lock, NULL);
    const char *wrong = NULL;
    if (given(cfg->key_id)) {
        c->name = "AWS_ACCESS_KEY_ID";
        c->ask = ask_fixed;
        if (!given(cfg->secret)) wrong = "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not";
    } else if (given(cfg->web_token_file)) {
        c->name = "AWS_WEB_IDENTITY_TOKEN_FILE";
        c->ask = ask_web;
        if (!given(cfg->role_arn)) wrong = "AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not";
    } else if (given(cfg->container_relative) || given(cfg->container_full)) {
        c->name = "the container's endpoint";
        c->ask = ask_container;
    } else if (cfg->no_metadata) {
        wrong =
            "no credentials: neither AWS_ACCESS_KEY_ID nor AWS_WEB_IDENTITY_TOKEN_FILE nor the container's endpoint is set, "
            "and AWS_EC2_METADATA_DISABLED is true";
    } else {
        c->name = "instance metadata";
        c->ask = ask_metadata;
    }
    if (wrong) {
        snprintf(err, err_bytes, "%s", wrong);
        creds_close(c);
        return ST_CONFIG;
    }
    *c_out = c;
    return ST_OK;
}

void creds_close(struct creds_source *c)
{
    if (!c) return;
    for (uint32_t i = 0; i < c->n_copy; i++) {
        if (c->copy[i]) explicit_bzero(c->copy[i], strlen(c->copy[i]));
        free(c->copy[i]);
    }
    pthread_mutex_destroy(&c->lock);
    explicit_bzero(c, sizeof *c);
    free(c);
}

static bool lasts(const struct creds_source *c, uint64_t now_s, uint64_t more_s)
{
    return c->have && (!c->now.ends_s || c->now.ends_s > now_s + more_s);
}

enum status creds_get(struct creds_source *c, const char *refused, struct creds *out, char *why, size_t why_bytes)
{
    enum status st = ST_OK;
    pthread_mutex_lock(&c->lock);
    uint64_t now_s = (uint64_t)clock_wall_s();
    bool     was_refused = c->have && refused && *refused && !strcmp(refused, c->now.id);
    bool     due = !lasts(c, now_s, CREDS_EARLY_S) || was_refused;
    bool     old_serves = lasts(c, now_s, 0) && !was_refused;
    if (due && !old_serves && !was_refused && now_s < c->again_s) {
        st = ST_CONFIG; /* the last failure is repeated for a moment, so that callers do not wait for it each time */
        snprintf(why, why_bytes, "credentials of %s: %s", c->name, c->failed);
    } else if (due && !(old_serves && now_s < c->again_s)) {
        struct creds fresh;
        char         reason[CREDS_WHY] = "";
        st = c->ask(c, &fresh, reason, sizeof reason);
        c->again_s = now_s + (old_serves ? RETRY_S : SOON_S);
        if (!st) c->again_s = 0;
        if (!st && was_refused && !strcmp(fresh.id, c->now.id)) {
            snprintf(reason, sizeof reason, "they were refused as expired, and there are no newer ones");
            st = ST_CONFIG;
        }
        if (!st) {
            c->now = fresh;
            c->have = true;
        } else if (old_serves) {
            LOG_WARN_LIMITED("object: credentials of %s cannot be renewed (%s), the old ones still serve", c->name,
                             reason);
            st = ST_OK;
        } else {
            memcpy(c->failed, reason, sizeof c->failed);
            snprintf(why, why_bytes, "credentials of %s: %s", c->name, reason);
        }
        explicit_bzero(&fresh, sizeof fresh);
    }
    if (!st) *out = c->now;
    pthread_mutex_unlock(&c->lock);
    return st;
}
