#include "test.h"
#include "base/utf8.h"
#include "engine/grammar/match.h"
#include "engine/grammar/rx_utf8.h"
#include "rx_world.h"

static const struct rx_limits limits = { .node_max = 200000, .fuel = 50000000, .depth_max = 500 };

static uint32_t spell(uint32_t cp, unsigned char out[4])
{
    if (cp < 0x80) return out[0] = (unsigned char)cp, 1;
    static const unsigned lead[] = { [2] = 0xC0, [3] = 0xE0, [4] = 0xF0 };
    uint32_t              n = 2u + (cp >= 0x800) + (cp >= 0x10000);
    for (uint32_t i = n; i-- > 1; cp >>= 6) out[i] = (unsigned char)(0x80 | (cp & 0x3F));
    out[0] = (unsigned char)(lead[n] | cp);
    return n;
}

static bool matches(struct rx *x, uint32_t a, const uint8_t *kind, const unsigned char *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) a = rx_derive(x, a, kind[p[i]]);
    return rx_nullable(x, a);
}

/* Every code point against ranges at every border of lengths, and random ones. */
static void a_range_matches_its_characters_and_no_others(void **state)
{
    (void)state;
    static const uint32_t border[] = { 0,     1,     0x7E,   0x7F,   0x80,   0x81,    0x7FE,   0x7FF,
                                       0x800, 0x801, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF };
    struct dice           d = { .seed = 3 };
    const int turns = test_size(40, 12), whole = test_size(5, 0); /* the turns up to `whole` leave none out */
    for (int turn = 0; turn < turns; turn++) {
        uint32_t from = border[dice_below(&d, ARRAY_N(border))], to = border[dice_below(&d, ARRAY_N(border))];
        if (turn % 2) to = dice_below(&d, 0x110000);
        if (turn % 3 == 0) from = dice_below(&d, 0x110000);
        struct rx *x = rx_create(&limits);
        uint8_t    kind[256];
        uint32_t   a = rx_of_chars(x, from, to);
        rx_kinds(x, kind);
        for (uint32_t cp = 0; cp < 0x110000; cp += cp % 64 == 63 && turn > whole ? 1 + dice_below(&d, 300) : 1) {
            unsigned char p[4];
            uint32_t      n = spell(cp, p);
            bool          surrogate = cp >= 0xD800 && cp < 0xE000;
            if (matches(x, a, kind, p, n) != (cp >= from && cp <= to && !surrogate))
                fail_msg("%x..%x: %x", from, to, cp);
        }
        assert_int_equal(rx_status(x), ST_OK);
        rx_free(x);
    }
}

static void what_is_no_utf8_matches_nothing(void **state)
{
    (void)state;
    struct rx  *x = rx_create(&limits);
    struct dice d = { .seed = 4 };
    uint8_t     kind[256];
    uint32_t    a = rx_of_chars(x, 0, RX_CODE_POINT_MAX), cp;
    rx_kinds(x, kind);
    for (int i = 0; i < test_size(300000, 50000); i++) {
        unsigned char p[4];
        uint32_t      n = 1 + dice_below(&d, 4);
        for (uint32_t k = 0; k < n; k++)
            p[k] = (unsigned char)(dice_below(&d, 4) ? 0x80 + dice_below(&d, 0x80) : dice_below(&d, 256));
        bool good = utf8_decode((const char *)p, n, &cp) == n;
        if (matches(x, a, kind, p, n) != good) fail_msg("%02x %02x %02x %02x: %u bytes", p[0], p[1], p[2], p[3], n);
    }
    rx_free(x);
}

/* ---- slices: the mask within a string is what stepping over each token says */

enum { N_TOKEN = 4000 };

/* Most tokens are plain characters, up to 44 of them. */
static struct gr_vocab *vocab_of_pieces(void)
{
    static unsigned char     pool[N_TOKEN][48];
    struct token_bytes       b[N_TOKEN];
    static const char *const piece[] = { "a",
                                         "b ",
                                         "\"",
                                         "\\",
                                         "\n",
                                         "\xc3\xa9",
                                         "\xe2\x82",
                                         "\xf0\x9f\x98\x80",
                                         "x",
                                         ",",
                                         "\\n",
                                         "\x7f",
                                         "\xe2\x80\xa8",
                                         "<",
                                         "/",
                                         "</v",
                                         ">\n",
                                         "nul",
                                         "1",
                                         "[1",
                                         "]",
                                         "{" };
    struct dice              d = { .seed = 5 };
    struct gr_vocab         *v = NULL;
    for (uint32_t t = 0; t < N_TOKEN; t++) {
        uint32_t n = 0, want = 1 + dice_below(&d, t % 3 ? 8 : 44);
        bool     tame = t % 4 != 0; /* most are plain */
        while (n < want && n < 44) {
            const char *s = piece[tame ? (uint32_t[]){ 0, 1, 5, 7, 8, 14, 17, 18 }[dice_below(&d, 8)]
                                       : dice_below(&d, ARRAY_N(piece))];
            memcpy(pool[t] + n, s, strlen(s));
            n += (uint32_t)strlen(s);
        }
        b[t] = (struct token_bytes){ pool[t], n };
    }
    assert_int_equal(gr_vocab_create(b, N_TOKEN, &v), ST_OK);
    return v;
}

