/* A grammar over a vocabulary: which tokens are allowed where. Over 500 lines: one matcher; its masks are compared
 * with those of a slow one over the same grammars. */
#include "test.h"
#include "engine/grammar/match.h"
#include "rx_world.h"
#include <pthread.h>

/* ---- a vocabulary: all texts of up to three letters a and b, one of them twice, and two tokens that no bytes spell */

enum { WORDS = 14, TWICE = WORDS, SPECIAL = WORDS + 1, OTHER = WORDS + 2, N_TOKEN = WORDS + 3, MASK_WORDS = 1 };

static char word[WORDS + 1][4];

static struct gr_vocab *vocab(void)
{
    struct token_bytes b[N_TOKEN];
    struct gr_vocab   *v = NULL;
    for (uint32_t t = 2, i = 0; i < WORDS; t++, i++) {
        int n = text_len(t);
        for (int k = 0; k < n; k++) word[i][k] = text_letter(t, k);
        word[i][n] = 0;
        b[i] = (struct token_bytes){ (unsigned char *)word[i], (uint32_t)n };
    }
    memcpy(word[TWICE], word[4], sizeof word[4]);
    b[TWICE] = (struct token_bytes){ (unsigned char *)word[TWICE], (uint32_t)strlen(word[TWICE]) };
    b[SPECIAL] = b[OTHER] = (struct token_bytes){ NULL, 0 };
    assert_int_equal(gr_vocab_create(b, N_TOKEN, &v), ST_OK);
    return v;
}

/* Short texts alone. out may be a. */
static void join(char *out, const char *a, const char *b)
{
    size_t n = strlen(a), k = strlen(b);
    memmove(out, a, n);
    memcpy(out + n, b, k + 1);
}

/* ---- the oracle: which parts of a text a symbol makes, by tables that are filled until nothing changes */

enum { RULES = 3, ALTS = 3, SYMBOLS = 3, TERMS = 4, LONG = 12 };

struct toy {
    uint32_t n_alt[RULES], n_symbol[RULES][ALTS];
    int      symbol[RULES][ALTS][SYMBOLS]; /* below RULES: a rule; then terminals; then SPECIAL */
    uint32_t rx[TERMS];
    bool     live[RULES];
};

/* A letter of the text may be the special token: 's'. */
struct table {
    const struct toy *toy;
    struct rx        *x;
    uint8_t           kind[256];
    const char       *text;
    int               n;
    bool              makes[RULES + TERMS + 1][LONG + 1][LONG + 1]; /* symbol, from, to */
    bool              begins[RULES + TERMS + 1][LONG + 1]; /* symbol, from: it may make the rest of the text and more */
};

static bool lives(const struct toy *g, struct table *t, int s)
{
    if (s < RULES) return g->live[s];
    if (s < RULES + TERMS) return !rx_is_void(t->x, g->rx[s - RULES]);
    return true;
}

static void fill_terminals(struct table *t)
{
    for (int s = 0; s < TERMS; s++) {
        for (int i = 0; i <= t->n; i++) {
            uint32_t a = t->toy->rx[s];
            for (int j = i;; j++) {
                t->makes[RULES + s][i][j] = rx_nullable(t->x, a);
                if (j == t->n || t->text[j] == 's') {
                    t->begins[RULES + s][i] = j == t->n && !rx_is_void(t->x, a);
                    break;
                }
                a = rx_derive(t->x, a, t->kind[(unsigned char)t->text[j]]);
            }
        }
    }
    for (int i = 0; i < t->n; i++) t->makes[RULES + TERMS][i][i + 1] = t->text[i] == 's';
    t->begins[RULES + TERMS][t->n] = true;
}

