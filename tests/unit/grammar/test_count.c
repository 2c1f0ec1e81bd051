/* Rules that count: beside the same rules written out, one for each count. */
#include "test.h"
#include "base/rng.h"
#include "engine/grammar/match.h"

enum { RULES = 4, ALTS = 3, SYMBOLS = 4, BOUND = 3, MANY = BOUND + 1, COUNTS = MANY + 1, N_TOKEN = 6 };

/* A random alternative: terminals a, b and c, rules, and what counts. Its last symbol takes the rule's place. */
enum kind { LETTER, RULE, MORE, COUNTED };
struct toy {
    uint32_t n_alt[RULES], n[RULES][ALTS];
    struct {
        enum kind kind;
        uint32_t  a, b; /* LETTER, RULE: which; COUNTED: from a to b, MANY: and more */
    } symbol[RULES][ALTS][SYMBOLS];
    bool live[RULES][COUNTS];
};

static uint32_t roll(uint64_t seed, uint64_t *n, uint32_t below) { return rng_philox(seed, 0, (*n)++).x[0] % below; }

static void toy_make(struct toy *t, uint64_t seed)
{
    uint64_t dice = 0;
    memset(t, 0, sizeof *t);
    for (uint32_t r = 0; r < RULES; r++) {
        t->n_alt[r] = 1 + roll(seed, &dice, ALTS);
        for (uint32_t a = 0; a < t->n_alt[r]; a++) {
            uint32_t n = t->n[r][a] = 1 + roll(seed, &dice, SYMBOLS), letter = roll(seed, &dice, n);
            for (uint32_t i = 0; i < n; i++) {
                uint32_t kind = roll(seed, &dice, 6), from = roll(seed, &dice, BOUND + 1);
                uint32_t to = from + roll(seed, &dice, MANY + 1 - from);
                t->symbol[r][a][i].kind =
                    i == letter ? LETTER : (enum kind[]){ LETTER, RULE, RULE, MORE, MORE, COUNTED }[kind];
                t->symbol[r][a][i].a = t->symbol[r][a][i].kind == COUNTED ? from : roll(seed, &dice, 3);
                t->symbol[r][a][i].b = to;
                if (t->symbol[r][a][i].kind == RULE) t->symbol[r][a][i].a = roll(seed, &dice, RULES);
            }
        }
    }
}

/* The count behind alternative a of a rule that is at `count`, and the symbols of it that stay, in the form that `rule` has
 * rules; false: it is not gone past. */
static bool written_out(const struct toy *t, uint32_t r, uint32_t a, uint32_t count, const uint32_t letter[3],
                        uint32_t rule[RULES][COUNTS], uint32_t *out, uint32_t *n_out)
{
    *n_out = 0;
    for (uint32_t i = 0; i < t->n[r][a]; i++) {
        uint32_t of = t->symbol[r][a][i].a;
        bool     last = i + 1 == t->n[r][a];
        switch (t->symbol[r][a][i].kind) {
        case LETTER: out[(*n_out)++] = letter[of]; break;
        case RULE: out[(*n_out)++] = rule[of][last ? count : 0]; break;
        case MORE: count += count < MANY; break;
        case COUNTED:
            if (count < of || (count > t->symbol[r][a][i].b && t->symbol[r][a][i].b != MANY)) return false;
            break;
        }
    }
    return true;
}

static bool alt_lives(const struct toy *t, uint32_t r, uint32_t a, uint32_t count)
{
    uint32_t number[RULES][COUNTS], out[SYMBOLS], n;
    for (uint32_t i = 0; i < RULES * COUNTS; i++) number[i / COUNTS][i % COUNTS] = i;
    if (!written_out(t, r, a, count, (uint32_t[]){ 99, 99, 99 }, number, out, &n)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (out[i] < 99 && !t->live[out[i] / COUNTS][out[i] % COUNTS]) return false;
    return true;
}

static void find_live(struct toy *t)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = 0; i < RULES * COUNTS; i++) {
            bool *live = &t->live[i / COUNTS][i % COUNTS];
            for (uint32_t a = 0; a < t->n_alt[i / COUNTS] && !*live; a++) {
                *live = alt_lives(t, i / COUNTS, a, i % COUNTS);
                changed = changed || *live;
            }
        }
    }
}

/* Are the counts with which each rule can be ended without a gap? */
static bool no_gap(const struct toy *t)
{
    for (uint32_t r = 0; r < RULES; r++) {
        uint32_t turns = 0;
        for (uint32_t c = 0; c + 1 < COUNTS; c++) turns += t->live[r][c] != t->live[r][c + 1];
        if (turns > 2 || (turns == 2 && t->live[r][0])) return false;
    }
    return true;
}

static void letters(struct gr_rules *r, uint32_t out[3])
{
    for (unsigned i = 0; i < 3; i++) out[i] = gr_terminal(r, rx_of_byte(gr_rx(r), (uint8_t)('a' + i)));
}