/* How many tokens the mask allows. */
static uint32_t compare_mask(struct gr_match *m, const char *what, uint32_t max)
{
    static uint32_t bits[(N_TOKEN + 31) / 32];
    uint32_t        n_allowed = 0;
    assert_int_equal(gr_mask(m, bits), ST_OK);
    for (uint32_t t = 0; t < N_TOKEN; t++) {
        bool may = gr_accept(m, t) == ST_OK;
        if (may) assert_int_equal(gr_rollback(m, 1), ST_OK);
        n_allowed += may;
        if ((bits[t / 32] >> (t % 32) & 1) != may) fail_msg("%s, at most %u, token %u: %d", what, max, t, !may);
    }
    return n_allowed;
}

/* What a text may be: a string of characters of a kind, and what is beside it or behind it. */
struct shape {
    const char *what;
    bool        dot;     /* U+2028 and U+2029 do not count */
    bool        pairs;   /* one of its characters may be two instead */
    bool        bare;    /* the closing quote may be missing, and plain text follows */
    bool        beside;  /* or one of a few other strings */
    bool        without; /* and not one of a few others */
    bool        raw;     /* without quotes, up to an end marker in a line of its own */
    bool        typed;   /* and with a character at least, and none that reads as other data, which may come as well */
};

static uint32_t few(struct rx *x)
{
    return rx_or(x,
                 (uint32_t[]){ rx_of_bytes(x, "\"axax\"", 6), rx_of_bytes(x, "\"b xaaaaaaaaaaaaa\"", 17),
                               rx_of_bytes(x, "\"\"", 2) },
                 3);
}

/* null, numbers, and whatever begins like an object or a list; with blanks around. */
static uint32_t other_data(struct rx *x)
{
    uint32_t blank = rx_repeat(x, rx_or2(x, rx_of_byte(x, ' '), rx_of_byte(x, '\n')), 0, RX_MANY);
    uint32_t number = rx_repeat(x, rx_of_byte(x, '1'), 1, RX_MANY);
    uint32_t any[] = { rx_of_bytes(x, "null", 4), number, rx_cat(x, rx_of_byte(x, '{'), RX_ALL),
                       rx_cat(x, rx_of_byte(x, '['), RX_ALL) };
    return rx_cat(x, blank, rx_cat(x, rx_or(x, any, 4), blank));
}

static struct grammar *grammar_of(const struct shape *s, uint32_t max)
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct rx       *x = gr_rx(r);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    uint32_t         plain = rx_json_plain(x), quote = rx_of_byte(x, '"'), end = quote, list = gr_rule(r);
    if (!s->dot) plain = rx_or(x, (uint32_t[]){ plain, rx_of_chars(x, 0x2028, 0x2029), rx_of_bytes(x, "\\n", 2) }, 3);
    if (s->pairs) plain = rx_or2(x, plain, rx_cat(x, plain, plain));
    if (s->bare) end = rx_repeat(x, quote, 0, 1);
    if (s->raw) {
        uint32_t any = rx_of_chars(x, 1, RX_CODE_POINT_MAX), stop = rx_of_bytes(x, "</v>", 4);
        uint32_t all =
            rx_and2(x, rx_repeat(x, any, s->typed, max), rx_not(x, rx_cat(x, RX_ALL, rx_cat(x, stop, RX_ALL))));
        if (s->typed) all = rx_and2(x, all, rx_not(x, other_data(x)));
        uint32_t value[2] = { gr_terminal(r, all), gr_terminal(r, rx_of_bytes(x, "\n</v>\n", 6)) };
        if (s->typed) { /* lists stand beside the text */
            uint32_t one = rx_of_bytes(x, "[1", 2), text = value[0];
            value[0] = gr_rule(r);
            gr_alt(r, value[0], &text, 1);
            text = gr_terminal(
                r, rx_cat(x, one, rx_cat(x, rx_repeat(x, rx_of_byte(x, '1'), 0, RX_MANY), rx_of_byte(x, ']'))));
            gr_alt(r, value[0], &text, 1);
        }
        gr_alt(r, list, value, 2);
        gr_alt(r, list, (uint32_t[]){ list, value[0], value[1] }, 3);
        assert_int_equal(gr_build(r, list, &g, err), ST_OK);
        return g;
    }
    uint32_t text = rx_cat(x, quote, rx_cat(x, rx_repeat(x, plain, 0, max), end));
    if (s->without) text = rx_and2(x, text, rx_not(x, few(x)));
    uint32_t string = gr_terminal(r, text),
             comma = gr_terminal(r, s->bare ? rx_of_bytes(x, "xa", 2) : rx_of_byte(x, ','));
    gr_alt(r, list, &string, 1);
    gr_alt(r, list, (uint32_t[]){ list, comma, string }, 3);
    if (s->beside) gr_alt(r, list, (uint32_t[]){ gr_terminal(r, few(x)) }, 1);
    assert_int_equal(gr_build(r, list, &g, err), ST_OK);
    return g;
}