/* One alternative, from place i: where its first k symbols may end. */
static bool fill_alt(struct table *t, int rule, uint32_t alt, int i)
{
    const struct toy *g = t->toy;
    bool              at[LONG + 1] = { 0 }, changed = false;
    at[i] = true;
    for (uint32_t k = 0; k < g->n_symbol[rule][alt]; k++) {
        int  s = g->symbol[rule][alt][k];
        bool next[LONG + 1] = { 0 }, rest = true;
        for (uint32_t r = k + 1; r < g->n_symbol[rule][alt]; r++) rest = rest && lives(g, t, g->symbol[rule][alt][r]);
        for (int a = i; a <= t->n; a++) {
            if (!at[a]) continue;
            if (t->begins[s][a] && rest && !t->begins[rule][i]) t->begins[rule][i] = changed = true;
            for (int b = a; b <= t->n; b++) next[b] = next[b] || t->makes[s][a][b];
        }
        memcpy(at, next, sizeof at);
    }
    for (int j = i; j <= t->n; j++) {
        if (!at[j] || t->makes[rule][i][j]) continue;
        t->makes[rule][i][j] = changed = true;
    }
    if (at[t->n] && !t->begins[rule][i]) t->begins[rule][i] = changed = true;
    return changed;
}

static void fill(struct table *t, const char *text)
{
    memset(t->makes, 0, sizeof t->makes);
    memset(t->begins, 0, sizeof t->begins);
    t->text = text;
    t->n = (int)strlen(text);
    fill_terminals(t);
    for (bool changed = true; changed;) {
        changed = false;
        for (int r = 0; r < RULES; r++)
            for (uint32_t a = 0; a < t->toy->n_alt[r]; a++)
                for (int i = 0; i <= t->n; i++) changed = fill_alt(t, r, a, i) || changed;
    }
}

/* Rules that can be ended, by going round until nothing changes. */
static void find_live(struct toy *g, struct table *t)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int r = 0; r < RULES; r++) {
            for (uint32_t a = 0; a < g->n_alt[r] && !g->live[r]; a++) {
                bool all = true;
                for (uint32_t k = 0; k < g->n_symbol[r][a]; k++) all = all && lives(g, t, g->symbol[r][a][k]);
                g->live[r] = all;
                changed = changed || all;
            }
        }
    }
}

/* ---- random grammars, in both forms */

struct world {
    struct toy       toy;
    struct table     table;
    struct grammar  *g;
    struct gr_vocab *v;
};

static void world_make(struct world *w, uint64_t seed)
{
    struct dice      d = { .seed = seed };
    struct language  unused;
    struct toy      *toy = &w->toy;
    struct rx_limits limits = gr_limits_default.rx;
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    uint32_t         symbol[RULES + TERMS + 1];
    char             err[GR_ERR];
    memset(w, 0, sizeof *w);
    w->table.toy = toy;
    w->table.x = rx_create(&limits);
    for (int t = 0; t < TERMS; t++) {
        struct dice again = { .seed = seed * TERMS + (uint64_t)t, .n = 1000 }, copy = again;
        toy->rx[t] = rx_random(w->table.x, &again, 2, seed % 3 == 0, &unused);
        symbol[RULES + t] = gr_terminal(r, rx_random(gr_rx(r), &copy, 2, seed % 3 == 0, &unused));
    }
    symbol[RULES + TERMS] = gr_token(r, SPECIAL);
    for (int i = 0; i < RULES; i++) symbol[i] = gr_rule(r);
    for (int i = 0; i < RULES; i++) {
        toy->n_alt[i] = 1 + dice_below(&d, ALTS);
        for (uint32_t a = 0; a < toy->n_alt[i]; a++) {
            uint32_t s[SYMBOLS];
            toy->n_symbol[i][a] = dice_below(&d, SYMBOLS + 1);
            for (uint32_t k = 0; k < toy->n_symbol[i][a]; k++) {
                toy->symbol[i][a][k] = (int)dice_below(&d, RULES + TERMS + (seed % 4 == 0));
                s[k] = symbol[toy->symbol[i][a][k]];
            }
            gr_alt(r, symbol[i], s, toy->n_symbol[i][a]);
        }
    }
    rx_kinds(w->table.x, w->table.kind);
    find_live(toy, &w->table);
    w->v = vocab();
    enum status st = gr_build(r, symbol[0], &w->g, err);
    if (st != (toy->live[0] ? ST_OK : ST_INVALID)) fail_msg("seed %d: %s", (int)seed, st ? err : "it was built");
}

static void world_free(struct world *w)
{
    gr_free(w->g);
    gr_vocab_free(w->v);
    rx_free(w->table.x);
}

static uint32_t mask(struct gr_match *m)
{
    uint32_t bits;
    assert_int_equal(gr_mask(m, &bits), ST_OK);
    return bits;
}

