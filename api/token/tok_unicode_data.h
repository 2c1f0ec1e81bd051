/* tok_unicode_data: the tables of tok_unicode_data.c, which tools/make_unicode_tables.py writes. Only tok_unicode.c,
 * tok_decompose.c, tok_set.c and tok_onig.c read them; other files call the functions of these.   Thread: any,
 * const. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Runs: code point << 8 | value. The value applies to all code points before the next run. */
extern const uint32_t tok_trait_run[];  /* value: index into tok_trait (tok_unicode.h) */
extern const uint32_t tok_script_run[]; /* value: index into tok_script_name; 0: none */
extern const uint32_t tok_cut_run[];    /* value: script in the table of the pre-tokenizer UnicodeScripts; 0: any */
extern const uint32_t tok_joins_run[];  /* bits: 1: may join the character before it; 2: its NFC, alone, differs */
extern const uint32_t tok_mark_run[];   /* value: rank of its combining class, 0: no mark */
extern const size_t   n_tok_trait_run, n_tok_script_run, n_tok_cut_run, n_tok_joins_run, n_tok_mark_run;

/* Records, sorted: code point | n << 24, then the n code points that replace it. */
extern const uint32_t tok_canonical[], tok_compatible[], tok_lower[];
extern const size_t   n_tok_canonical, n_tok_compatible, n_tok_lower;

/* The same form, for the regex engine without regard to case. tok_fold: the n single code points that equal this one,
 * both ways; tok_fold_many: a sequence of n code points that equals it. */
extern const uint32_t tok_fold[], tok_fold_many[];
extern const size_t   n_tok_fold, n_tok_fold_many;

extern const uint32_t tok_compose[]; /* triples: first, second, their composition */
extern const size_t   n_tok_compose;

extern const uint64_t    tok_trait[];
extern const char *const tok_script_name[]; /* lower case, without separators; [0] is "" */
extern const size_t      n_tok_trait, n_tok_script_name;
