/* tok_charsmap: the normalizer Precompiled: a trie of texts and their replacements, made by sentencepiece (a double
 * array of darts-clone). new -> run* -> free.   Thread: const after new. */
#pragma once
#include "api/token/tok_norm.h"

struct tok_charsmap;

/* text: base64, from tokenizer.json. field: its place there, for the error line. ST_CONFIG: e has the reason. */
enum status tok_charsmap_new(struct tok_charsmap **map_out, struct tok_span text, const char *field,
                             const struct tok_err *e);
void        tok_charsmap_free(struct tok_charsmap *map);
/* Writes the result into w->norm[to] and points t at it; leaves t alone if no character changes. Linear time. */
enum status tok_charsmap_run(const struct tok_charsmap *map, struct tok_work *w, int to, struct tok_text *t);
