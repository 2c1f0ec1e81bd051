/* Random grammars as text, beside an oracle that knows languages as sets of short texts alone. */
#include "api/lang/gbnf.h"
#include "api/lang/lark.h"
#include "base/buf.h"
#include "base/hash.h"
#include "grammar_world.h"

/* ---- sets of texts of up to LONG letters a and b: text t is the bits of t behind its highest one */

enum { LONG = 5, TEXTS = 2 << LONG, RULES = 3, NODES = 200 };

struct texts {
    bool in[TEXTS];
};

static int len_of(uint32_t t)
{
    int n = 0;
    while (t > 1) {
        t >>= 1;
        n++;
    }
    return n;
}

static struct texts joined(const struct texts *a, const struct texts *b)
{
    struct texts r = { { false } };
    for (uint32_t i = 1; i < TEXTS; i++)
        for (uint32_t k = 1; a->in[i] && k < TEXTS; k++)
            if (b->in[k] && len_of(i) + len_of(k) <= LONG) r.in[i << len_of(k) | (k ^ 1u << len_of(k))] = true;
    return r;
}

/* ---- random expressions */

enum kind { LITERAL, CLASS, REF, CAT, OR, REPEAT };
struct node {
    enum kind kind;
    uint32_t  a, b, min, max; /* LITERAL: a text; CLASS: bit 0: a, bit 1: b; REF: a rule */
};
struct world {
    struct node  node[NODES];
    uint32_t     n, dice, root[RULES];
    struct texts rule[RULES];
    bool         lark;
};

static uint32_t below(struct world *w, uint32_t n) { return (uint32_t)(hash_u64(++w->dice) % n); }

static uint32_t random_node(struct world *w, int depth)
{
    uint32_t    at = w->n++, k = depth == 0 || w->n > NODES - 20 ? below(w, 3) : below(w, 6);
    struct node n = { .kind = (enum kind)k };
    switch (n.kind) {
    case LITERAL: n.a = 2 + below(w, 6); break;
    case CLASS: n.a = 1 + below(w, 3); break;
    case REF: n.a = below(w, RULES); break;
    case CAT:
    case OR:
        n.a = random_node(w, depth - 1);
        n.b = random_node(w, depth - 1);
        break;
    case REPEAT:
        n.a = random_node(w, depth - 1);
        n.min = below(w, 3);
        n.max = below(w, 2) ? n.min + 1 + below(w, 3) : RX_MANY;
        break;
    }
    w->node[at] = n;
    return at;
}

static struct texts texts_of(const struct world *w, uint32_t at)
{
    struct node  n = w->node[at];
    struct texts r = { { false } }, a, b;
    switch (n.kind) {
    case LITERAL: r.in[n.a] = true; break;
    case CLASS:
        r.in[2] = n.a & 1;
        r.in[3] = n.a & 2;
        break;
    case REF: return w->rule[n.a];
    case CAT:
        a = texts_of(w, n.a);
        b = texts_of(w, n.b);
        return joined(&a, &b);
    case OR:
        a = texts_of(w, n.a);
        b = texts_of(w, n.b);
        for (int t = 0; t < TEXTS; t++) r.in[t] = a.in[t] || b.in[t];
        break;
    case REPEAT:
        a = texts_of(w, n.a);
        b = (struct texts){ { false } };
        b.in[1] = true;
        /* More than LONG of them are as LONG, once the empty text is seen to. */
        for (uint32_t i = 0; i <= n.min + LONG + 1 && (n.max == RX_MANY || i <= n.max); i++) {
            for (int t = 0; t < TEXTS; t++) r.in[t] = r.in[t] || (i >= n.min && b.in[t]);
            b = joined(&b, &a);
        }
        break;
    }
    return r;
}

static const char *rule_name(const struct world *w, uint32_t r)
{
    if (r == 0) return w->lark ? "start" : "root";
    return r == 1 ? "r" : "s";
}

static void put_node(const struct world *w, uint32_t at, struct buf *out)
{
    struct node n = w->node[at];
    switch (n.kind) {
    case LITERAL:
        buf_putc(out, '"');
        for (int i = len_of(n.a); i-- > 0;) buf_putc(out, n.a >> i & 1 ? 'b' : 'a');
        buf_putc(out, '"');
        break;
    case CLASS: buf_printf(out, w->lark ? "/[%s%s]/" : "[%s%s]", n.a & 1 ? "a" : "", n.a & 2 ? "b" : ""); break;
    case REF: buf_puts(out, rule_name(w, n.a)); break;
    case CAT:
        buf_puts(out, "(");
        put_node(w, n.a, out);
        buf_puts(out, " ");
        put_node(w, n.b, out);
        buf_puts(out, ")");
        break;
    case OR:
        buf_puts(out, "(");
        put_node(w, n.a, out);
        buf_puts(out, " | ");
        put_node(w, n.b, out);
        buf_puts(out, ")");
        break;
    case REPEAT:
        put_node(w, n.a, out);
        if (n.max == RX_MANY)
            buf_printf(out, "{%u,}", n.min);
        else
            buf_printf(out, "{%u,%u}", n.min, n.max);
        break;
    }
}

/* Sets grow until nothing changes. */
static void fill(struct world *w)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int r = 0; r < RULES; r++) {
            struct texts now = texts_of(w, w->root[r]);
            changed = changed || memcmp(&now, &w->rule[r], sizeof now) != 0;
            w->rule[r] = now;
        }
    }
}

/* Returns how many texts the grammar has. */
static uint32_t compare(uint32_t seed, bool lark)
{
    struct world     w = { .dice = seed * 1000, .lark = lark };
    struct gr_rules *rules = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    struct buf       text;
    char             err[EBNF_ERR], word[LONG + 1];
    uint32_t         symbol, n_text = 0;
    for (int r = 0; r < RULES; r++) w.root[r] = random_node(&w, 3);
    fill(&w);
    buf_init(&text, 1 << 16);
    for (int r = 0; r < RULES; r++) {
        buf_printf(&text, "%s %s ", rule_name(&w, (uint32_t)r), lark ? ":" : "::=");
        put_node(&w, w.root[r], &text);
        buf_putc(&text, '\n');
    }
    enum status st = (lark ? lark_rules : gbnf_rules)(rules, text.data, text.n, NULL, &symbol, err);
    if (st) fail_msg("seed %u: %.*s: %s", seed, (int)text.n, text.data, err);
    gr_build(rules, symbol, &g, err);
    for (uint32_t t = 1; t < TEXTS; t++) {
        int n = len_of(t);
        for (int i = 0; i < n; i++) word[i] = t >> (n - 1 - i) & 1 ? 'b' : 'a';
        word[n] = 0;
        bool is = g && verdict(g, word) == 'y';
        n_text += is;
        if (is != w.rule[0].in[t]) fail_msg("seed %u: '%s' is %d: %.*s", seed, word, is, (int)text.n, text.data);
    }
    gr_free(g);
    buf_free(&text);
    return n_text;
}

static void random_grammars_have_the_texts_of_the_oracle(void **state)
{
    (void)state;
    uint32_t n_text = 0;
    for (uint32_t seed = 0; seed < 400; seed++) n_text += compare(seed, seed % 2);
    assert_true(n_text > 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_grammars_have_the_texts_of_the_oracle) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