static void masks_by_slices_are_those_of_single_tokens(void **state)
{
    (void)state;
    static const uint32_t     max[] = { 0, 1, 5, 10, 29, 30, 31, 33, 100, RX_MANY };
    static const struct shape shape[] = {
        { .what = "a string" },
        { .what = "a pattern's string", .dot = true },
        { .what = "a string that may end anywhere", .bare = true },
        { .what = "a string of characters and of pairs", .pairs = true },
        { .what = "a string or others", .beside = true },
        { .what = "a string, and no others", .without = true },
        { .what = "a string that is no other, or that", .beside = true, .without = true },
        { .what = "text up to a marker", .raw = true },
        { .what = "text that is no other data", .raw = true, .typed = true },
        { .what = "text that may be other data", .raw = true, .typed = true },
    };
    static const char *const raw[] = { "ax", "<", "/v", "x" }, *const data[] = { " ", "1", "1", "nu" };
    struct gr_vocab *v = vocab_of_pieces();
    for (size_t k = 0; k < ARRAY_N(shape); k++) {
        for (size_t i = k > 0; i < ARRAY_N(max); i++) {
            struct grammar  *g = grammar_of(&shape[k], max[i]);
            struct gr_match *m = gr_match_create(g, v);
            if (!shape[k].raw) assert_int_equal(gr_accept_bytes(m, "\"", 1), ST_OK);
            for (int step = 0; step < 4; step++) {
                uint32_t n_allowed = compare_mask(m, shape[k].what, max[i]);
                assert_true(max[i] == 0 || step > 0 || n_allowed > 10);
                const char *then = raw[shape[k].raw ? step : 0];
                if (k + 1 == ARRAY_N(shape)) then = data[step];
                if (gr_accept_bytes(m, then, strlen(then))) break;
            }
            gr_match_free(m);
            gr_free(g);
        }
    }
    gr_vocab_free(v);
}

/* A text that may end anywhere, and a vocabulary of which nearly every token may stand in it. */
static void a_mask_of_free_text_costs_no_more_than_its_end(void **state)
{
    (void)state;
    enum { TOKENS = 120000, LEN = 8 };
    static const struct shape raw = { .what = "text up to a marker", .raw = true };
    static const struct shape typed = { .what = "text that is no other data", .raw = true, .typed = true };
    unsigned char(*pool)[LEN] = calloc(TOKENS, sizeof *pool);
    struct token_bytes *b = calloc(TOKENS, sizeof *b);
    uint32_t           *bits = calloc(gr_words(TOKENS), sizeof *bits);
    struct gr_vocab    *v = NULL;
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t k = 0, rest = t; k < LEN; k++, rest /= 7) pool[t][k] = (unsigned char)('a' + rest % 7);
        if (t % 64 == 0) memcpy(pool[t] + 3, "\n<", 2);
        b[t] = (struct token_bytes){ pool[t], LEN };
    }
    assert_int_equal(gr_vocab_create(b, TOKENS, &v), ST_OK);
    for (uint32_t max = 5; max < 50; max += 40) {
        struct grammar  *g = grammar_of(&raw, max);
        struct gr_match *m = gr_match_create(g, v);
        assert_int_equal(gr_mask(m, bits), ST_OK);
        uint32_t n = 0;
        for (uint32_t w = 0; w < gr_words(TOKENS); w++) n += (uint32_t)__builtin_popcount(bits[w]);
        assert_int_equal(n, max < LEN ? 0 : TOKENS);
        gr_match_free(m);
        gr_free(g);
    }
    /* What a state says is kept, as the places where such a text may have ended are few that count. */
    struct grammar  *g = grammar_of(&typed, 45);
    struct gr_match *m = gr_match_create(g, v);
    size_t           bytes = gr_bytes(g);
    assert_int_equal(gr_mask(m, bits), ST_OK);
    assert_true(gr_bytes(g) >= bytes + gr_words(TOKENS) * sizeof *bits);
    gr_match_free(m);
    gr_free(g);
    gr_vocab_free(v);
    free(bits);
    free(b);
    free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_matches_its_characters_and_no_others),
        cmocka_unit_test(what_is_no_utf8_matches_nothing),
        cmocka_unit_test(masks_by_slices_are_those_of_single_tokens),
        cmocka_unit_test(a_mask_of_free_text_costs_no_more_than_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