static const char *spelling(uint32_t token)
{
    if (token == SPECIAL) return "s";
    return token == OTHER ? "" : word[token];
}

/* The mask after a text is what the oracle says of each token. */
static void compare(struct world *w, struct gr_match *m, const char *text, uint64_t seed)
{
    uint32_t bits = mask(m);
    fill(&w->table, text);
    if (gr_is_end(m) != w->table.makes[0][0][w->table.n]) fail_msg("seed %d, \"%s\": the end", (int)seed, text);
    for (uint32_t t = 0; t < N_TOKEN; t++) {
        char longer[2 * LONG + 2];
        join(longer, text, spelling(t));
        fill(&w->table, longer);
        bool may = t != OTHER && w->table.begins[0][0];
        if ((bits >> t & 1) != may) fail_msg("seed %d, \"%s\" + \"%s\": %d", (int)seed, text, spelling(t), !may);
    }
}

static void masks_of_random_grammars_are_what_brute_force_says(void **state)
{
    (void)state;
    uint32_t n_built = 0, n_seed = (uint32_t)test_size(300, 80);
    for (uint64_t seed = 0; seed < n_seed; seed++) {
        struct world w;
        world_make(&w, seed);
        if (!w.g) {
            world_free(&w);
            continue;
        }
        n_built++;
        struct dice d = { .seed = seed, .n = 5000 };
        for (int walk = 0; walk < 3; walk++) {
            struct gr_match *m = gr_match_create(w.g, w.v);
            char             text[LONG + 1] = "";
            while (strlen(text) + 3 < LONG) {
                compare(&w, m, text, seed);
                uint32_t bits = mask(m), t = dice_below(&d, N_TOKEN), tries = 0;
                while (!(bits >> t & 1) && tries++ < N_TOKEN) t = (t + 1) % N_TOKEN;
                if (!(bits >> t & 1)) break;
                assert_int_equal(gr_accept(m, t), ST_OK);
                join(text, text, spelling(t));
            }
            gr_match_free(m);
        }
        world_free(&w);
    }
    assert_true(n_built > n_seed * 2 / 3);
}

static void what_a_mask_forbids_is_not_accepted_and_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct world w;
        world_make(&w, seed);
        struct gr_match *m = w.g ? gr_match_create(w.g, w.v) : NULL;
        for (int step = 0; m && step < 4; step++) {
            uint32_t bits = mask(m), last = N_TOKEN;
            for (uint32_t t = 0; t < N_TOKEN; t++) {
                struct gr_match *try = gr_fork(m);
                assert_int_equal(gr_accept(try, t), bits >> t & 1 ? ST_OK : ST_INVALID);
                if (!(bits >> t & 1)) assert_int_equal(mask(try), bits);
                if (bits >> t & 1) last = t;
                gr_match_free(try);
            }
            assert_int_equal(mask(m), bits);
            if (last == N_TOKEN) break;
            assert_int_equal(gr_accept(m, last), ST_OK);
        }
        gr_match_free(m);
        world_free(&w);
    }
}

/* ---- a grammar by hand: lists in brackets, "[a,[b,a]]", right down to any depth */

enum { OPEN, CLOSE, COMMA, A, B, OPENS, N_LIST };

static struct gr_vocab *list_vocab(void)
{
    static const char *const text[N_LIST] = { "[", "]", ",", "a", "b", "[[[" };
    struct token_bytes       b[N_LIST];
    struct gr_vocab         *v = NULL;
    for (int i = 0; i < N_LIST; i++)
        b[i] = (struct token_bytes){ (const unsigned char *)text[i], (uint32_t)strlen(text[i]) };
    assert_int_equal(gr_vocab_create(b, N_LIST, &v), ST_OK);
    return v;
}

