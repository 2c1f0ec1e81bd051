#include "transfer/object/sigv4.h"
#include "base/check.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SHA = 32 };
static const char ALGORITHM[] = "AWS4-HMAC-SHA256";

void sigv4_date(uint64_t unix_s, char out[SIGV4_DATE])
{
    time_t    t = (time_t)unix_s;
    struct tm tm;
    CHECK(gmtime_r(&t, &tm) != NULL);
    CHECK(strftime(out, SIGV4_DATE, "%Y%m%dT%H%M%SZ", &tm) == SIGV4_DATE - 1);
}

static void hex(const unsigned char *p, size_t n, char *out)
{
    static const char digit[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = digit[p[i] >> 4];
        out[2 * i + 1] = digit[p[i] & 15];
    }
    out[2 * n] = 0;
}

void sigv4_sha256(const void *p, size_t n, char hex_out[SIGV4_HEX])
{
    unsigned char sum[SHA];
    CHECK(EVP_Digest(p, n, sum, NULL, EVP_sha256(), NULL) == 1);
    hex(sum, SHA, hex_out);
}

static void hmac(const void *key, size_t n_key, const char *text, size_t n, unsigned char out[SHA])
{
    unsigned len = SHA;
    CHECK(HMAC(EVP_sha256(), key, (int)n_key, (const unsigned char *)text, n, out, &len) != NULL);
}

/* Names of the headers, with ';' between them. */
static void put_names(const struct sigv4_request *r, struct buf *out)
{
    for (uint32_t i = 0; i < r->n_header; i++) {
        if (i) buf_putc(out, ';');
        buf_puts(out, r->header[i].name);
    }
}

static void put_canonical(const struct sigv4_request *r, struct buf *out)
{
    buf_printf(out, "%s\n%s\n%s\n", r->method, r->path, r->query);
    for (uint32_t i = 0; i < r->n_header; i++) buf_printf(out, "%s:%s\n", r->header[i].name, r->header[i].value);
    buf_putc(out, '\n');
    put_names(r, out);
    buf_printf(out, "\n%s", r->body_sha256);
}

static void derive(const struct sigv4_scope *s, unsigned char key[SHA])
{
    char   first[256];
    size_t n_secret = strlen(s->secret);
    CHECK(n_secret < sizeof first - 4);
    memcpy(first, "AWS4", 4);
    memcpy(first + 4, s->secret, n_secret);
    hmac(first, n_secret + 4, s->date, 8, key);
    hmac(key, SHA, s->region, strlen(s->region), key);
    hmac(key, SHA, s->service, strlen(s->service), key);
    hmac(key, SHA, "aws4_request", strlen("aws4_request"), key);
    OPENSSL_cleanse(first, sizeof first);
}

enum status sigv4_sign(const struct sigv4_scope *s, const struct sigv4_request *r, struct buf *out)
{
    struct buf    text;
    char          sum[SIGV4_HEX], signature[SIGV4_HEX];
    unsigned char key[SHA], mac[SHA];
    buf_init(&text, SIGV4_TEXT_MAX);
    put_canonical(r, &text);
    if (text.failed) {
        buf_free(&text);
        return ST_TOO_LARGE;
    }
    sigv4_sha256(text.data, text.n, sum);
    buf_clear(&text);
    buf_printf(&text, "%s\n%s\n%.8s/%s/%s/aws4_request\n%s", ALGORITHM, s->date, s->date, s->region, s->service, sum);
    derive(s, key);
    hmac(key, SHA, text.data, text.n, mac);
    OPENSSL_cleanse(key, sizeof key);
    hex(mac, SHA, signature);
    buf_free(&text);
    buf_printf(out, "%s Credential=%s/%.8s/%s/%s/aws4_request,SignedHeaders=", ALGORITHM, s->key_id, s->date, s->region,
               s->service);
    put_names(r, out);
    buf_printf(out, ",Signature=%s", signature);
    return out->failed ? ST_TOO_LARGE : ST_OK;
}

void sigv4_encode(const char *text, bool keep_slash, struct buf *out)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        if (letter || strchr("-._~", *p) || (*p == '/' && keep_slash))
            buf_putc(out, (char)*p);
        else
            buf_printf(out, "%%%02X", *p);
    }
}
