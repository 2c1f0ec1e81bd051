/* tok_match: the pre-tokenizer patterns that models really use, as hand-written matchers instead of a regex engine.
 * Chosen by the pattern's exact text. Each is linear in the text and needs no stack.   Thread: any, no state. */
#pragma once
#include <stddef.h>

/* End of the match that begins at s[at]; at: none begins there. s[0..n) is valid UTF-8, at < n and at a character. */
typedef size_t (*tok_match_fn)(const char *s, size_t n, size_t at);

tok_match_fn tok_match_find(const char *pattern, size_t n);      /* NULL: not one of them */
size_t       tok_match_gpt2(const char *s, size_t n, size_t at); /* that of ByteLevel with use_regex */
