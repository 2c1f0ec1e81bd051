/* tok_unicode_data: the tables of tok_unicode_data.c, as tools/make_unicode_tables.py writes them. For tok_unicode.c, tok_decompose.c and
 * tok_set.c alone; others ask those.   Thread: const. */
#pragma once
#include <stddef.h>
#include <stdint.h>

/* Runs: code point << 8 | value, which holds up to the next run. */
extern const uint32_t tok_trait_run[];  /* value: index into tok_trait (tok_unicode.h) */
extern const uint32_t tok_script_run[]; /* value: index into tok_script_name; 0: none */
extern const uint32_t tok_cut_run[];    /* value: script as the pre-tokenizer UnicodeScripts sees it; 0: any */
extern const uint32_t tok_joins_run[];  /* value: 1 joins what is before it, 2 NFC of it alone is something else */
extern const uint32_t tok_mark_run[];   /* value: rank of its combining class, 0: no mark */
extern const size_t   n_tok_trait_run, n_tok_script_run, n_tok_cut_run, n_tok_joins_run, n_tok_mark_run;

/* Records: code point | n << 24, and the n code points that it becomes; sorted. */
extern const uint32_t tok_canonical[], tok_compatible[], tok_lower[];
extern const size_t   n_tok_canonical, n_tok_compatible, n_tok_lower;

/* The same form: what the regex engine takes for one with cp but for its case; sequences that it takes for cp. */
extern const uint32_t tok_fold[], tok_fold_many[];
extern const size_t   n_tok_fold, n_tok_fold_many;

extern const uint32_t tok_compose[]; /* triples: first, second, what they compose to */
extern const size_t   n_tok_compose;

extern const uint64_t    tok_trait[];
extern const char *const tok_script_name[]; /* lower case, without separators; [0] is "" */
extern const size_t      n_tok_trait, n_tok_script_name;
