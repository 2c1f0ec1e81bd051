#include "api/jinja/template.h"
#include "base/utf8.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A template, a NUL, and its variables as JSON (or none). Whatever both are: bounded time, memory and stack; an error
 * or UTF-8. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const struct tmpl_limits small = {
        .steps_max = 20000, .depth_max = 32, .output_bytes_max = 1 << 18, .memory_bytes_max = 4 << 20
    };
    static const char plain[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi \\u00e9\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":"
        "[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,null,true]}}}]}],\"tools\":null,"
        "\"add_generation_prompt\":true,\"bos_token\":\"<s>\"}";
    const uint8_t    *nul = memchr(data, 0, n);
    size_t            n_text = nul ? (size_t)(nul - data) : n, n_vars = nul ? n - n_text - 1 : 0;
    struct json_error je;
    struct tmpl      *t;
    char              err[200];
    if (tmpl_parse((const char *)data, n_text, &t, err, sizeof err)) {
        if (strncmp(err, "line ", 5) || memchr(err, '\n', strlen(err))) abort();
        return 0;
    }
    json_t *vars = n_vars ? json_parse((const char *)nul + 1, n_vars, 0, &je) : NULL;
    if (!json_is_object(vars)) {
        json_decref(vars);
        vars = json_parse(plain, sizeof plain - 1, 0, &je);
    }
    struct buf out;
    buf_init(&out, 1 << 20);
    enum status st = tmpl_render(t, vars, &small, 1750000000, &out, err, sizeof err);
    if (st && (st != ST_INVALID && st != ST_TOO_LARGE)) abort();
    if (st && out.n) abort();
    uint32_t cp, len;
    for (size_t i = 0; i < out.n; i += len)
        if (!(len = utf8_decode(out.data + i, out.n - i, &cp))) abort();
    tmpl_wants_parts(t);
    buf_free(&out);
    json_decref(vars);
    tmpl_free(t);
    return 0;
}
