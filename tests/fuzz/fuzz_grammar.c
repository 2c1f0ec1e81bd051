#include "api/schema/regex.h"
#include "api/schema/schema.h"
#include "engine/grammar/match.h"
#include <stdlib.h>
#include <string.h>

/* A JSON schema or a regular expression, and behind a zero byte a text for it. What the first byte's bits ask: which of
 * the two, and in which form. A text that is accepted byte by byte is in the mask at every place. */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct gr_vocab *vocab;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static unsigned char byte[256];
    struct token_bytes   b[256];
    (void)argc;
    (void)argv;
    for (int i = 0; i < 256; i++) {
        byte[i] = (unsigned char)i;
        b[i] = (struct token_bytes){ byte + i, 1 };
    }
    return gr_vocab_create(b, 256, &vocab);
}

static const struct gr_limits small = { .rx = { .node_max = 50000, .fuel = 500000, .depth_max = 500 },
                                        .symbol_max = 50000,
                                        .lex_state_max = 2000,
                                        .lex_bytes_max = 4 << 20,
                                        .lex_fuel_max = 1000000 };

static struct grammar *compile(uint8_t form, const char *text, size_t n)
{
    struct gr_rules   *r = gr_rules_create(&small);
    struct grammar    *g = NULL;
    char               err[SCHEMA_ERR] = "", ignored[SCHEMA_IGNORED] = "";
    uint32_t           symbol = 0, rx;
    enum status        st = ST_INVALID;
    struct schema_form asked = { .compact = form & 2,
                                 .closed = form & 4,
                                 .open = form & 32,
                                 .space = form & 16 ? "[ \\n]?" : NULL,
                                 .ignored = form & 8 ? ignored : NULL };
    if (form & 1) {
        struct json_error je;
        json_t           *schema = json_parse(text, n, 0, &je);
        if (schema) st = schema_rules(r, schema, asked, &symbol, err);
        if (schema && st && !*err) abort();
        json_decref(schema);
    } else {
        st = regex_rx(gr_rx(r), text, n, (struct regex_form){ form & 2, form & 4 }, &rx, err);
        if (!st) symbol = gr_terminal(r, rx);
        if (st && !*err) abort();
    }
    if (st)
        gr_rules_free(r);
    else if (gr_build(r, symbol, &g, err) && !*err)
        abort();
    return g;
}

static void follow(struct grammar *g, const unsigned char *text, size_t n)
{
    struct gr_match *m = gr_match_create(g, vocab);
    for (size_t i = 0; m && i < n && i < 64; i++) {
        uint32_t    bits[8];
        enum status of_mask = gr_mask(m, bits), st = gr_accept(m, text[i]);
        bool        in = !of_mask && bits[text[i] / 32] >> (text[i] % 32) & 1;
        if (of_mask || st == ST_TOO_LARGE) break;
        if (in != (st == ST_OK)) abort();
        if (st) break;
        if (i % 5 == 4) {
            if (gr_rollback(m, 2) || gr_accept(m, text[i - 1]) || gr_accept(m, text[i])) abort();
        }
    }
    gr_match_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    const uint8_t  *end = memchr(data + 1, 0, n - 1);
    size_t          len = end ? (size_t)(end - data - 1) : n - 1;
    struct grammar *g = compile(data[0], (const char *)data + 1, len);
    if (g) follow(g, data + 1 + len, n - 1 - len);
    gr_free(g);
    return 0;
}
