/* fuzz_http: bytes of a connection, whole and in pieces. Whatever comes, both ways must agree on every request, its
 * body and the refusal; no byte is taken twice or beyond what is there; llhttp and scan.c never disagree silently. */
#include "base/check.h"
#include "server/http.h"
#include <stdlib.h>
#include <string.h>

enum { BODY_MAX = 1 << 16, REQUESTS_MAX = 32 };

struct seen {
    int      refused; /* http code; 0: the bytes ran out */
    uint32_t n_request;
    uint64_t sum; /* of everything that was understood */
};

static void mix(struct seen *s, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) s->sum = (s->sum ^ b[i]) * 0x100000001b3u;
    s->sum = (s->sum ^ n) * 0x100000001b3u;
}

/* RFC 9110, 5.6.2: one tchar or more */
static bool is_token(const char *p, size_t n)
{
    static const char tchar[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (size_t i = 0; i < n; i++)
        if (!memchr(tchar, p[i], sizeof tchar - 1)) return false;
    return n > 0;
}

static void mix_head(struct seen *s, const struct http_head *d)
{
    uint64_t v[] = { d->method, d->minor, d->keep_alive, d->chunked, d->has_length, d->expect, d->length, d->n_field };
    mix(s, v, sizeof v);
    mix(s, d->path.p, d->path.n);
    mix(s, d->host.p, d->host.n);
    for (uint32_t i = 0; i < d->n_field; i++) {
        CHECK(is_token(d->field[i].name.p, d->field[i].name.n));
        CHECK(!memchr(d->field[i].value.p, '\n', d->field[i].value.n) &&
              !memchr(d->field[i].value.p, 0, d->field[i].value.n));
        mix(s, d->field[i].name.p, d->field[i].name.n);
        mix(s, d->field[i].value.p, d->field[i].value.n);
    }
}

/* step 0: all at once. Else pieces of 1..step bytes, as a network would cut them. */
static struct seen run(const char *p, size_t n, unsigned step)
{
    static struct http      h;
    static struct http_head d;
    struct seen             s = { 0 };
    struct api_error        e = { 0 };
    struct buf              body;
    size_t                  from = 0, have = 0; /* p[from..have) has come and is not yet taken */
    bool                    in_body = false;
    uint32_t                r = 12345;
    buf_init(&body, BODY_MAX);
    http_begin(&h);
    while (s.n_request < REQUESTS_MAX) {
        size_t used = 0;
        int    got = 0;
        if (have > from) {
            if (!in_body) {
                got = http_head(&h, p + from, have - from > HTTP_HEAD_MAX ? HTTP_HEAD_MAX : have - from, &d, &used, &e);
                if (got == 1) {
                    CHECK(used <= have - from);
                    mix_head(&s, &d);
                    in_body = http_has_body(&h);
                    from += used;
                    if (in_body) continue;
                }
            } else {
                got = http_body(&h, p + from, have - from, BODY_MAX, &body, &used, &e);
                if (got >= 0) CHECK(used <= have - from);
                if (got >= 0) from += used;
            }
        }
        if (got < 0) {
            CHECK(e.http >= 400 && e.http < 600);
            s.refused = e.http;
            break;
        }
        if (got == 1) {
            mix(&s, body.data ? body.data : "", body.n);
            buf_clear(&body);
            s.n_request++;
            in_body = false;
            if (!d.keep_alive) break;
            http_begin(&h);
            continue;
        }
        if (have == n) break;
        r = r * 1103515245u + 12345u;
        size_t more = step ? 1 + (r >> 16) % step : n - have;
        have = n - have < more ? n : have + more;
    }
    buf_free(&body);
    return s;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    if (size < 1) return 0;
    static const unsigned steps[] = { 1, 2, 7, 64, 1000 };
    /* a copy of its own size: a read beyond it is seen */
    char *copy = malloc(size);
    if (!copy) return 0;
    memcpy(copy, data + 1, size - 1);
    struct seen whole = run(copy, size - 1, 0), cut = run(copy, size - 1, steps[data[0] % 5]);
    if (whole.n_request != cut.n_request || whole.refused != cut.refused)
        __builtin_trap(); /* not CHECK: libFuzzer keeps the input */
    if (!whole.refused && whole.sum != cut.sum) __builtin_trap();
    free(copy);
    return 0;
}
