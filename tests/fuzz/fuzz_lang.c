#include "api/lang/gbnf.h"
#include "api/lang/lark.h"
#include "engine/grammar/match.h"
#include <stdlib.h>
#include <string.h>

/* A grammar as text, and behind a zero byte a text for it. The first byte says which language, and whether its texts
 * stand in a JSON string. An error has a place, and a text that is accepted byte by byte is in the mask at every
 * place. */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct gr_vocab *vocab;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static unsigned char byte[256];
    struct token_bytes   b[257];
    (void)argc;
    (void)argv;
    for (int i = 0; i < 256; i++) {
        byte[i] = (unsigned char)i;
        b[i] = (struct token_bytes){ byte + i, 1 };
    }
    b[256] = (struct token_bytes){ NULL, 0 };
    return gr_vocab_create(b, 257, &vocab);
}

static bool find_token(const void *self, const char *text, size_t n, uint32_t *id_out)
{
    (void)self;
    *id_out = 256;
    return n == 3 && memcmp(text, "<s>", 3) == 0;
}

static const struct gr_limits small = { .rx = { .node_max = 50000, .fuel = 500000, .depth_max = 500 },
                                        .symbol_max = 50000,
                                        .lex_state_max = 2000,
                                        .lex_bytes_max = 4 << 20,
                                        .lex_fuel_max = 1000000 };

static struct grammar *compile(uint8_t how, const char *text, size_t n)
{
    struct ebnf_tokens tokens = { find_token, NULL };
    struct gr_rules   *r = gr_rules_create(&small);
    struct grammar    *g = NULL;
    char               err[EBNF_ERR] = "";
    uint32_t           symbol;
    enum status        st;
    switch (how % 3) {
    case 0: st = gbnf_rules(r, text, n, &tokens, &symbol, err); break;
    case 1: st = lark_rules(r, text, n, &tokens, &symbol, err); break;
    default: st = lark_rules_inside(r, text, n, true, RX_ALL, &symbol, err); break;
    }
    if (st) {
        if (strncmp(err, "line ", 5) || memchr(err, '\n', strlen(err))) abort();
        gr_rules_free(r);
        return NULL;
    }
    if (gr_build(r, symbol, &g, err) && !*err) abort();
    return g;
}

static void follow(struct grammar *g, const uint8_t *text, size_t n)
{
    struct gr_match *m = gr_match_create(g, vocab);
    for (size_t i = 0; m && i < n && i < 64; i++) {
        uint32_t    bits[9];
        enum status of_mask = gr_mask(m, bits), st = gr_accept(m, text[i]);
        bool        in = !of_mask && bits[text[i] / 32] >> (text[i] % 32) & 1;
        if (of_mask || st == ST_TOO_LARGE) break;
        if (in != (st == ST_OK)) abort();
        if (st) break;
    }
    gr_match_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) return 0;
    const uint8_t  *end = memchr(data + 1, 0, n - 1);
    size_t          len = end ? (size_t)(end - data - 1) : n - 1;
    struct grammar *g = compile(data[0], (const char *)data + 1, len);
    if (g && end) follow(g, end + 1, n - 2 - len);
    gr_free(g);
    return 0;
}
