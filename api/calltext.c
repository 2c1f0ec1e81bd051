#include "api/calltext.h"
#include "api/lang/lark.h"
#include "api/schema/regex.h"
#include <string.h>

_Static_assert((int)CALLVALUE_ERR >= (int)EBNF_ERR && (int)CALLVALUE_ERR >= (int)REGEX_ERR, "err takes any of theirs");

/* Texts that do not end the argument. */
static uint32_t without_stops(struct rx *x, const struct callvalue_form *f)
{
    uint32_t r = RX_ALL;
    for (uint32_t i = 0; i < f->n_stop; i++) {
        uint32_t stop = rx_of_bytes(x, f->stop[i], strlen(f->stop[i]));
        r = rx_and2(x, r, rx_not(x, rx_cat(x, RX_ALL, rx_cat(x, stop, RX_ALL))));
    }
    return r;
}

enum status calltext_rules(struct gr_rules *r, const struct calls_tool *tool, const struct callvalue_form *f,
                           uint32_t *symbol_out, char err[CALLVALUE_ERR])
{
    struct rx *x = gr_rx(r);
    uint32_t   text = RX_NONE, within = f->quoted ? RX_ALL : without_stops(x, f);
    if (!tool->regex) return lark_rules_inside(r, tool->grammar, tool->n_grammar, f->quoted, within, symbol_out, err);
    struct regex_form form = { .search = false, .json = f->quoted };
    enum status       st = regex_rx(x, tool->grammar, tool->n_grammar, form, &text, err);
    if (!st) *symbol_out = gr_terminal(r, rx_and2(x, text, within));
    return st;
}
