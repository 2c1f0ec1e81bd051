#include "test.h"
#include "api/calls/calls_row.h"
#include "api/gate.h"
#include "api/markup.h"
#include "engine/guide.h"
#include "tests/unit/api/tiny_model.h"

/* Random answers of a model that thinks, under a grammar: every token that the guide allows may be drawn. The reader of
 * answers must then find the grammar's text behind the reasoning. */

enum { TOKENS_MAX = 400, MORE = 12, N_TOKEN = VOCAB + MORE };

/* Tokens that begin, end, hold or nearly hold a marker, of which a tokenizer has few. */
static const char *const more[MORE] = { ">a",     ">x",        "</th",      "ink>",        ">\n\n", "k>ab",
                                        "ink>bc", "x</think>", "</think>a", "<think>\nSo", "<|end", "|>" };

struct thinker {
    struct calls_model calls;
    struct gr_vocab   *vocab;
    struct gate_model  gate;
    uint32_t           budget;
};

static void thinker_open(struct thinker *t, const struct calls_row *row, const struct calls_think *think)
{
    static char        one[256];
    struct token_bytes bytes[N_TOKEN] = { { 0 } };
    calls_model_init(&t->calls, row, think, world.tok);
    for (uint32_t i = 0; i < 256; i++) {
        one[i] = (char)i;
        bytes[i] = (struct token_bytes){ (const unsigned char *)&one[i], 1 };
    }
    for (uint32_t i = 0; i < MORE; i++)
        bytes[VOCAB + i] = (struct token_bytes){ (const unsigned char *)more[i], (uint32_t)strlen(more[i]) };
    assert_int_equal(gr_vocab_create(bytes, N_TOKEN, &t->vocab), ST_OK);
    t->budget = GATE_UNBOUNDED;
    t->gate = (struct gate_model){ .calls = &t->calls, .tok = world.tok, .vocab = t->vocab };
    assert_int_equal(gate_model_scan(&t->gate), ST_OK);
}

static void thinker_close(struct thinker *t)
{
    gr_vocab_free(t->vocab);
    free((void *)(uintptr_t)t->gate.odd);
}

/* Texts "ab", "abb", "abbb" ... */
static struct guide *guide_of(struct thinker *t, bool reasoning)
{
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct rx       *x = gr_rx(r);
    struct grammar  *g = NULL;
    struct guide    *u = NULL;
    char             err[GR_ERR];
    uint32_t         text = gr_terminal(r, rx_cat(x, rx_of_byte(x, 'a'), rx_repeat(x, rx_of_byte(x, 'b'), 1, RX_MANY)));
    text = markup_answer(r, &t->calls, text, MARKUP_NONE, reasoning ? MARKUP_INSIDE : MARKUP_BEFORE);
    assert_int_equal(gr_build(r, text, &g, err), ST_OK);
    struct gate *gate = gate_create(&t->gate, NULL, reasoning ? GATE_INSIDE : GATE_BEFORE, reasoning, t->budget);
    assert_int_equal(guide_create(g, t->vocab, (uint32_t[]){ EOS }, 1, gate, &u), ST_OK);
    gr_free(g);
    return u;
}

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static bool allowed(const struct guide *u, uint32_t token)
{
    uint32_t        n;
    const uint32_t *mask = guide_mask(u, &n);
    if (!n) return token != EOS;
    return token / 32 < n && mask[token / 32] >> (token % 32) & 1;
}

/* A token that is allowed, mostly one of which markers are made. */
static uint32_t draw(const struct guide *u, uint32_t *seed)
{
    static const char likely[] = "<</think>\nab";
    for (;;) {
        uint32_t k = next(seed) % 10, token = next(seed) % N_TOKEN;
        if (k < 5) token = (unsigned char)likely[next(seed) % (sizeof likely - 1)];
        if (k == 5) token = VOCAB + next(seed) % MORE;
        if (k == 6) token = 256 + next(seed) % (VOCAB - 256);
        if (k == 7) token = VOCAB + MORE - 1 - next(seed) % 2;
        if (allowed(u, token)) return token;
    }
}

