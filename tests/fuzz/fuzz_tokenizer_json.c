/* fuzz_tokenizer_json: any bytes as tokenizer.json; behind a NUL tokenizer_config.json, behind another
 * special_tokens_map.json. What is taken encodes and decodes. */
#include "api/token/detok.h"
#include "api/token/tokenizer.h"
#include "base/check.h"
#include "base/utf8.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char sample[] =
    "Hello <s>world</s>  it's 2024!\r\n\n\xe2\x96\x81 caf\xc3\xa9 e\xcc\x81 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80 \x01 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static void use(const struct tok *t, unsigned flags)
{
    struct arena   a;
    struct buf     out;
    struct tok_ids ids = { NULL, 0, 0 };
    arena_init(&a, 1 << 22);
    buf_init(&out, 1 << 22);
    enum status st = tok_encode(t, sample, sizeof sample - 1, flags, 4096, &a, &ids);
    CHECK(st == ST_OK || st == ST_TOO_LARGE);
    for (size_t i = 0; i < ids.n; i++) CHECK(ids.id[i] < tok_vocab_size(t));
    detok_all(t, ids.id, ids.n, flags & TOK_ADD_SPECIAL, &out);
    if (tok_vocab_size(t) < 4096)
        for (uint32_t id = 0; id < tok_vocab_size(t) + 2; id++) detok_all(t, &id, 1, false, &out);
    uint32_t len, cp;
    for (size_t i = 0; i < out.n; i += len) CHECK(len = utf8_decode(out.data + i, out.n - i, &cp));
    buf_free(&out);
    arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char      *end = (const char *)data + n, *config = memchr(data, 0, n), *map = NULL;
    struct tok      *t = NULL;
    char             err[256] = "";
    struct tok_texts x = { .json = (const char *)data, .n_json = config ? (size_t)(config - (const char *)data) : n };
    if (config) {
        config++;
        map = memchr(config, 0, (size_t)(end - config));
        x.config = config;
        x.n_config = (size_t)((map ? map : end) - config);
    }
    if (map) {
        x.map = map + 1;
        x.n_map = (size_t)(end - map - 1);
    }
    if (tok_load_texts(&x, &t, err, sizeof err)) {
        CHECK(err[0] && !strchr(err, '\n') && !t);
        return 0;
    }
    use(t, TOK_ADD_SPECIAL);
    use(t, TOK_NO_SPECIAL_PARSE);
    tok_free(t);
    return 0;
}
