/* fuzz_object: any bytes as what S3, STS or an endpoint of credentials answers. The first byte picks the parser; what
 * is taken fits where it is put and holds nothing that a header cannot carry. */
#include "base/check.h"
#include "base/log.h"
#include "transfer/object/creds.h"
#include "transfer/object/s3_answer.h"
#include "transfer/object/xml.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    return 0;
}

static void see(void *ctx, const char *name, uint64_t bytes, const char *etag)
{
    (void)ctx;
    (void)bytes;
    CHECK(strlen(name) < OBJECT_NAME && strlen(etag) < OBJECT_ETAG);
}

static void whole(const struct creds *c)
{
    CHECK(*c->id && *c->secret);
    CHECK(strlen(c->id) < CREDS_ID && strlen(c->secret) < CREDS_SECRET && strlen(c->token) < CREDS_TOKEN);
    CHECK(!strpbrk(c->id, "\r\n") && !strpbrk(c->token, "\r\n"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char              why[100];
    struct creds      c;
    struct s3_error   e;
    uint64_t          v;
    struct object_req r = { .op = OBJECT_LIST, .each = see };
    if (!n) return 0;
    const char *text = (const char *)data + 1;
    char       *line = strndup(text, n - 1); /* a header's value is a string */
    CHECK(line);
    switch (data[0] % 6) {
    case 0: (void)s3_list_parse(text, n - 1, "kv/", &r); break;
    case 1: s3_error_parse(text, n - 1, &e); break;
    case 2:
        if (creds_parse_json(text, n - 1, &c, why, sizeof why)) whole(&c);
        break;
    case 3:
        if (creds_parse_sts(text, n - 1, &c, why, sizeof why)) whole(&c);
        break;
    case 4:
        if (s3_range_is(line, 10, 10, &v)) CHECK(v >= 20);
        break;
    default:
        (void)s3_date_parse(line, &v);
        (void)creds_parse_time(line, &v);
        (void)creds_url_is_safe(line);
        break;
    }
    free(line);
    return 0;
}