static struct grammar *lists(void)
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct rx       *x = gr_rx(r);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    uint32_t         open = gr_terminal(r, rx_of_byte(x, '[')), close = gr_terminal(r, rx_of_byte(x, ']'));
    uint32_t         comma = gr_terminal(r, rx_of_byte(x, ',')),
             letter = gr_terminal(r, rx_or2(x, rx_of_byte(x, 'a'), rx_of_byte(x, 'b')));
    uint32_t value = gr_rule(r), list = gr_rule(r), items = gr_rule(r);
    gr_alt(r, value, &letter, 1);
    gr_alt(r, value, &list, 1);
    gr_alt(r, list, (uint32_t[]){ open, items, close }, 3);
    gr_alt(r, list, (uint32_t[]){ open, close }, 2);
    gr_alt(r, items, &value, 1);
    gr_alt(r, items, (uint32_t[]){ items, comma, value }, 3);
    assert_int_equal(gr_build(r, value, &g, err), ST_OK);
    return g;
}

static void a_long_text_needs_no_more_memory_than_a_short_one(void **state)
{
    (void)state;
    struct gr_vocab      *v = list_vocab();
    struct grammar       *g = lists();
    struct gr_match      *m = gr_match_create(g, v);
    static const uint32_t one[] = { OPEN, A, COMMA, B, CLOSE, COMMA };
    assert_int_equal(gr_accept(m, OPEN), ST_OK);
    for (int i = 0; i < 60000; i++) {
        assert_int_equal(gr_accept(m, one[i % 6]), ST_OK);
        if (i % 6000 == 5) assert_int_equal(mask(m), 1u << OPEN | 1u << A | 1u << B | 1u << OPENS);
    }
    assert_int_equal(gr_accept(m, A), ST_OK);
    assert_int_equal(mask(m), 1u << CLOSE | 1u << COMMA);
    assert_int_equal(gr_accept(m, CLOSE), ST_OK);
    assert_true(gr_is_end(m));
    assert_int_equal(mask(m), 0);
    gr_match_free(m);
    gr_free(g);
    gr_vocab_free(v);
}

static void a_text_that_is_too_deep_ends_alone(void **state)
{
    (void)state;
    struct gr_vocab *v = list_vocab();
    struct grammar  *g = lists();
    struct gr_match *m = gr_match_create(g, v), *other = gr_match_create(g, v);
    enum status      st = ST_OK;
    uint32_t         depth = 0;
    for (; depth < 100000 && !st; depth++) st = gr_accept(m, OPEN);
    assert_int_equal(st, ST_TOO_LARGE);
    assert_true(depth > 1000);
    assert_int_equal(gr_accept(m, OPEN), ST_TOO_LARGE);
    assert_int_equal(gr_accept(other, OPEN), ST_OK);
    assert_int_equal(mask(other), 1u << OPEN | 1u << CLOSE | 1u << A | 1u << B | 1u << OPENS);
    gr_match_free(m);
    gr_match_free(other);
    gr_free(g);
    gr_vocab_free(v);
}

static void tokens_that_are_taken_back_leave_no_trace(void **state)
{
    (void)state;
    struct gr_vocab *v = list_vocab();
    struct grammar  *g = lists();
    struct dice      d = { .seed = 9 };
    for (int turn = 0; turn < 50; turn++) {
        struct gr_match *m = gr_match_create(g, v);
        uint32_t         masks[4000], n = 0;
        masks[0] = mask(m);
        while (n < 2500) { /* rows are collected on the way */
            uint32_t bits = masks[n], t = dice_below(&d, N_LIST), tries = 0;
            if (n > 5 && dice_below(&d, 10) == 0) {
                uint32_t    back = 1 + dice_below(&d, n < GR_BACK ? n : GR_BACK);
                enum status st = gr_rollback(m, back);
                if (st == ST_OK) n -= back; /* more may have been taken back before than are remembered */
                assert_int_equal(mask(m), masks[n]);
                continue;
            }
            while (!(bits >> t & 1) && tries++ < N_LIST) t = (t + 1) % N_LIST;
            if (t == OPENS || t == OPEN) t = bits >> A & 1 && dice_below(&d, 3) ? A : t;
            if (!(bits >> t & 1) || gr_accept(m, t) != ST_OK) break;
            masks[++n] = mask(m);
        }
        gr_match_free(m);
    }
    gr_free(g);
    gr_vocab_free(v);
}

