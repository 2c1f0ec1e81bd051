#include "api/markup.h"
#include "api/calls/calls_row.h"
#include "base/check.h"
#include <string.h>

enum { NEWLINES_MAX = 2, SYMBOLS_MAX = 12 };

static uint32_t number_of(const struct calls_model *m, const char *text)
{
    uint32_t i = 0;
    while (i < m->n_mark && strcmp(m->mark[i].text, text) != 0) i++;
    CHECK(i < m->n_mark);
    return i;
}

uint32_t markup_text(struct gr_rules *r, const char *text, size_t n)
{
    return gr_terminal(r, rx_of_bytes(gr_rx(r), text, n));
}

uint32_t markup_mark(struct gr_rules *r, const struct calls_model *m, const char *text, bool spelled)
{
    uint32_t i = number_of(m, text);
    bool     token = m->mark[i].id != UINT32_MAX, bytes = !token || (spelled && !m->mark[i].by_id);
    if (!bytes) return gr_token(r, m->mark[i].id);
    uint32_t text_symbol = markup_text(r, text, m->mark[i].n);
    if (!token) return text_symbol;
    uint32_t rule = gr_rule(r), token_symbol = gr_token(r, m->mark[i].id);
    gr_alt(r, rule, &token_symbol, 1);
    gr_alt(r, rule, &text_symbol, 1);
    return rule;
}

/* Some newlines, which the reader of answers drops behind reasoning. */
static uint32_t newlines(struct gr_rules *r)
{
    struct rx *x = gr_rx(r);
    return gr_terminal(r, rx_repeat(x, rx_of_byte(x, '\n'), 0, NEWLINES_MAX));
}

/* The bytes behind the start of reasoning in the token that completes it. */
static uint32_t thought(struct gr_rules *r, const char *stop)
{
    struct rx *x = gr_rx(r);
    uint32_t   end = rx_cat(x, RX_ALL, rx_cat(x, rx_of_bytes(x, stop, strlen(stop)), RX_ALL));
    return gr_terminal(r, rx_not(x, end));
}

static uint32_t either(struct gr_rules *r, uint32_t text, uint32_t calls)
{
    uint32_t rule = gr_rule(r);
    if (text != MARKUP_NONE) gr_alt(r, rule, &text, 1);
    if (calls != MARKUP_NONE) gr_alt(r, rule, &calls, 1);
    return rule;
}

static uint32_t think_answer(struct gr_rules *r, const struct calls_model *m, uint32_t text, uint32_t calls,
                             bool begins)
{
    uint32_t rule = gr_rule(r), answer = either(r, text, calls);
    uint32_t behind[] = { markup_mark(r, m, m->think->stop, true), newlines(r), answer };
    gr_alt(r, rule, behind, 3);
    if (begins) {
        uint32_t before[] = { markup_mark(r, m, m->think->start, true), thought(r, m->think->stop) };
        gr_alt(r, rule, before, 2);
        gr_alt(r, rule, &answer, 1);
    } else if (calls != MARKUP_NONE) {
        gr_alt(r, rule, &calls, 1);
    }
    return rule;
}

/* ---------------------------------------------------------------- harmony */

/* Adds to a rule a sequence of markers (as the row spells them) and other text, and one symbol behind it; `last` 0:
 * none. */
static void add_sequence(struct gr_rules *r, const struct calls_model *m, uint32_t rule, const char *const *part,
                         size_t n, const uint32_t *last)
{
    uint32_t symbol[SYMBOLS_MAX];
    CHECK(n < SYMBOLS_MAX);
    for (size_t i = 0; i < n; i++)
        symbol[i] = part[i][0] == '<' ? markup_mark(r, m, part[i], false) : markup_text(r, part[i], strlen(part[i]));
    if (last) symbol[n++] = *last;
    gr_alt(r, rule, symbol, (uint32_t)n);
}
#define SEQUENCE(rule, last, ...)                                  \
    add_sequence(r, m, rule, (const char *const[]){ __VA_ARGS__ }, \
                 sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), last)

static uint32_t harmony_answer(struct gr_rules *r, const struct calls_model *m, uint32_t text, uint32_t calls,
                               bool begins)
{
    uint32_t rule = gr_rule(r), message = gr_rule(r);
    if (text != MARKUP_NONE) {
        SEQUENCE(message, &text, "<|channel|>", "final", "<|message|>");
        SEQUENCE(message, &text, "<|channel|>", "final ", "<|constrain|>", "json", "<|message|>");
    }
    if (calls != MARKUP_NONE) gr_alt(r, message, &calls, 1);
    SEQUENCE(rule, &message, "<|end|>", "<|start|>", "assistant");
    if (!begins) return rule;
    gr_alt(r, rule, &message, 1);
    SEQUENCE(rule, NULL, "<|channel|>", "analysis", "<|message|>");
    return rule;
}

uint32_t markup_answer(struct gr_rules *r, const struct calls_model *m, uint32_t text, uint32_t calls,
                       enum markup_start start)
{
    bool begins = start == MARKUP_BEFORE;
    if (start == MARKUP_PLAIN) return either(r, text, calls);
    return m->think ? think_answer(r, m, text, calls, begins) : harmony_answer(r, m, text, calls, begins);
}
