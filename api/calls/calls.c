#include "api/calls/calls_impl.h"
#include <string.h>

/* One byte at a time: machines (CS_JSON and so on) take it as it is; elsewhere it may belong to a marker of the state,
 * so it is held until that is certain. */

enum {
    RAW_MAX = CALLS_ARGS_MAX + (64 << 10), /* what may be kept before it is a call */
    LABEL_MAX = 64,
    HEADER_BYTES_MAX = 512,
    HEADER_TOKENS_MAX = 64,
    RUN_MAX = 64 << 20,
};

static bool is_machine(uint8_t state) { return state >= CS_MACHINES; }
static bool is_free(uint8_t state) { return state == CS_TEXT || state == CS_REASON; }
static bool is_gap(uint8_t state) { return state >= CS_BETWEEN && state <= CS_CLOSER; }

/* ---------------------------------------------------------------- a state's bytes */

/* Blanks before the first text, and behind a call, are held: calls may follow them. */
static void text_byte(struct calls *p, char c)
{
    bool blank = calls_blank(c);
    if (p->skip_newlines && c == '\n') return;
    p->skip_newlines = false;
    p->last = c;
    if (p->quiet && blank && p->n_blank < sizeof p->blank) {
        p->blank[p->n_blank++] = c;
        return;
    }
    if (p->quiet) calls_put_blanks(p);
    if (!blank) p->said = true;
    calls_put(p, CALLS_TEXT, &c, 1);
}

/* The state is new: what its bytes fill is empty. */
static void enter(struct calls *p, uint8_t state)
{
    p->state = state;
    if (state == CS_REASON) p->thought = true;
    if (state == CS_NAME) p->n_name = 0;
    if (state == CS_KEY) p->n_key = 0;
    if (state == CS_LABEL) p->n_key = 0;
    if (state == CS_HEADER) {
        buf_clear(&p->value);
        p->n_token = 0;
    }
    if (state == CS_VALUE) calls_value_begin(p);
    if (is_machine(state)) p->m = (struct calls_machine){ .list = state == CS_LIST };
}

/* c belongs to no marker. */
static void sink_byte(struct calls *p, char c)
{
    bool fits = true;
    if (p->holding) {
        fits = p->raw.n < RAW_MAX;
        buf_put(&p->raw, &c, 1);
    }
    switch (p->state) {
    case CS_TEXT: text_byte(p, c); return;
    case CS_REASON: calls_put(p, CALLS_REASON, &c, 1); return;
    case CS_NAME:
        fits = fits && p->n_name < CALLS_NAME_MAX;
        if (fits) p->name[p->n_name++] = c;
        break;
    case CS_KEY:
        fits = fits && p->n_key < CALLS_NAME_MAX;
        if (fits) p->key[p->n_key++] = c;
        break;
    case CS_LABEL: fits = fits && p->n_key++ < LABEL_MAX; break;
    case CS_VALUE: fits = calls_value_byte(p, c); break;
    case CS_BODY: fits = calls_arg(p, &c, 1); break;
    case CS_HEADER:
        fits = p->value.n < HEADER_BYTES_MAX && p->n_token <= HEADER_TOKENS_MAX;
        buf_put(&p->value, &c, 1);
        break;
    default: fits = fits && calls_blank(c);
    }
    if (fits) return;
    bool lost = p->opened; /* then c is in no raw text */
    calls_give_up(p);
    if (lost) text_byte(p, c);
}

/* ---------------------------------------------------------------- markers */

/* Without tools nothing leads into a call. */
static bool counts(const struct calls *p, const struct calls_step *x)
{
    return p->cfg.tools || is_free(x->to) || x->to == CS_ENDING || p->cfg.model->row->thinks;
}

/* A step out of text, or out of what may be its end, into a call. */
static bool begins_call(const struct calls_step *x)
{
    bool inside = is_gap(x->from) && x->from != CS_ENDING;
    return !is_free(x->to) && x->to != CS_ENDING && !(inside && is_gap(x->to)) && !(x->act & CA_DROP);
}

