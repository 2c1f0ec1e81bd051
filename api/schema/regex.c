#include "api/schema/chars.h"
#include "api/schema/regex_impl.h"
#include <stdio.h>

static uint32_t parse_choices(struct regex_parser *p);

static void parse_flags(struct regex_parser *p)
{
    for (; regex_more(p) && regex_peek(p) != ')'; p->at++) {
        p->fold = p->fold || regex_peek(p) == 'i';
        p->dot_all = p->dot_all || regex_peek(p) == 's';
        if (regex_peek(p) != 'i' && regex_peek(p) != 's') regex_fail(p, "of flags, (?i) and (?s) are supported");
    }
}

static uint32_t parse_group(struct regex_parser *p)
{
    if (regex_take(p, "?P<") || (p->n - p->at > 2 && memcmp(p->s + p->at, "?<", 2) == 0 &&
                                 !strchr("=!", p->s[p->at + 2]) && regex_take(p, "?<"))) {
        while (regex_more(p) && regex_peek(p) != '>') p->at++;
        if (!regex_take(p, ">")) return regex_fail(p, "'>' is missing");
    } else if (regex_take(p, "?:")) {
        /* nothing: no group is ever captured */
    } else if (regex_take(p, "?=") || regex_take(p, "?!")) {
        return regex_fail(p, "a look-ahead is supported at the beginning alone");
    } else if (regex_take(p, "?<")) {
        return regex_fail(p, "look-behind is not supported");
    } else if (regex_take(p, "?")) {
        parse_flags(p);
        if (!regex_take(p, ")")) return regex_fail(p, "')' is missing");
        return RX_EMPTY;
    }
    if (++p->depth > REGEX_DEPTH_MAX) return regex_fail(p, "groups are nested deeper than %d", REGEX_DEPTH_MAX);
    bool     fold = p->fold, dot_all = p->dot_all;
    uint32_t r = parse_choices(p);
    p->fold = fold;
    p->dot_all = dot_all;
    p->depth--;
    if (!regex_take(p, ")")) return regex_fail(p, "')' is missing");
    return r;
}

static uint32_t parse_atom(struct regex_parser *p) { return regex_take(p, "(") ? parse_group(p) : regex_char(p); }

static bool take_number(struct regex_parser *p, uint32_t *v)
{
    size_t from = p->at;
    *v = 0;
    for (; regex_peek(p) >= '0' && regex_peek(p) <= '9'; p->at++)
        if (*v <= REGEX_REPEAT_MAX) *v = *v * 10 + (uint32_t)(regex_peek(p) - '0');
    return p->at > from;
}

/* {m}, {m,}, {m,n}; what is none of them stands for itself. */
static bool take_counts(struct regex_parser *p, uint32_t *min, uint32_t *max)
{
    size_t from = p->at;
    if (!regex_take(p, "{")) return false;
    if (take_number(p, min)) {
        *max = *min;
        if (regex_take(p, ",") && !take_number(p, max)) *max = RX_MANY;
        if (regex_take(p, "}")) return true;
    }
    p->at = from;
    return false;
}

static uint32_t parse_repeated(struct regex_parser *p)
{
    uint32_t r = parse_atom(p);
    while (regex_more(p)) {
        uint32_t min, max = RX_MANY;
        if (regex_take(p, "?")) {
            min = 0;
            max = 1;
        } else if (regex_take(p, "*")) {
            min = 0;
        } else if (regex_take(p, "+")) {
            min = 1;
        } else if (!take_counts(p, &min, &max)) {
            break;
        }
        if (min > REGEX_REPEAT_MAX || (max != RX_MANY && max > REGEX_REPEAT_MAX))
            return regex_fail(p, "a repetition of more than %d", REGEX_REPEAT_MAX);
        if (min > max) return regex_fail(p, "a repetition from more to less");
        regex_take(p, "?"); /* lazy: the same texts */
        r = rx_repeat(p->x, r, min, max);
    }
    return r;
}

static bool at_end_of_choice(const struct regex_parser *p)
{
    return !regex_more(p) || regex_peek(p) == '|' || regex_peek(p) == ')';
}

