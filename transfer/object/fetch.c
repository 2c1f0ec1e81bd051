#include "transfer/object/fetch.h"
#include "transfer/object/curl.h"
#include <pthread.h>
#include <stdio.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void           init(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }
void                  fetch_init(void) { pthread_once(&once, init); }

void curl_common(CURL *h)
{
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_PROXY,
                     ""); /* the environment's proxies are ignored: requests go to the endpoint alone */
    curl_easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(h, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
    const char *ca = getenv("AWS_CA_BUNDLE");
    if (ca && *ca) curl_easy_setopt(h, CURLOPT_CAINFO, ca);
}

static size_t take(char *p, size_t size, size_t n, void *ctx)
{
    struct buf *out = ctx;
    buf_put(out, p, size * n);
    return out->failed ? 0 : size * n;
}

enum status fetch(const struct fetch *f, struct buf *out, long *code_out, char *err, size_t err_bytes)
{
    struct curl_slist *headers = NULL;
    char               why[CURL_ERROR_SIZE] = "";
    fetch_init();
    buf_init(out, FETCH_BYTES_MAX);
    CURL *h = curl_easy_init();
    if (!h) {
        snprintf(err, err_bytes, "no memory for a request");
        return ST_NOMEM;
    }
    curl_common(h);
    for (uint32_t i = 0; i < sizeof f->header / sizeof *f->header && f->header[i]; i++)
        headers = curl_slist_append(headers, f->header[i]);
    curl_easy_setopt(h, CURLOPT_URL, f->url);
    curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, 2000L);
    curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)FETCH_MS);
    if (f->body) curl_easy_setopt(h, CURLOPT_POSTFIELDS, f->body);
    curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, f->method);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, out);
    curl_easy_setopt(h, CURLOPT_ERRORBUFFER, why);
    CURLcode code = curl_easy_perform(h);
    if (code == CURLE_OK)
        curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, code_out);
    else
        snprintf(err, err_bytes, "%.120s: %s", f->url, *why ? why : curl_easy_strerror(code));
    curl_slist_free_all(headers);
    curl_easy_cleanup(h);
    return code == CURLE_OK ? ST_OK : ST_PEER_LOST;
}