/* Rows are forgotten while tokens are accepted and masks made; those that a step back leads to must not be. */
static void a_step_back_leads_to_rows_that_are_still_there(void **state)
{
    (void)state;
    struct gr_vocab      *v = list_vocab();
    struct grammar       *g = lists();
    struct gr_match      *m = gr_match_create(g, v);
    static const uint32_t one[] = { OPEN, A, COMMA, B, CLOSE, COMMA };
    uint32_t              before[3] = { 0 };
    assert_int_equal(gr_accept(m, OPEN), ST_OK);
    for (int i = 0; i < 6000; i++) {
        before[0] = before[1];
        before[1] = mask(m);
        assert_int_equal(gr_accept(m, one[i % 6]), ST_OK);
        before[2] = mask(m);
        if (i == 0) continue;
        uint32_t back = 1 + (uint32_t)i % 2;
        assert_int_equal(gr_rollback(m, back), ST_OK);
        assert_int_equal(mask(m), before[2 - back]);
        for (uint32_t k = back; k-- > 0;) assert_int_equal(gr_accept(m, one[((uint32_t)i - k) % 6]), ST_OK);
        assert_int_equal(mask(m), before[2]);
    }
    gr_match_free(m);
    gr_free(g);
    gr_vocab_free(v);
}

/* ---- mirrors: w c w backwards, so that every way through the vocabulary has rows of its own */

/* All texts of up to six letters a, b and c, and of seven to twelve letters a and b: 3 + ... + 3^6, 2^7 + ... +
 * 2^12. */
enum { MIRROR_SHORT = 6, MIRROR_LEN = 12, MIRROR_TOKENS = 1092 + 8064 };

static bool mirrors(const char *text)
{
    const char *middle = strchr(text, 'c');
    size_t      n = middle ? (size_t)(middle - text) : 0, rest = middle ? strlen(middle + 1) : 0;
    if (rest > n) return false;
    for (size_t i = 0; i < rest; i++)
        if (middle[1 + i] != text[n - 1 - i]) return false;
    return true;
}

static void a_mask_that_needs_more_rows_than_there_are_is_right(void **state)
{
    (void)state;
    static char        text[MIRROR_TOKENS][MIRROR_LEN + 1];
    struct token_bytes b[MIRROR_TOKENS];
    static uint32_t    bits[(MIRROR_TOKENS + 31) / 32];
    uint32_t           n = 0;
    for (int len = 1; len <= MIRROR_LEN; len++) {
        int letters = len <= MIRROR_SHORT ? 3 : 2, count = 1;
        for (int i = 0; i < len; i++) count *= letters;
        for (int k = 0; k < count; k++, n++) {
            for (int i = 0, rest = k; i < len; i++, rest /= letters) text[n][i] = (char)('a' + rest % letters);
            b[n] = (struct token_bytes){ (unsigned char *)text[n], (uint32_t)len };
        }
    }
    assert_int_equal(n, MIRROR_TOKENS);
    struct gr_vocab *v = NULL;
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    assert_int_equal(gr_vocab_create(b, n, &v), ST_OK);
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    uint32_t         s = gr_rule(r), c = gr_terminal(r, rx_of_byte(gr_rx(r), 'c'));
    for (unsigned k = 'a'; k <= 'b'; k++) {
        uint32_t x = gr_terminal(r, rx_of_byte(gr_rx(r), k));
        gr_alt(r, s, (uint32_t[]){ x, s, x }, 3);
    }
    gr_alt(r, s, &c, 1);
    assert_int_equal(gr_build(r, s, &g, err), ST_OK);
    static const char *const begin[] = { "", "ab", "aabbabab", "abba", "abbac", "abbacab" };
    for (size_t i = 0; i < ARRAY_N(begin); i++) {
        struct gr_match *m = gr_match_create(g, v);
        assert_int_equal(gr_accept_bytes(m, begin[i], strlen(begin[i])), ST_OK);
        assert_int_equal(gr_mask(m, bits), ST_OK);
        for (uint32_t t = 0; t < n; t++) {
            char whole[32];
            join(whole, begin[i], text[t]);
            if ((bits[t / 32] >> (t % 32) & 1) != mirrors(whole)) fail_msg("\"%s\" + \"%s\"", begin[i], text[t]);
        }
        gr_match_free(m);
    }
    gr_free(g);
    gr_vocab_free(v);
}

