/* tmpl_str: the methods of str that chat templates call, and Python's % and format.   Thread: the renderer's. */
#pragma once
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_text.h"

extern tmpl_fn tmpl_str_split, tmpl_str_rsplit, tmpl_str_strip, tmpl_str_lstrip, tmpl_str_rstrip, tmpl_str_startswith,
    tmpl_str_endswith, tmpl_str_replace, tmpl_str_find, tmpl_str_rfind, tmpl_str_index, tmpl_str_count, tmpl_str_upper,
    tmpl_str_lower, tmpl_str_title, tmpl_str_capitalize, tmpl_str_join, tmpl_str_format, tmpl_str_format_map,
    tmpl_str_splitlines, tmpl_str_isdigit, tmpl_str_isalpha, tmpl_str_isalnum, tmpl_str_isspace, tmpl_str_isupper,
    tmpl_str_islower, tmpl_str_removeprefix, tmpl_str_removesuffix, tmpl_str_zfill, tmpl_str_ljust, tmpl_str_rjust,
    tmpl_str_partition, tmpl_str_rpartition;

/* *out is v without leading or trailing white space, or without those characters of chars if chars is a string. ends: 1
 * left, 2 right, 3 both. */
bool           tmpl_strip(struct tmpl_eval *e, const struct tv *v, const struct tv *chars, int ends, struct tv *out);
extern tmpl_fn tmpl_pprint;                                              /* tmpl_pprint.c */
void           tmpl_put_escaped(struct buf *b, const char *s, size_t n); /* appends s with & < > " ' as entities */
bool tmpl_replace(struct tmpl_eval *e, const struct tv *v, const struct tv *from, const struct tv *to, int64_t count,
                  struct tv *out);
bool tmpl_case(struct tmpl_eval *e, const struct tv *v, enum text_case how, struct tv *out);
