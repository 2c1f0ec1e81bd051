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

static void masks_by_slices_are_those_of_single_tokens(void **state)
{
    (void)state;
    static unsigned char     pool[N_TOKEN][48];
    struct token_bytes       b[N_TOKEN];
    static const char *const piece[] = { "a", "b ", "\"",  "\\",  "\n", "\xc3\xa9", "\xe2\x82", "\xf0\x9f\x98\x80",
                                         "x", ",",  "\\n", "\x7f" };
    struct dice              d = { .seed = 5 };
    for (uint32_t t = 0; t < N_TOKEN; t++) {
        uint32_t n = 0, want = 1 + dice_below(&d, t % 3 ? 8 : 44);
        bool     tame = t % 4 != 0; /* most are plain */
        while (n < want && n < 44) {
            const char *s =
                piece[tame ? (uint32_t[]){ 0, 1, 5, 7, 8 }[dice_below(&d, 5)] : dice_below(&d, ARRAY_N(piece))];
            memcpy(pool[t] + n, s, strlen(s));
            n += (uint32_t)strlen(s);
        }
        b[t] = (struct token_bytes){ pool[t], n };
    }
    struct gr_vocab *v = NULL;
    assert_int_equal(gr_vocab_create(b, N_TOKEN, &v), ST_OK);
    static const uint32_t max[] = { 0, 1, 5, 10, 29, 30, 31, 100, RX_MANY };
    for (size_t i = 0; i < ARRAY_N(max); i++) {
        struct gr_rules *r = gr_rules_create(&gr_limits_default);
        struct rx       *x = gr_rx(r);
        struct grammar  *g = NULL;
        char             err[GR_ERR];
        uint32_t         escape = rx_cat(x, rx_of_byte(x, '\\'), rx_of_bytes(x, "n", 1)), quote = rx_of_byte(x, '"');
        uint32_t         inner = rx_repeat(x, rx_or2(x, rx_json_plain(x), escape), 0, max[i]);
        uint32_t         string = gr_terminal(r, rx_cat(x, quote, rx_cat(x, inner, quote))),
                 comma = gr_terminal(r, rx_of_byte(x, ','));
        uint32_t list = gr_rule(r);
        gr_alt(r, list, &string, 1);
        gr_alt(r, list, (uint32_t[]){ list, comma, string }, 3);
        assert_int_equal(gr_build(r, list, &g, err), ST_OK);
        static uint32_t  bits[(N_TOKEN + 31) / 32];
        struct gr_match *m = gr_match_create(g, v);
        assert_int_equal(gr_accept_bytes(m, "\"", 1), ST_OK);
        for (int step = 0; step < 3; step++) {
            uint32_t n_allowed = 0;
            assert_int_equal(gr_mask(m, bits), ST_OK);
            for (uint32_t t = 0; t < N_TOKEN; t++) {
                bool may = gr_accept(m, t) == ST_OK;
                if (may) assert_int_equal(gr_rollback(m, 1), ST_OK);
                n_allowed += may;
                if ((bits[t / 32] >> (t % 32) & 1) != may)
                    fail_msg("at most %u characters, step %d, token %u", max[i], step, t);
            }
            assert_true(max[i] == 0 || step > 0 || n_allowed > 10);
            if (gr_accept_bytes(m, "ab", 2)) break;
        }
        gr_match_free(m);
        gr_free(g);
    }
    gr_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_matches_its_characters_and_no_others),
        cmocka_unit_test(what_is_no_utf8_matches_nothing),
        cmocka_unit_test(masks_by_slices_are_those_of_single_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
