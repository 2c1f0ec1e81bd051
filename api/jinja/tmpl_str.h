/* tmpl_str: the methods of str that chat templates call, and Python's % and format.   Thread: the renderer's. */
#pragma once
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_text.h"

extern tmpl_fn s_split, s_rsplit, s_strip, s_lstrip, s_rstrip, s_startswith, s_endswith, s_replace, s_find, s_rfind, s_index, s_count,
    s_upper, s_lower, s_title, s_capitalize, s_join, s_format, s_format_map, s_splitlines, s_isdigit, s_isalpha, s_isalnum, s_isspace,
    s_isupper, s_islower, s_removeprefix, s_removesuffix, s_zfill, s_ljust, s_rjust, s_partition, s_rpartition;

/* v without whitespace, or without the characters of chars when that is a string; ends: 1 left, 2 right, 3 both. */
bool           tmpl_strip(struct tmpl_eval *e, const struct tv *v, const struct tv *chars, int ends, struct tv *out);
extern tmpl_fn f_pprint;                                                 /* tmpl_pprint.c */
void           tmpl_put_escaped(struct buf *b, const char *s, size_t n); /* & < > " ' as entities */
bool tmpl_replace(struct tmpl_eval *e, const struct tv *v, const struct tv *from, const struct tv *to, int64_t count, struct tv *out);
bool tmpl_case(struct tmpl_eval *e, const struct tv *v, enum text_case how, struct tv *out);