static void what_must_follow_is_told(void **state)
{
    (void)state;
    struct gr_vocab *v = list_vocab();
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct rx       *x = gr_rx(r);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    unsigned char    out[32];
    uint32_t         one = gr_terminal(r, rx_of_bytes(x, "[[[a", 4)), two = gr_terminal(r, rx_of_bytes(x, ",b]", 3));
    uint32_t         s = gr_rule(r), maybe = gr_rule(r);
    gr_alt(r, maybe, NULL, 0);
    gr_alt(r, maybe, &two, 1);
    gr_alt(r, s, (uint32_t[]){ one, two, maybe }, 3);
    assert_int_equal(gr_build(r, s, &g, err), ST_OK);
    struct gr_match *m = gr_match_create(g, v);
    assert_int_equal(gr_forced(m, out, sizeof out), 7);
    assert_memory_equal(out, "[[[a,b]", 7);
    assert_int_equal(gr_forced(m, out, 3), 3);
    assert_int_equal(mask(m), 1u << OPEN | 1u << OPENS);
    assert_int_equal(gr_accept_bytes(m, "[[[a,b]", 7), ST_OK);
    assert_int_equal(gr_forced(m, out, sizeof out), 0); /* it may end here */
    assert_true(gr_is_end(m));
    gr_match_free(m);
    gr_free(g);
    gr_vocab_free(v);
}

struct walker {
    struct grammar  *g;
    struct gr_vocab *v;
    uint32_t         masks[200];
    uint64_t         seed;
};

static void *walk(void *arg)
{
    struct walker   *w = arg;
    struct gr_match *m = gr_match_create(w->g, w->v);
    struct dice      d = { .seed = w->seed };
    for (int i = 0; i < 200; i++) {
        if (gr_mask(m, &w->masks[i])) break;
        uint32_t t = dice_below(&d, N_LIST);
        for (uint32_t k = 0; k < N_LIST && !(w->masks[i] >> t & 1); k++) t = (t + 1) % N_LIST;
        if (gr_accept(m, t)) break;
    }
    gr_match_free(m);
    return NULL;
}