struct told {
    struct buf text, reason;
};

static void nowhere(void *ctx, const struct calls_event *ev)
{
    (void)ctx;
    (void)ev;
}

static void tell(void *ctx, const struct calls_event *ev)
{
    struct told *t = ctx;
    buf_put(ev->kind == CALLS_TEXT ? &t->text : &t->reason, ev->text, ev->n);
}

/* One answer; *ended_out: it came to its end. Returns the text; t->reason has the rest. */
static void walk(struct thinker *k, struct guides *g, bool reasoning, uint32_t seed, struct told *t, bool *ended_out)
{
    const struct calls_cfg cfg = { .model = &k->calls, .hidden = true, .sink = tell, .ctx = t };
    struct guide          *u = guide_of(k, reasoning);
    struct calls           p;
    buf_init(&t->text, 1 << 20);
    buf_init(&t->reason, 1 << 20);
    calls_init(&p, &cfg, reasoning);
    *ended_out = false;
    for (int i = 0; i < TOKENS_MAX && !*ended_out; i++) {
        assert_int_equal(guide_state(u), GUIDE_READY);
        uint32_t           token = draw(u, &seed);
        struct token_bytes b = gr_vocab_token(k->vocab, token);
        *ended_out = token == EOS;
        if (*ended_out) break;
        if (calls_mark_of(&k->calls, token) >= 0)
            calls_mark(&p, calls_mark_of(&k->calls, token));
        else
            calls_text(&p, (const char *)b.p, b.n);
        guide_post(g, u, token);
    }
    calls_end(&p);
    calls_free(&p);
    guide_drop(u);
}

static bool is_text(const struct told *t)
{
    if (t->text.n < 2 || t->text.data[0] != 'a') return false;
    for (size_t i = 1; i < t->text.n; i++)
        if (t->text.data[i] != 'b') return false;
    return true;
}

static void walks(const struct calls_row *row, const struct calls_think *think)
{
    struct thinker k;
    struct guides *g = NULL;
    struct ring    wake;
    uint32_t       n_ended = 0, n_thought = 0, n_walk = (uint32_t)test_size(300, 120);
    thinker_open(&k, row, think);
    assert_int_equal(ring_init(&wake, 4), ST_OK);
    assert_int_equal(guides_create(0, 4, &wake, &g), ST_OK);
    for (uint32_t seed = 0; seed < n_walk; seed++) {
        struct told t;
        bool        ended;
        walk(&k, g, think && seed % 2, seed, &t, &ended);
        if (ended && !is_text(&t)) fail_msg("seed %u: '%.*s'", seed, (int)t.text.n, buf_cstr(&t.text));
        n_ended += ended;
        n_thought += ended && t.reason.n > 0;
        buf_free(&t.text);
        buf_free(&t.reason);
    }
    print_message("%u of %u answers ended, %u with reasoning\n", n_ended, n_walk, n_thought);
    assert_true(n_ended > n_walk / 3 && n_thought > n_walk / 30);
    guides_free(g);
    ring_free(&wake);
    thinker_close(&k);
}

static void behind_reasoning_that_ends_with_bytes_comes_what_the_grammar_says(void **state)
{
    (void)state;
    walks(NULL, calls_think_find("think"));
}

static void behind_reasoning_that_ends_with_a_token_comes_what_the_grammar_says(void **state)
{
    static const struct calls_think special = { .name = "t", .start = "<|im_start|>", .stop = "<tool>" };
    (void)state;
    walks(NULL, &special);
}

static void the_final_message_of_harmony_is_what_the_grammar_says(void **state)
{
    (void)state;
    walks(calls_row_find("harmony"), NULL);
}

