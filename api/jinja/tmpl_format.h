/* tmpl_format: Python's format specs, for "%" and str.format alike.   Thread: the renderer's. */
#pragma once
#include "api/jinja/tmpl_eval.h"

enum { FORMAT_WIDTH_MAX = 100000, FORMAT_PRECISION_MAX = 1000 };
struct format_spec {
    struct tv fill;             /* one character; kind ABSENT: a blank */
    char      align;            /* '<', '>', '^', '=', or 0: what the type has */
    char      sign;             /* '+', ' ', or 0 */
    bool      alt;              /* '#' */
    bool      zero;             /* a 0 in front of the width */
    bool      no_minus_zero;    /* 'z' */
    char      group;            /* ',', '_', or 0 */
    char      type;             /* 's', 'd', ..; 0: none was given */
    int32_t   width, precision; /* precision -1: none */
};
/* The text behind ":" of a field. */
bool format_parse(struct tmpl_eval *e, const char *s, size_t n, struct format_spec *out);
/* Appends v to the output. */
bool format_value(struct tmpl_eval *e, const struct format_spec *f, const struct tv *v);
bool format_text(struct tmpl_eval *e, const struct format_spec *f, const char *s, size_t n); /* as a string */
bool format_whole(struct tmpl_eval *e, const struct format_spec *f, const struct tv *v, uint32_t min_digits);
bool format_double(struct tmpl_eval *e, const struct format_spec *f, double x);