static struct grammar *counting(const struct toy *t)
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    uint32_t         letter[3], rule[RULES];
    letters(r, letter);
    for (int i = 0; i < RULES; i++) rule[i] = gr_rule(r);
    for (uint32_t i = 0; i < RULES; i++) {
        for (uint32_t a = 0; a < t->n_alt[i]; a++) {
            uint32_t s[SYMBOLS];
            for (uint32_t k = 0; k < t->n[i][a]; k++) {
                uint32_t of = t->symbol[i][a][k].a, to = t->symbol[i][a][k].b;
                switch (t->symbol[i][a][k].kind) {
                case LETTER: s[k] = letter[of]; break;
                case RULE: s[k] = rule[of]; break;
                case MORE: s[k] = gr_more(r); break;
                case COUNTED: s[k] = gr_counted(r, of, to == MANY ? RX_MANY : to); break;
                }
            }
            gr_alt_tail(r, rule[i], s, t->n[i][a]);
        }
    }
    enum status st = gr_build(r, rule[0], &g, err);
    if (st != ST_OK && st != ST_INVALID) fail_msg("%s", err);
    return g;
}

static struct grammar *plain(const struct toy *t)
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    uint32_t         letter[3], rule[RULES][COUNTS], s[SYMBOLS], n;
    letters(r, letter);
    for (int i = 0; i < RULES * COUNTS; i++) rule[i / COUNTS][i % COUNTS] = gr_rule(r);
    for (uint32_t i = 0; i < RULES * COUNTS; i++)
        for (uint32_t a = 0; a < t->n_alt[i / COUNTS]; a++)
            if (written_out(t, i / COUNTS, a, i % COUNTS, letter, rule, s, &n))
                gr_alt(r, rule[i / COUNTS][i % COUNTS], s, n);
    gr_build(r, rule[0][0], &g, err);
    return g;
}

static struct gr_vocab *vocab(void)
{
    static const char *const text[N_TOKEN] = { "a", "b", "c", "ab", "bc", "aca" };
    struct token_bytes       b[N_TOKEN];
    struct gr_vocab         *v = NULL;
    for (int i = 0; i < N_TOKEN; i++)
        b[i] = (struct token_bytes){ (const unsigned char *)text[i], (uint32_t)strlen(text[i]) };
    assert_int_equal(gr_vocab_create(b, N_TOKEN, &v), ST_OK);
    return v;
}

static void compare(uint64_t seed, struct grammar *g, struct grammar *want, bool whole, const struct gr_vocab *v)
{
    uint64_t dice = 1000;
    for (int walk = 0; walk < 8; walk++) {
        struct gr_match *a = gr_match_create(g, v), *b = gr_match_create(want, v);
        for (int step = 0; step < 10; step++) {
            uint32_t has, should;
            assert_int_equal(gr_mask(a, &has), ST_OK);
            assert_int_equal(gr_mask(b, &should), ST_OK);
            if (gr_is_end(a) != gr_is_end(b) || (should & ~has) || (whole && has != should))
                fail_msg("seed %u, step %d: %x, not %x", (unsigned)seed, step, has, should);
            uint32_t t = roll(seed, &dice, N_TOKEN), tries = 0;
            while (!(should >> t & 1) && tries++ < N_TOKEN) t = (t + 1) % N_TOKEN;
            if (!should) break;
            assert_int_equal(gr_accept(a, t), ST_OK);
            assert_int_equal(gr_accept(b, t), ST_OK);
        }
        gr_match_free(a);
        gr_match_free(b);
    }
}

static void rules_that_count_are_those_that_are_written_out(void **state)
{
    (void)state;
    struct gr_vocab *v = vocab();
    uint32_t         n_same = 0, n_whole = 0;
    for (uint64_t seed = 0; seed < (uint64_t)test_size(6000, 1500); seed++) {
        struct toy t;
        toy_make(&t, seed);
        find_live(&t);
        struct grammar *g = counting(&t), *want = plain(&t);
        bool            whole = no_gap(&t);
        if (want && !g) fail_msg("seed %u: it was not built", (unsigned)seed);
        if (whole && g && !want) fail_msg("seed %u: it was built", (unsigned)seed);
        if (want) compare(seed, g, want, whole, v);
        n_same += want != NULL;
        n_whole += want && whole;
        if (g) gr_free(g);
        if (want) gr_free(want);
    }
    gr_vocab_free(v);
    assert_true(n_same > 300 && n_whole > n_same / 2 && n_whole < n_same);
}

/* To the largest count, and no further. */
static void a_count_is_kept_to_its_bound(void **state)
{
    (void)state;
    struct gr_vocab *v = vocab();
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    uint32_t         letter[3], list = gr_rule(r);
    letters(r, letter);
    gr_alt(r, list, (uint32_t[]){ gr_counted(r, GR_COUNT_MAX - 1, GR_COUNT_MAX), letter[2] }, 2);
    gr_alt_tail(r, list, (uint32_t[]){ gr_more(r), letter[0], list }, 3);
    assert_int_equal(gr_build(r, list, &g, err), ST_OK);
    struct gr_match *m = gr_match_create(g, v);
    for (uint32_t i = 0; i <= GR_COUNT_MAX; i++) {
        uint32_t may = (i < GR_COUNT_MAX ? 1u : 0u) | (i >= GR_COUNT_MAX - 1 ? 4u : 0u), bits;
        assert_int_equal(gr_mask(m, &bits), ST_OK);
        if (bits != may) fail_msg("%u: %x", i, bits);
        assert_int_equal(gr_accept(m, 0), i < GR_COUNT_MAX ? ST_OK : ST_INVALID);
    }
    gr_match_free(m);
    gr_free(g);
    gr_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_that_count_are_those_that_are_written_out),
        cmocka_unit_test(a_count_is_kept_to_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