/* A token inside of reasoning costs no mask; where the next one may end it wrongly there is one. */
static void reasoning_has_a_mask_only_inside_of_a_marker(void **state)
{
    (void)state;
    struct thinker                  k;
    struct guides                  *g = NULL;
    struct ring                     wake;
    uint32_t                        n;
    static const struct calls_think think = { .name = "t",
                                              .start = "<think>",
                                              .stop = "</thinks>" }; /* no token holds it and more */
    thinker_open(&k, NULL, &think);
    assert_int_equal(ring_init(&wake, 4), ST_OK);
    assert_int_equal(guides_create(0, 4, &wake, &g), ST_OK);
    struct guide *u = guide_of(&k, true), *other = guide_fork(u);
    for (const char *c = "So it is. "; *c; c++) {
        guide_post(g, u, (unsigned char)*c);
        guide_mask(u, &n);
        assert_int_equal(n, 0);
    }
    for (const char *c = "</thinks"; *c; c++) {
        guide_post(g, u, (unsigned char)*c);
        guide_mask(u, &n);
        assert_int_equal(n, gr_words(N_TOKEN));
    }
    assert_true(allowed(u, '>') && allowed(u, 'x') && allowed(u, VOCAB) && !allowed(u, VOCAB + 1) && !allowed(u, EOS));
    guide_post(g, u, '>');
    assert_true(allowed(u, 'a') && allowed(u, '\n') && !allowed(u, 'b') && !allowed(u, EOS));
    guide_mask(other, &n);
    assert_int_equal(n, 0);
    guide_drop(u);
    guide_drop(other);
    guides_free(g);
    ring_free(&wake);
    thinker_close(&k);
}

/* ---------------------------------------------------------------- reasoning of a bounded length */

static struct guide *unbound(struct thinker *t, bool reasoning)
{
    struct guide *u = NULL;
    struct gate  *gate = gate_create(&t->gate, NULL, GATE_NONE, reasoning, t->budget);
    assert_int_equal(guide_create(NULL, t->vocab, (uint32_t[]){ EOS }, 1, gate, &u), ST_OK);
    return u;
}

/* The only token that may come; UINT32_MAX: any may, or several. */
static uint32_t only(const struct guide *u)
{
    uint32_t found = UINT32_MAX, n, n_found = 0;
    guide_mask(u, &n);
    for (uint32_t i = 0; n && i < N_TOKEN; i++) {
        if (!allowed(u, i)) continue;
        found = i;
        n_found++;
    }
    return n_found == 1 ? found : UINT32_MAX;
}

/* Draws any tokens of reasoning; the marker must come behind as many of them as the budget allows, unless it came
 * before. Returns how many tokens the forced marker took, or 0. */
static uint32_t think(struct guides *g, struct thinker *k, struct guide *u, bool reasoning, uint32_t seed)
{
    const struct calls_cfg cfg = { .model = &k->calls, .hidden = true, .sink = nowhere };
    struct calls           p;
    uint32_t               n_reason = 0, n_forced = 0;
    calls_init(&p, &cfg, reasoning);
    for (int i = 0; i < 100; i++) {
        bool     thinks = calls_reasoning(&p), over = thinks && n_reason >= k->budget;
        uint32_t token = only(u);
        if (thinks && over != (token != UINT32_MAX)) fail_msg("seed %u: %u tokens, forced %u", seed, n_reason, token);
        if (over) n_forced++;
        if (!over) token = draw(u, &seed);
        if (token == EOS) break;
        n_reason += thinks;
        struct token_bytes b = gr_vocab_token(k->vocab, token);
        if (calls_mark_of(&k->calls, token) >= 0)
            calls_mark(&p, calls_mark_of(&k->calls, token));
        else
            calls_text(&p, (const char *)b.p, b.n);
        guide_post(g, u, token);
        if (over && !calls_reasoning(&p)) break;
        if (n_forced > strlen(k->calls.think->stop)) fail_msg("seed %u: the marker does not end reasoning", seed);
    }
    calls_free(&p);
    return n_forced;
}

