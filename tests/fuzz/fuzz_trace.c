/* fuzz_trace: any header as a traceparent, and what it gives in spans that stay JSON. */
#include "base/check.h"
#include "base/json.h"
#include "server/trace.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct trace_resource resource = { .service = "fuzz", .host = "h", .port = 1 };
    struct trace_request *r = calloc(1, sizeof *r);
    struct json_error     err;
    struct buf            b;
    CHECK(r);
    if (trace_parse((const char *)data, n, &r->c)) CHECK(n >= 55 && data[2] == '-');
    r->state = strndup((const char *)data, n < TRACE_STATE_MAX ? n : TRACE_STATE_MAX);
    snprintf(r->model, sizeof r->model, "%.*s", (int)(n < 100 ? n : 100), (const char *)data);
    resource.attributes = r->state;
    r->n = 1;
    r->status = 200;
    if (n >= 16) {
        memcpy(&r->start_us, data, 8);
        memcpy(&r->temperature, data + 8, 4);
        memcpy(&r->first_us, data + 4, 8);
    }
    buf_init(&b, 1 << 20);
    trace_json(&b, &resource, &r, 1, 0);
    json_t *j = json_parse(b.data, b.n, 64, &err);
    CHECK(j);
    json_decref(j);
    buf_free(&b);
    trace_request_free(r);
    return 0;
}
