#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_text.h"
#include <string.h>

/* The tests behind "is". */

#define TEST(name, expr)                                                                                 \
    static bool name(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out) \
    {                                                                                                    \
        (void)e, (void)a;                                                                                \
        return *out = tv_bool(expr), true;                                                               \
    }
TEST(t_defined, v->kind != TV_UNDEF)
TEST(t_undefined, v->kind == TV_UNDEF)
TEST(t_none, v->kind == TV_NONE)
TEST(t_true, v->kind == TV_BOOL && v->u.b)
TEST(t_false, v->kind == TV_BOOL && !v->u.b)
TEST(t_boolean, v->kind == TV_BOOL)
TEST(t_integer, v->kind == TV_INT || v->kind == TV_BIG)
TEST(t_float, v->kind == TV_FLOAT)
TEST(t_number, v->kind == TV_INT || v->kind == TV_BIG || v->kind == TV_FLOAT || v->kind == TV_BOOL)
TEST(t_string, v->kind == TV_STR)
TEST(t_mapping, v->kind == TV_DICT)
TEST(t_iterable,
     v->kind == TV_STR || v->kind == TV_SEQ || v->kind == TV_DICT || v->kind == TV_UNDEF || v->kind == TV_LOOP)
TEST(t_sequence, v->kind == TV_STR || v->kind == TV_DICT || v->kind == TV_UNDEF ||
                     (v->kind == TV_SEQ && v->u.seq->type <= SEQ_RANGE))
TEST(t_callable, v->kind == TV_MACRO || v->kind == TV_FUNC || v->kind == TV_METHOD || v->kind == TV_UNDEF ||
                     v->kind == TV_LOOP || v->kind == TV_JOINER || v->kind == TV_BLOCK)
TEST(t_sameas, v->kind == a->pos[0].kind && (v->kind == TV_NONE || v->kind == TV_UNDEF ||
                                             (v->kind == TV_BOOL ? v->u.b == a->pos[0].u.b : v->u.s == a->pos[0].u.s)))
TEST(t_escaped, v->kind == TV_STR && (v->flag & TV_SAFE))

static bool remainder_is(struct tmpl_eval *e, const struct tv *v, const struct tv *by, int64_t want, struct tv *out)
{
    struct tv r;
    if (!tmpl_binary(e, OP_MOD, v, by, &r)) return false;
    double x = 1;
    tv_number(&r, &x);
    *out = tv_bool(x == (double)want);
    return true;
}
static bool t_odd(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv two = tv_int(2);
    (void)a;
    return remainder_is(e, v, &two, 1, out);
}
static bool t_even(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv two = tv_int(2);
    (void)a;
    return remainder_is(e, v, &two, 0, out);
}
static bool t_divisibleby(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    return remainder_is(e, v, &a->pos[0], 0, out);
}

/* Some character has case, and none has the other. */
static bool case_is(struct tmpl_eval *e, const struct tv *v, bool upper, struct tv *out)
{
    struct tv s;
    bool      some = false, ok = true;
    if (!tv_to_str(e, v, &s)) return false;
    for (size_t i = 0; i < s.n && ok; i += text_step(s.u.s + i)) {
        uint32_t c = text_cp(s.u.s + i);
        some = some || (upper ? text_is_upper(c) : text_is_lower(c));
        ok = !(upper ? text_is_lower(c) : text_is_upper(c));
    }
    *out = tv_bool(ok && some);
    return tmpl_bytes(e, s.n);
}
static bool t_upper(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return case_is(e, v, true, out);
}
static bool t_lower(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)a;
    return case_is(e, v, false, out);
}

#define COMPARE(name, op)                                                                                \
    static bool name(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out) \
    {                                                                                                    \
        bool yes;                                                                                        \
        return tmpl_compare(e, (op), v, &a->pos[0], &yes) && (*out = tv_bool(yes), true);                \
    }
COMPARE(t_eq, OP_EQ)
COMPARE(t_ne, OP_NE)
COMPARE(t_lt, OP_LT)
COMPARE(t_le, OP_LE)
COMPARE(t_gt, OP_GT)
COMPARE(t_ge, OP_GE)
COMPARE(t_in, OP_IN)

static bool t_filter(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)e;
    (void)a;
    *out = tv_bool(v->kind == TV_STR && tmpl_find_filter(v->u.s, v->n));
    return true;
}
static bool t_test(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    (void)e;
    (void)a;
    *out = tv_bool(v->kind == TV_STR && tmpl_find(tmpl_tests, v->u.s, v->n));
    return true;
}

const struct tmpl_func tmpl_tests[] = {
    { "defined", t_defined, "", 0, 0 },
    { "undefined", t_undefined, "", 0, 0 },
    { "none", t_none, "", 0, 0 },
    { "true", t_true, "", 0, 0 },
    { "false", t_false, "", 0, 0 },
    { "boolean", t_boolean, "", 0, 0 },
    { "integer", t_integer, "", 0, 0 },
    { "float", t_float, "", 0, 0 },
    { "number", t_number, "", 0, 0 },
    { "string", t_string, "", 0, 0 },
    { "mapping", t_mapping, "", 0, 0 },
    { "iterable", t_iterable, "", 0, 0 },
    { "sequence", t_sequence, "", 0, 0 },
    { "callable", t_callable, "", 0, 0 },
    { "sameas", t_sameas, "other", 1, 0 },
    { "escaped", t_escaped, "", 0, 0 },
    { "odd", t_odd, "", 0, 0 },
    { "even", t_even, "", 0, 0 },
    { "divisibleby", t_divisibleby, "num", 1, 0 },
    { "upper", t_upper, "", 0, 0 },
    { "lower", t_lower, "", 0, 0 },
    { "eq", t_eq, "other", 1, 0 },
    { "equalto", t_eq, "other", 1, 0 },
    { "==", t_eq, "other", 1, 0 },
    { "ne", t_ne, "other", 1, 0 },
    { "!=", t_ne, "other", 1, 0 },
    { "lt", t_lt, "other", 1, 0 },
    { "lessthan", t_lt, "other", 1, 0 },
    { "<", t_lt, "other", 1, 0 },
    { "le", t_le, "other", 1, 0 },
    { "<=", t_le, "other", 1, 0 },
    { "gt", t_gt, "other", 1, 0 },
    { "greaterthan", t_gt, "other", 1, 0 },
    { ">", t_gt, "other", 1, 0 },
    { "ge", t_ge, "other", 1, 0 },
    { ">=", t_ge, "other", 1, 0 },
    { "in", t_in, "seq", 1, 0 },
    { "filter", t_filter, "", 0, 0 },
    { "test", t_test, "", 0, 0 },
    { NULL, NULL, NULL, 0, 0 },
};
