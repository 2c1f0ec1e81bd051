/* fuzz_batch_line: any bytes as a line of a batch. What is taken is written and read again; what is refused has a
 * reason. */
#include "base/check.h"
#include "base/json.h"
#include "server/cmd/batch_line.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char  run[] = "0123456789abcdef";
    const char        *text = (const char *)data;
    struct batch_line  l;
    struct batch_wrong w = { 0 };
    struct json_error  e;
    struct buf         out;
    uint64_t           line = 0;
    bool               good = false;
    enum status        st = batch_line_read(text, n, &l, &w);
    CHECK(l.n_custom_id <= BATCH_ID_MAX && strlen(l.url) <= BATCH_URL_MAX);
    buf_init(&out, 1 << 20);
    if (st) {
        CHECK(st == ST_INVALID && w.code && *w.text);
        batch_line_refuse(&out, run, 7, &l, &w);
    } else {
        CHECK(l.n_custom_id && l.body >= text && l.n_body >= 2 && l.body + l.n_body <= text + n);
        CHECK(l.body[0] == '{' && l.body[l.n_body - 1] == '}');
        batch_line_answer(&out, run, 7, &l, 200, "id", "{}", 2);
    }
    CHECK(!out.failed && out.data[out.n - 1] == '\n' && memchr(out.data, '\n', out.n) == out.data + out.n - 1);
    CHECK(batch_line_is_of(out.data, out.n - 1, run, &line, &good));
    CHECK(line == 7 && good == (st == ST_OK));
    json_t       *v = json_parse(out.data, out.n - 1, 0, &e);
    const json_t *id = json_object_get(v, "custom_id");
    CHECK(v && (l.n_custom_id ? json_string_length(id) == l.n_custom_id : json_is_null(id)));
    json_decref(v);
    /* the input itself as a line of output */
    batch_line_is_of(text, n, run, &line, &good);
    buf_free(&out);
    return 0;
}
