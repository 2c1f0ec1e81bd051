/* schema_check: what grammars of JSON schemas say of texts, for tests/e2e/schema_suite.py.
 *   schema_check
 * Each line of the input is JSON: {"schema": .., "strict": true, "open": false, "texts": [".." ..], "walks": N, "seed": N}. For each a
 * line comes out: {"error": "why there is no grammar"}, or {"accepted": [true ..], "walks": [".." ..], "ignored":
 * ".."}. A walk is a text that was put together of random bytes that the grammar allows; it ends where it may, by
 * chance or because nothing else follows. A walk that is not at its end after 4000 bytes is left out; one that comes to
 * a dead end is an error. */
#include "api/schema/schema.h"
#include "base/json_scan.h"
#include "base/rng.h"
#include "engine/grammar/match.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WALK_MAX = 4000, LINE_MAX = 64 << 20 };

static struct gr_vocab *vocab;

struct dice {
    uint64_t seed, n;
};
static uint32_t roll(struct dice *d, uint32_t below) { return rng_philox(d->seed, 0, d->n++).x[0] % below; }

static enum status make_vocab(void)
{
    static unsigned char byte[256];
    struct token_bytes   b[256];
    for (int i = 0; i < 256; i++) {
        byte[i] = (unsigned char)i;
        b[i] = (struct token_bytes){ byte + i, 1 };
    }
    return gr_vocab_create(b, 256, &vocab);
}

static bool accepts(struct grammar *g, const char *text, size_t n)
{
    enum { PIECE = 32 }; /* as tokens come; a matcher makes room before each */
    struct gr_match *m = gr_match_create(g, vocab);
    bool             yes = m != NULL;
    for (size_t at = 0; yes && at < n; at += PIECE)
        yes = gr_accept_bytes(m, text + at, n - at < PIECE ? n - at : PIECE) == ST_OK;
    yes = yes && gr_is_end(m);
    gr_match_free(m);
    return yes;
}

/* One byte of those that may come, drawn so that quotes and brackets come up as often as letters. */
static int draw(const uint32_t *bits, struct dice *r)
{
    unsigned char may[256];
    int           n = 0;
    for (int b = 0; b < 256; b++)
        if (bits[b / 32] >> (b % 32) & 1) may[n++] = (unsigned char)b;
    if (!n) return -1;
    for (int i = 0; i < n && roll(r, 3) == 0; i++)
        if (memchr("\"]},:", may[i], 5)) return may[i];
    return may[roll(r, (uint32_t)n)];
}

/* Appends a text; false: it has not come to its end. *dead: nothing may follow, and it is not at an end. */
static bool walk(struct grammar *g, struct dice *r, struct buf *out, bool *dead)
{
    struct gr_match *m = gr_match_create(g, vocab);
    uint32_t         bits[8];
    bool             ended = false;
    for (int i = 0; m && i < WALK_MAX && !ended; i++) {
        if (gr_is_end(m) && roll(r, 4) == 0) ended = true;
        if (ended || gr_mask(m, bits)) break;
        int byte = draw(bits, r);
        if (byte < 0) {
            ended = gr_is_end(m);
            *dead = !ended;
            break;
        }
        buf_putc(out, (char)byte);
        if (gr_accept(m, (uint32_t)byte)) break;
    }
    gr_match_free(m);
    return ended;
}

static void answer(const json_t *line, const json_t *big, struct buf *out)
{
    char               err[SCHEMA_ERR] = "", ignored[SCHEMA_IGNORED] = "";
    struct gr_rules   *r = gr_rules_create(&gr_limits_default);
    struct grammar    *g = NULL;
    struct schema_form form = { .ignored = json_is_true(json_object_get(line, "strict")) ? NULL : ignored,
                                .open = json_is_true(json_object_get(line, "open")),
                                .big = big };
    struct dice        dice = { .seed = (uint64_t)json_integer_value(json_object_get(line, "seed")) };
    const json_t      *texts = json_object_get(line, "texts");
    uint32_t           symbol;
    bool               dead = false;
    if (schema_rules(r, json_object_get(line, "schema"), form, &symbol, err))
        gr_rules_free(r);
    else
        gr_build(r, symbol, &g, err);
    if (!g) {
        buf_puts(out, "{\"error\": ");
        json_put_str(out, err, strlen(err));
        buf_puts(out, "}\n");
        return;
    }
    buf_puts(out, "{\"accepted\": [");
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t *t = json_array_get(texts, i);
        bool          yes = accepts(g, json_string_value(t), json_string_length(t));
        buf_printf(out, "%s%s", i ? ", " : "", yes ? "true" : "false");
    }
    buf_puts(out, "], \"walks\": [");
    struct buf text;
    buf_init(&text, 1 << 20);
    for (int64_t i = 0, n = 0; i < json_integer_value(json_object_get(line, "walks")) && !dead; i++) {
        buf_clear(&text);
        if (!walk(g, &dice, &text, &dead)) continue;
        if (n++) buf_puts(out, ", ");
        json_put_str(out, text.data ? text.data : "", text.n);
    }
    buf_printf(out, "], \"dead\": %s, \"ignored\": \"%s\"}\n", dead ? "true" : "false", ignored);
    buf_free(&text);
    gr_free(g);
}

int main(void)
{
    char   *line = NULL;
    size_t  room = 0;
    ssize_t n;
    if (make_vocab()) return EXIT_IO;
    while ((n = getline(&line, &room, stdin)) > 0 && n < LINE_MAX) {
        struct json_error why;
        struct buf        out;
        json_t           *v = json_parse(line, (size_t)n, 0, &why);
        buf_init(&out, 256 << 20);
        json_t *big = v ? json_big_numbers(line, (size_t)n) : NULL;
        if (v)
            answer(v, big, &out);
        else
            buf_printf(&out, "{\"error\": \"the line: %s\"}\n", why.text);
        if (out.n) fwrite(out.data, 1, out.n, stdout);
        fflush(stdout);
        buf_free(&out);
        json_decref(big);
        json_decref(v);
    }
    free(line);
    gr_vocab_free(vocab);
    return 0;
}