static bool may(const struct calls *p, const struct calls_step *x)
{
    if (x->from != p->state) return false;
    if (x->act & CA_FIRST && p->said) return false;
    if (x->act & CA_LINE && !p->quiet && p->last != '\n') return false;
    if (x->act & CA_THOUGHT && !p->thought) return false;
    if (x->act & CA_TAG && x->to == CS_ENDING && !p->tagged) return false;
    return counts(p, x);
}

static const struct calls_step *step_of(const struct calls *p, int mark)
{
    const struct calls_model *m = p->cfg.model;
    for (uint32_t i = 0; i < m->n_step; i++)
        if (m->step[i].mark == mark && may(p, &m->step[i])) return &m->step[i];
    return NULL;
}

/* What is held: a whole marker (the step it makes), the beginning of one, or neither. */
static const struct calls_step *match(const struct calls *p, bool *begins_out)
{
    const struct calls_model *m = p->cfg.model;
    *begins_out = false;
    for (uint32_t i = 0; i < m->n_step; i++) {
        const struct calls_step *x = &m->step[i];
        if (x->from != p->state || x->mark == CALLS_DONE) continue;
        uint32_t    n = m->mark[x->mark].n;
        const char *text = m->mark[x->mark].text;
        bool        token = m->mark[x->mark].by_id && m->mark[x->mark].id != UINT32_MAX;
        if (token || p->n_held > n || *text != *p->held || memcmp(text, p->held, p->n_held) != 0) continue;
        if (!may(p, x)) continue;
        if (p->n_held == n) return x;
        *begins_out = true;
    }
    return NULL;
}

static void byte(struct calls *p, char c);

static void after_machine(struct calls *p)
{
    const struct calls_step *x = step_of(p, CALLS_DONE);
    enter(p, x ? x->to : CS_AFTER);
}

static void fire(struct calls *p, const struct calls_step *x)
{
    const struct calls_model *m = p->cfg.model;
    const char               *text = m->mark[x->mark].text;
    uint32_t                  n = m->mark[x->mark].n;
    unsigned                  act = x->act;
    bool                      shows = !(p->cfg.hidden && m->mark[x->mark].special), good = true;
    bool                      begins = begins_call(x), between = !p->holding && !p->opened;
    if (x->from == CS_REASON || x->from == CS_ENDING || (begins && between)) p->left = x->mark;
    if (begins || x->to == CS_ENDING) calls_hold(p);
    if (p->holding && shows && !(act & CA_REDO)) buf_put(&p->raw, text, n);
    if (act & CA_VALUE) good = calls_value_end(p);
    if (good && act & CA_KEY) good = calls_key_end(p);
    if (good && act & CA_OPEN) good = calls_open(p);
    if (!good) {
        calls_give_up(p);
        return;
    }
    if (act & CA_CLOSE && p->opened) calls_close(p);
    uint8_t to = x->to;
    if (act & CA_HEADER) {
        to = calls_header_end(p);
        if (to == CS_BODY && !calls_open(p)) to = CS_TEXT;
        if (to != CS_BODY) calls_drop_raw(p);
    }
    if (is_free(to)) {
        if (p->holding) calls_drop_raw(p);
        if (act & CA_TRIM) p->skip_newlines = true;
        if (act & CA_FIRST || act & CA_TRIM) p->n_blank = 0;
        if (act & CA_TAG) p->tagged = true;
    }
    enter(p, to);
    if (act & CA_TEXT) p->kinds = CALLS_STRING;
    if (act & CA_DATA) p->kinds = CALLS_ANY;
    if (act & CA_BARE) p->m.bare = true;
    if (!(act & CA_REDO)) return;
    for (uint32_t i = 0; i < n; i++) byte(p, text[i]);
}

/* Gives away what is held and can be no marker. last: nothing can complete it any more. */
static void settle(struct calls *p, bool last)
{
    while (p->n_held && !p->done) {
        bool begins;
        p->n_look++;
        const struct calls_step *x = match(p, &begins);
        if (x) {
            p->n_held = 0;
            fire(p, x);
            return;
        }
        if (begins && !last) return;
        if (is_gap(p->state) && !p->holding && !p->opened && !calls_blank(*p->held)) {
            p->state = CS_TEXT; /* whose markers are others */
            continue;
        }
        char c = *p->held;
        memmove(p->held, p->held + 1, --p->n_held);
        if (is_machine(p->state))
            byte(p, c);
        else
            sink_byte(p, c);
    }
}

