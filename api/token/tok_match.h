/* tok_match: the pre-tokenizer patterns that models really use, as hand-written matchers instead of a regex engine.
 * tok_match_find chooses a matcher by the pattern's exact text. Each matcher takes linear time and no recursion.
 * Thread: any, no state. */
#pragma once
#include <stddef.h>

/* Returns the end of the match that begins at s[at]; the value at: no match begins there. s[0..n) is valid UTF-8, and
 * at < n is where a character begins. */
typedef size_t (*tok_match_fn)(const char *s, size_t n, size_t at);

tok_match_fn tok_match_find(const char *pattern, size_t n);      /* NULL: no matcher for this pattern */
size_t       tok_match_gpt2(const char *s, size_t n, size_t at); /* pattern of ByteLevel with use_regex */