static void thinking_ends_behind_its_budget(const struct calls_think *how, uint32_t n_least, uint32_t n_most)
{
    struct thinker k;
    struct guides *g = NULL;
    struct ring    wake;
    uint32_t       n_cut = 0, n_walk = (uint32_t)test_size(300, 120);
    thinker_open(&k, NULL, how);
    assert_true(gate_model_stops(&k.gate));
    assert_int_equal(ring_init(&wake, 4), ST_OK);
    assert_int_equal(guides_create(0, 4, &wake, &g), ST_OK);
    for (uint32_t seed = 0; seed < n_walk; seed++) {
        bool reasoning = seed % 2, bound = seed % 4 > 1;
        k.budget = seed / 4 % 9;
        struct guide *u = bound ? guide_of(&k, reasoning) : unbound(&k, reasoning);
        struct guide *other = guide_fork(u);
        uint32_t      n = think(g, &k, u, reasoning, seed);
        if (n && (n < n_least || n > n_most)) fail_msg("seed %u: a marker of %u tokens", seed, n);
        if (n && bound) assert_true(allowed(u, 'a') && !allowed(u, 'b') && !allowed(u, EOS));
        if (n && !bound) assert_true(allowed(u, 'b') && guide_may_end(u));
        n_cut += n > 0;
        n = think(g, &k, other, reasoning, seed + 1); /* its budget is its own */
        n_cut += n > 0;
        guide_drop(u);
        guide_drop(other);
    }
    print_message("%u of %u texts of reasoning came to their budget\n", n_cut, 2 * n_walk);
    assert_true(n_cut > n_walk / 2);
    guides_free(g);
    ring_free(&wake);
    thinker_close(&k);
}

static void the_token_that_ends_reasoning_comes_behind_its_budget(void **state)
{
    static const struct calls_think special = { .name = "t", .start = "<|im_start|>", .stop = "<tool>" };
    (void)state;
    thinking_ends_behind_its_budget(&special, 1, 1);
}

static void the_bytes_that_end_reasoning_come_behind_its_budget(void **state)
{
    (void)state;
    thinking_ends_behind_its_budget(calls_think_find("think"), 1, 8);
}

/* No token holds the letter behind which the marker cannot go on. */
static void a_marker_that_cannot_be_spelled_is_not_forced(void **state)
{
    (void)state;
    struct thinker     k;
    struct token_bytes few[N_TOKEN] = { [1] = { (const unsigned char *)"</think", 7 } };
    thinker_open(&k, NULL, calls_think_find("think"));
    gr_vocab_free(k.vocab);
    assert_int_equal(gr_vocab_create(few, N_TOKEN, &k.vocab), ST_OK);
    free((void *)(uintptr_t)k.gate.odd);
    k.gate = (struct gate_model){ .calls = &k.calls, .tok = world.tok, .vocab = k.vocab };
    assert_int_equal(gate_model_scan(&k.gate), ST_OK);
    assert_false(gate_model_stops(&k.gate));
    thinker_close(&k);
    thinker_open(&k, calls_row_find("harmony"), NULL);
    assert_false(gate_model_stops(&k.gate));
    thinker_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behind_reasoning_that_ends_with_bytes_comes_what_the_grammar_says),
        cmocka_unit_test(behind_reasoning_that_ends_with_a_token_comes_what_the_grammar_says),
        cmocka_unit_test(the_final_message_of_harmony_is_what_the_grammar_says),
        cmocka_unit_test(reasoning_has_a_mask_only_inside_of_a_marker),
        cmocka_unit_test(the_token_that_ends_reasoning_comes_behind_its_budget),
        cmocka_unit_test(the_bytes_that_end_reasoning_come_behind_its_budget),
        cmocka_unit_test(a_marker_that_cannot_be_spelled_is_not_forced),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