/* Atoms one after the other. to_dollar: a '$' at the end of the alternative is left to the caller. */
static uint32_t parse_row(struct regex_parser *p, bool to_dollar)
{
    uint32_t part[64], n = 0, r = RX_EMPTY;
    while (!at_end_of_choice(p)) {
        bool last = p->at + 1 == p->n || p->s[p->at + 1] == '|' || p->s[p->at + 1] == ')';
        if (to_dollar && regex_peek(p) == '$' && last) break;
        if (n < 64) {
            part[n++] = parse_repeated(p);
            continue;
        }
        r = rx_cat(p->x, r, parse_row(p, to_dollar)); /* what is left, nested to the right */
    }
    while (n-- > 0) r = rx_cat(p->x, part[n], r);
    return r;
}

/* Alternatives, in groups: each union that is made looks at all that are in it. */
static uint32_t parse_any(struct regex_parser *p, uint32_t (*parse_one)(struct regex_parser *p))
{
    enum { GROUP = 64 };
    uint32_t one[GROUP], n = 0;
    do {
        if (n == GROUP) {
            one[0] = rx_or(p->x, one, n);
            n = 1;
        }
        one[n++] = parse_one(p);
    } while (regex_take(p, "|"));
    return rx_or(p->x, one, n);
}

static uint32_t parse_inner(struct regex_parser *p) { return parse_row(p, false); }
static uint32_t parse_choices(struct regex_parser *p) { return parse_any(p, parse_inner); }

/* One alternative of the whole: look-aheads at its beginning, anchors at its ends. */
static uint32_t parse_outermost(struct regex_parser *p)
{
    uint32_t any = rx_repeat(p->x, chars_any(p->x, p->form.json), 0, RX_MANY), condition = RX_ALL;
    bool     anchored = regex_take(p, "^") || !p->form.search;
    while (anchored && p->n - p->at > 2 && (!memcmp(p->s + p->at, "(?=", 3) || !memcmp(p->s + p->at, "(?!", 3))) {
        bool inverse = p->s[p->at + 2] == '!', to_end;
        p->at += 3;
        uint32_t r = parse_row(p, true);
        to_end = regex_take(p, "$");
        if (!regex_take(p, ")"))
            return regex_fail(p, "a look-ahead of one alternative, without '$' inside, is supported");
        if (!to_end) r = rx_cat(p->x, r, any);
        condition = rx_and2(p->x, condition, inverse ? rx_not(p->x, r) : r);
    }
    uint32_t r = parse_row(p, true);
    if (!regex_take(p, "$") && p->form.search) r = rx_cat(p->x, r, any);
    if (!anchored) r = rx_cat(p->x, any, r);
    return rx_and2(p->x, r, condition);
}

enum status regex_rx(struct rx *x, const char *s, size_t n, struct regex_form form, uint32_t *rx_out,
                     char err[REGEX_ERR])
{
    struct regex_parser p = { .x = x, .s = s, .n = n, .form = form, .err = err };
    if (n > REGEX_BYTES_MAX) {
        regex_fail(&p, "%zu bytes, allowed are %d", n, REGEX_BYTES_MAX);
        return ST_INVALID;
    }
    uint32_t r = parse_any(&p, parse_outermost);
    if (regex_more(&p)) regex_fail(&p, "')' without '('");
    if (p.failed) return ST_INVALID;
    *rx_out = r;
    return ST_OK;
}

enum status regex_is_blank(const char *s, size_t n, char err[REGEX_ERR])
{
    const struct rx_limits  limits = { .node_max = 10000, .fuel = 100000, .depth_max = 500 };
    const struct regex_form whole = { .search = false };
    struct rx              *x = rx_create(&limits);
    struct rx_class         blank = { { 0 } };
    uint8_t                 kind[256];
    uint32_t                r = RX_NONE;
    if (!x) return ST_NOMEM;
    enum status st = regex_rx(x, s, n, whole, &r, err);
    for (const char *c = " \t\r\n"; *c; c++) rx_class_add(&blank, (unsigned char)*c, (unsigned char)*c);
    uint32_t other = rx_and2(x, r, rx_not(x, rx_repeat(x, rx_of_class(x, &blank), 0, RX_MANY)));
    rx_kinds(x, kind);
    bool good = !st && r != RX_NONE && rx_is_void(x, other);
    if (rx_status(x) == ST_TOO_LARGE) snprintf(err, REGEX_ERR, "it is too large");
    if (!st && !good && !rx_status(x)) snprintf(err, REGEX_ERR, "it matches more than blanks, tabs and line breaks");
    if (rx_status(x) == ST_NOMEM)
        st = ST_NOMEM;
    else if (!good || rx_status(x))
        st = ST_INVALID;
    rx_free(x);
    return st;
}