static void several_threads_use_one_grammar(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    struct gr_vocab *v = list_vocab();
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct walker   w[THREADS], alone = { .v = v, .seed = seed };
        pthread_t       t[THREADS];
        struct grammar *g = lists();
        for (int i = 0; i < THREADS; i++) {
            w[i] = (struct walker){ .g = g, .v = v, .seed = seed };
            assert_int_equal(pthread_create(&t[i], NULL, walk, &w[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
        alone.g = lists();
        walk(&alone);
        for (int i = 0; i < THREADS; i++) assert_memory_equal(w[i].masks, alone.masks, sizeof alone.masks);
        gr_free(g);
        gr_free(alone.g);
    }
    gr_vocab_free(v);
}

/* ---- rules made to hurt */

static void a_grammar_without_texts_is_refused(void **state)
{
    (void)state;
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    uint32_t         a = gr_rule(r), b = gr_rule(r), letter = gr_terminal(r, rx_of_byte(gr_rx(r), 'a'));
    gr_alt(r, a, (uint32_t[]){ letter, b }, 2);
    gr_alt(r, b, (uint32_t[]){ a, letter }, 2);
    assert_int_equal(gr_build(r, a, &g, err), ST_INVALID);
    assert_string_equal(err, "no text at all satisfies it");
}

static void a_grammar_over_its_bounds_is_refused(void **state)
{
    (void)state;
    struct gr_limits limits = gr_limits_default;
    limits.symbol_max = 1000;
    struct gr_rules *r = gr_rules_create(&limits);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    uint32_t         a = gr_rule(r), letter = gr_terminal(r, rx_of_byte(gr_rx(r), 'a'));
    for (int i = 0; i < 1000; i++) gr_alt(r, a, &letter, 1);
    assert_int_equal(gr_build(r, a, &g, err), ST_TOO_LARGE);
}

/* s ::= s s | "a" | : every text of a's in more ways than can be counted */
static void a_grammar_of_many_readings_ends(void **state)
{
    (void)state;
    struct gr_vocab *v = vocab();
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    char             err[GR_ERR];
    uint32_t         s = gr_rule(r), letter = gr_terminal(r, rx_of_byte(gr_rx(r), 'a'));
    uint32_t         two = gr_terminal(r, rx_of_bytes(gr_rx(r), "aa", 2));
    gr_alt(r, s, (uint32_t[]){ s, s }, 2);
    gr_alt(r, s, &letter, 1);
    gr_alt(r, s, &two, 1);
    gr_alt(r, s, NULL, 0);
    assert_int_equal(gr_build(r, s, &g, err), ST_OK);
    struct gr_match *m = gr_match_create(g, v);
    enum status      st = ST_OK;
    uint32_t         n = 0;
    for (; n < 1000 && !st; n++) {
        uint32_t bits;
        st = gr_mask(m, &bits);
        if (!st) assert_int_equal(bits, 1u << 0 | 1u << 2 | 1u << 6);
        if (!st) st = gr_accept(m, 0);
    }
    assert_true(st == ST_OK || st == ST_TOO_LARGE);
    assert_true(n > 20);
    gr_match_free(m);
    gr_free(g);
    gr_vocab_free(v);
}

/* (.*a.{24} and 19 like it): a new set of places behind each letter */
static void a_mask_whose_every_state_is_dear_comes_to_its_bound(void **state)
{
    (void)state;
    enum { TOKENS = 600, LEN = 20, ALTS_MANY = 20 };
    static unsigned char     pool[TOKENS][LEN];
    struct token_bytes       b[TOKENS];
    struct gr_vocab         *v = NULL;
    struct dice              d = { .seed = 9 };
    static const uint64_t    fuel[] = { 30000, 100000000 };
    static const enum status want[] = { ST_TOO_LARGE, ST_OK };
    uint32_t                 bits[(TOKENS + 31) / 32];
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t i = 0; i < LEN; i++) pool[t][i] = (unsigned char)('a' + dice_below(&d, 2));
        b[t] = (struct token_bytes){ pool[t], LEN };
    }
    assert_int_equal(gr_vocab_create(b, TOKENS, &v), ST_OK);
    for (size_t k = 0; k < ARRAY_N(fuel); k++) {
        struct gr_limits limits = gr_limits_default;
        limits.lex_fuel_max = fuel[k];
        struct gr_rules *r = gr_rules_create(&limits);
        struct rx       *x = gr_rx(r);
        struct grammar  *g = NULL;
        char             err[GR_ERR];
        uint32_t         one = rx_or2(x, rx_of_byte(x, 'a'), rx_of_byte(x, 'b')), alt[ALTS_MANY];
        for (uint32_t i = 0; i < ALTS_MANY; i++)
            alt[i] = rx_cat(x, rx_repeat(x, one, 0, RX_MANY),
                            rx_cat(x, rx_of_byte(x, 'a'), rx_repeat(x, one, 24 + i, 24 + i)));
        assert_int_equal(gr_build(r, gr_terminal(r, rx_or(x, alt, ALTS_MANY)), &g, err), ST_OK);
        struct gr_match *m = gr_match_create(g, v);
        assert_int_equal(gr_mask(m, bits), want[k]);
        assert_int_equal(gr_accept(m, 0), ST_OK); /* what it has spent counts for that mask alone */
        gr_match_free(m);
        gr_free(g);
    }
    gr_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_of_random_grammars_are_what_brute_force_says),
        cmocka_unit_test(what_a_mask_forbids_is_not_accepted_and_changes_nothing),
        cmocka_unit_test(a_long_text_needs_no_more_memory_than_a_short_one),
        cmocka_unit_test(a_text_that_is_too_deep_ends_alone),
        cmocka_unit_test(tokens_that_are_taken_back_leave_no_trace),
        cmocka_unit_test(a_step_back_leads_to_rows_that_are_still_there),
        cmocka_unit_test(a_mask_that_needs_more_rows_than_there_are_is_right),
        cmocka_unit_test(what_must_follow_is_told),
        cmocka_unit_test(several_threads_use_one_grammar),
        cmocka_unit_test(a_grammar_without_texts_is_refused),
        cmocka_unit_test(a_grammar_over_its_bounds_is_refused),
        cmocka_unit_test(a_grammar_of_many_readings_ends),
        cmocka_unit_test(a_mask_whose_every_state_is_dear_comes_to_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
