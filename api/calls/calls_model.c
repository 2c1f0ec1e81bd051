#include "api/calls/calls_impl.h"
#include "base/check.h"
#include <string.h>

/* A row and the markers of reasoning become one table of steps, with the tokens of a model's tokenizer. */

static uint8_t add_mark(struct calls_model *m, const struct tok *tok, const char *text, bool by_id)
{
    uint32_t i = m->n_mark, n = (uint32_t)strlen(text), id;
    for (uint32_t k = 0; k < i; k++)
        if (!strcmp(m->mark[k].text, text)) return (uint8_t)k;
    CHECK(i < CALLS_MARKS_MAX && n && n <= CALLS_MARK_BYTES);
    m->mark[i].text = text;
    m->mark[i].n = n;
    m->mark[i].by_id = by_id;
    m->mark[i].id = UINT32_MAX;
    if (tok && tok_id_of(tok, text, n, &id) && tok_is_added(tok, id)) {
        m->mark[i].id = id;
        m->mark[i].special = tok_is_special(tok, id);
    }
    m->n_mark++;
    return (uint8_t)i;
}

static void add_step(struct calls_model *m, unsigned from, unsigned mark, unsigned to, unsigned act)
{
    CHECK(m->n_step < CALLS_RULES_MAX && from < CS_STATES && to < CS_STATES);
    m->step[m->n_step++] = (struct calls_step){ (uint8_t)from, (uint8_t)mark, (uint8_t)to, (uint16_t)act };
    if (mark == CALLS_DONE) return;
    unsigned char c = (unsigned char)*m->mark[mark].text;
    m->first[from][c / 8] |= (uint8_t)(1u << c % 8);
}

/* The markers of reasoning, in one spelling. */
static void add_think(struct calls_model *m, const struct tok *tok, const char *start, const char *stop)
{
    uint8_t begin = add_mark(m, tok, start, false), end = add_mark(m, tok, stop, false);
    add_step(m, CS_TEXT, begin, CS_REASON, CA_FIRST);
    add_step(m, CS_TEXT, end, CS_TEXT, CA_FIRST | CA_TRIM);
    add_step(m, CS_REASON, begin, CS_REASON, 0);
    add_step(m, CS_REASON, end, CS_TEXT, CA_TRIM);
}

void calls_model_init(struct calls_model *m, const struct calls_row *row, const struct calls_think *think,
                      const struct tok *tok)
{
    CHECK((int)CS_STATES <= (int)CALLS_STATES_MAX);
    *m = (struct calls_model){ .row = row, .think = row && row->thinks ? NULL : think };
    for (uint32_t i = 0; row && i < sizeof row->mark / sizeof *row->mark && row->mark[i]; i++)
        CHECK(add_mark(m, tok, row->mark[i], row->by_id >> i & 1) == i);
    if (m->think) add_think(m, tok, think->start, think->stop);
    if (m->think && think->stop_too) add_think(m, tok, think->start_too, think->stop_too);
    const size_t n_max = row ? sizeof row->step / sizeof *row->step : 0;
    for (size_t i = 0; i < n_max && (row->step[i].from || row->step[i].mark || row->step[i].to); i++) {
        const struct calls_step *x = &row->step[i];
        add_step(m, x->from, x->mark, x->to, x->act);
        /* a call ends reasoning that was left open; what needs a place in the text to be a call does not */
        bool begins = x->from == CS_TEXT && x->to != CS_TEXT && x->to != CS_ENDING && !(x->act & (CA_FIRST | CA_LINE));
        if (begins && m->think) add_step(m, CS_REASON, x->mark, x->to, x->act);
    }
}

int calls_mark_of(const struct calls_model *m, uint32_t id)
{
    for (uint32_t i = 0; i < m->n_mark; i++)
        if (m->mark[i].id == id) return (int)i;
    return -1;
}

bool calls_part_of_mark(const struct calls_model *m, const char *text, size_t n)
{
    for (uint32_t i = 0; n && i < m->n_mark; i++)
        if (memmem(m->mark[i].text, m->mark[i].n, text, n)) return true;
    return false;
}

bool calls_thinks(const struct calls_model *m) { return m->think || (m->row && m->row->thinks); }

enum calls_ids calls_id_style(const struct calls_model *m)
{
    return m->row ? (enum calls_ids)m->row->ids : CALLS_ID_PLAIN;
}