static void machine_byte(struct calls *p, char c)
{
    enum calls_verdict v = CALLS_WRONG;
    bool               fits = !p->holding || p->raw.n < RAW_MAX;
    if (p->holding) buf_put(&p->raw, &c, 1);
    if (fits) {
        switch (p->state) {
        case CS_JSON: v = calls_json_byte(p, c); break;
        case CS_CALL:
        case CS_LIST: v = calls_object_byte(p, c); break;
        case CS_PYTHON: v = calls_python_byte(p, c); break;
        default: v = calls_gemma_byte(p, c);
        }
    }
    if (v == CALLS_MORE) return;
    if (v == CALLS_READY || v == CALLS_OVER) {
        after_machine(p);
        if (v == CALLS_OVER) byte(p, c);
        return;
    }
    bool lost = !p->holding;
    if (lost && !p->opened) { /* behind a call of a list: this byte belongs to no other */
        p->state = CS_TEXT;
        byte(p, c);
        return;
    }
    calls_give_up(p);
    if (lost) text_byte(p, c);
}

static void byte(struct calls *p, char c)
{
    if (p->done) return;
    p->n_look++;
    if (is_machine(p->state)) {
        machine_byte(p, c);
        return;
    }
    unsigned char u = (unsigned char)c;
    if (!p->n_held && !is_gap(p->state) && !(p->cfg.model->first[p->state][u / 8] >> u % 8 & 1)) {
        sink_byte(p, c);
        return;
    }
    p->held[p->n_held++] = c;
    settle(p, false);
}

/* ---------------------------------------------------------------- the face */

void calls_init(struct calls *p, const struct calls_cfg *cfg, bool reasoning)
{
    *p = (struct calls){ .cfg = *cfg, .quiet = true, .last = '\n' };
    buf_init(&p->raw, RAW_MAX + CALLS_MARK_BYTES + 1);
    buf_init(&p->run, RUN_MAX);
    buf_init(&p->args, CALLS_ARGS_MAX);
    buf_init(&p->value, CALLS_ARGS_MAX + HEADER_BYTES_MAX);
    buf_init(&p->keys, CALLS_KEYS_MAX * sizeof(uint64_t));
    if (reasoning && cfg->model->think) enter(p, CS_REASON);
    if (!cfg->model->row || !cfg->model->row->thinks) return;
    calls_hold(p); /* the prompt ends inside a header */
    enter(p, CS_HEADER);
}

void calls_text(struct calls *p, const char *s, size_t n)
{
    p->n_token++;
    for (size_t i = 0; i < n; i++) byte(p, s[i]);
    calls_flush(p);
}

size_t calls_text_free(struct calls *p, enum calls_free what, const char *s, size_t n)
{
    size_t i = 0;
    p->n_token++;
    for (; i < n && calls_is_free(p, what); i++) byte(p, s[i]);
    calls_flush(p);
    return i;
}

void calls_mark(struct calls *p, int mark)
{
    const struct calls_model *m = p->cfg.model;
    bool                      shows = !(p->cfg.hidden && m->mark[mark].special);
    p->n_token++;
    settle(p, true);
    if (p->done) return;
    const struct calls_step *x = step_of(p, mark);
    if (!x && is_gap(p->state) && !p->holding && !p->opened) {
        uint8_t gap = p->state;
        p->state = CS_TEXT;
        x = step_of(p, mark);
        if (!x && !shows) p->state = gap;
    }
    if (x) {
        fire(p, x);
    } else if (is_machine(p->state)) {
        for (uint32_t i = 0; i < m->mark[mark].n; i++) byte(p, m->mark[mark].text[i]);
    } else if (p->state == CS_HEADER && !shows) {
        buf_put(&p->value, m->mark[mark].text, m->mark[mark].n);
    } else if (shows || p->state == CS_VALUE || p->state == CS_BODY) {
        for (uint32_t i = 0; i < m->mark[mark].n; i++) sink_byte(p, m->mark[mark].text[i]);
    }
    calls_flush(p);
}

