/* tmpl_format: Python's format specs, for "%" and for str.format.   Thread: the renderer's.
 * A result of false is an error, which tmpl_fail or tmpl_over has recorded. */
#pragma once
#include "api/jinja/tmpl_eval.h"

enum { FORMAT_WIDTH_MAX = 100000, FORMAT_PRECISION_MAX = 1000 };
struct format_spec {
    struct tv fill;             /* one character; TV_ABSENT: a blank */
    char      align;            /* '<', '>', '^', '=', or 0: the default of the type */
    char      sign;             /* '+', ' ', or 0 */
    bool      alt;              /* '#' */
    bool      zero;             /* the width begins with 0 */
    bool      no_minus_zero;    /* 'z' */
    char      group;            /* ',', '_', or 0 */
    char      type;             /* 's', 'd', ..; 0: not given */
    int32_t   width, precision; /* precision -1: not given */
};
/* s: the text after ":" in a field. */
bool format_parse(struct tmpl_eval *e, const char *s, size_t n, struct format_spec *out);
/* These append to the output. */
bool format_value(struct tmpl_eval *e, const struct format_spec *f, const struct tv *v);
bool format_text(struct tmpl_eval *e, const struct format_spec *f, const char *s, size_t n); /* s as a string */
bool format_whole(struct tmpl_eval *e, const struct format_spec *f, const struct tv *v, uint32_t min_digits);
bool format_double(struct tmpl_eval *e, const struct format_spec *f, double x);
