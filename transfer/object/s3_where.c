/* s3_where: finds host, path and region of a bucket from its URL, the endpoint and the environment. */
#include "transfer/object/s3.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *environment(const char *a, const char *b)
{
    const char *v = getenv(a);
    if (v && *v) return v;
    v = b ? getenv(b) : NULL;
    return v ? v : "";
}

/* Names of buckets as S3 allows them: they are part of hosts and paths. */
static bool take_bucket(struct s3 *s, const char *url, const char **rest_out, char *err, size_t err_bytes)
{
    const char *p = url + strlen("s3://");
    size_t      n = strcspn(p, "/");
    bool        ok = n >= 3 && n < S3_BUCKET && strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789.-") >= n;
    if (!ok || *p == '.' || *p == '-' || strstr(p, "..")) {
        snprintf(
            err, err_bytes,
            "'%.200s': a bucket's name has 3 to 63 lower-case letters, digits, '-' and '.', as in s3://bucket/prefix",
            url);
        return false;
    }
    memcpy(s->bucket, p, n);
    *rest_out = p + n + (p[n] == '/');
    return true;
}

static bool take_prefix(struct s3 *s, const char *url, const char *rest, char *err, size_t err_bytes)
{
    size_t n = strlen(rest);
    while (n && rest[n - 1] == '/') n--;
    bool ok = n + 2 < sizeof s->prefix - OBJECT_NAME;
    for (size_t i = 0; i < n; i++) ok = ok && rest[i] > ' ' && rest[i] <= '~' && rest[i] != '?' && rest[i] != '#';
    if (!ok) {
        snprintf(err, err_bytes, "'%.200s': a prefix has at most %zu printable characters, without '?' and '#'", url,
                 sizeof s->prefix - OBJECT_NAME - 2);
        return false;
    }
    memcpy(s->prefix, rest, n);
    if (n) s->prefix[n++] = '/';
    s->prefix[n] = 0;
    return true;
}

/* http[s]://host[:port], without a path. */
static bool take_endpoint(struct s3 *s, const char *endpoint, char *err, size_t err_bytes)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
    const char       *host = NULL;
    s->tls = !strncmp(endpoint, "https://", 8);
    if (s->tls) host = endpoint + 8;
    if (!strncmp(endpoint, "http://", 7)) host = endpoint + 7;
    size_t n = host ? strcspn(host, "/") : 0;
    if (!host || !n || n >= sizeof s->host || strspn(host, allowed) < n || strspn(host + n, "/") != strlen(host + n)) {
        snprintf(err, err_bytes, "endpoint: found '%.200s', needed is http://host:port or https://host:port", endpoint);
        return false;
    }
    memcpy(s->host, host, n);
    s->host[n] = 0;
    snprintf(s->base, sizeof s->base, "/%s", s->bucket);
    return true;
}

/* AWS's own: the bucket is part of the host's name, unless a certificate for *.s3... could not cover it. */
static void own_endpoint(struct s3 *s)
{
    const char *end = strncmp(s->region, "cn-", 3) ? "amazonaws.com" : "amazonaws.com.cn";
    s->tls = true;
    if (strchr(s->bucket, '.')) {
        snprintf(s->host, sizeof s->host, "s3.%s.%s", s->region, end);
        snprintf(s->base, sizeof s->base, "/%s", s->bucket);
    } else {
        snprintf(s->host, sizeof s->host, "%s.s3.%s.%s", s->bucket, s->region, end);
    }
}

enum status s3_where(const struct object_cfg *cfg, struct s3 *s, char *err, size_t err_bytes)
{
    const char *rest = NULL;
    const char *region = cfg->region && *cfg->region ? cfg->region : environment("AWS_REGION", "AWS_DEFAULT_REGION");
    const char *endpoint =
        cfg->endpoint && *cfg->endpoint ? cfg->endpoint : environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    if (!*region) region = "us-east-1";
    if (strlen(region) >= sizeof s->region ||
        strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(region)) {
        snprintf(err, err_bytes, "region: found '%.60s', needed is a name as eu-central-1", region);
        return ST_CONFIG;
    }
    memcpy(s->region, region, strlen(region) + 1);
    if (!take_bucket(s, cfg->url, &rest, err, err_bytes)) return ST_CONFIG;
    if (!take_prefix(s, cfg->url, rest, err, err_bytes)) return ST_CONFIG;
    if (*endpoint && !take_endpoint(s, endpoint, err, err_bytes)) return ST_CONFIG;
    if (!*endpoint) own_endpoint(s);
    snprintf(s->store.shown, sizeof s->store.shown, "s3://%s/%.*s", s->bucket,
             (int)(strlen(s->prefix) ? strlen(s->prefix) - 1 : 0), s->prefix);
    return ST_OK;
}