void calls_end(struct calls *p)
{
    settle(p, true);
    if (!p->done && p->state == CS_ENDING)
        calls_drop_raw(p);
    else if (!p->done && (p->opened || p->holding))
        calls_give_up(p);
    if (p->quiet && !p->n_call && p->n_blank) calls_put_blanks(p);
    calls_flush(p);
    p->done = true;
}

bool calls_reasoning(const struct calls *p) { return p->state == CS_REASON; }

bool calls_is_free(const struct calls *p, enum calls_free what)
{
    if (what == CALLS_FREE_REASON) return p->state == CS_REASON;
    if (p->state == CS_ENDING) return true;
    return !p->holding && !p->opened && (is_free(p->state) || is_gap(p->state));
}

/* Whether it is outside of all calls that a call begins. */
static bool leaves_text(const struct calls_step *x)
{
    bool outside = is_free(x->from) || x->from == CS_AFTER || x->from == CS_ENDING;
    return outside && begins_call(x);
}

bool calls_leaves(const struct calls *p, enum calls_free what, uint32_t mark, uint32_t *n_begun_out)
{
    const struct calls_model *m = p->cfg.model;
    bool                      leaves = false;
    for (uint32_t i = 0; i < m->n_step; i++) {
        const struct calls_step *x = &m->step[i];
        bool ends = what == CALLS_FREE_REASON ? x->from == CS_REASON && x->to != CS_REASON : leaves_text(x);
        leaves = leaves || (ends && x->mark == mark && counts(p, x));
    }
    bool begun = p->n_held <= m->mark[mark].n && memcmp(m->mark[mark].text, p->held, p->n_held) == 0;
    *n_begun_out = begun ? p->n_held : 0;
    return leaves;
}

bool calls_mark_begins(const struct calls_model *m, uint32_t mark)
{
    for (uint32_t i = 0; i < m->n_step; i++)
        if (m->step[i].mark == mark && leaves_text(&m->step[i])) return true;
    return false;
}

bool calls_have_marks(const struct calls_model *m)
{
    bool any = false;
    for (uint32_t i = 0; i < m->n_step; i++) {
        if (!leaves_text(&m->step[i])) continue;
        if (m->step[i].act & CA_REDO) return false;
        any = true;
    }
    return any && !m->row->thinks;
}

const struct calls_tool *calls_args_begin(const struct calls *p)
{
    const struct calls_tool *t = NULL;
    if (!p->cfg.tools || p->done || p->n_call >= CALLS_MAX) return NULL;
    if (p->state == CS_CALL) t = calls_object_begins(p);
    if (p->state == CS_PYTHON) t = calls_python_begins(p);
    if (p->state == CS_BODY && p->opened && !p->n_arg) t = p->tool;
    return t && t->allowed ? t : NULL;
}

size_t calls_text_args(struct calls *p, const char *s, size_t n)
{
    size_t i = 0;
    p->n_token++;
    do byte(p, s[i++]);
    while (i < n && !calls_args_begin(p));
    calls_flush(p);
    return i;
}

uint32_t calls_args_leads(const struct calls *p, struct calls_lead *out)
{
    if (!p->cfg.tools || p->done || p->n_call >= CALLS_MAX) return 0;
    if (p->state == CS_CALL) return calls_object_leads(p, out);
    return p->state == CS_PYTHON ? calls_python_leads(p, out) : 0;
}

bool calls_passes_lead(const struct calls_model *m, const char *s, size_t n)
{
    bool passes = false;
    for (uint32_t i = 0; i < m->n_step && !calls_have_marks(m); i++) {
        passes = passes || (m->step[i].to == CS_CALL && calls_object_passes(s, n));
        passes = passes || (m->step[i].to == CS_PYTHON && calls_python_passes(s, n));
    }
    return passes;
}

void calls_free(struct calls *p)
{
    buf_free(&p->raw);
    buf_free(&p->run);
    buf_free(&p->args);
    buf_free(&p->value);
    buf_free(&p->keys);
}
