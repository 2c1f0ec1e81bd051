/* config_translate: an environment variable of a container image -> the words of a command line, by the rules of AWS's
 * vLLM image.   Thread: main.
 * The prefix goes away, the rest is an option's name in small letters with dashes. "true" and nothing at all are the
 * bare option, "false" leaves it out. A JSON array is the option with one word for each element; an empty one leaves it
 * out. Objects with blanks between are one word each. Anything else is one word. */
#pragma once
#include "base/arena.h"
#include <stddef.h>

enum { TRANSLATE_WORDS_MAX = 64 };

/* name: what follows the prefix, n bytes. word_out[0] is the option with its dashes. Returns the number of words; 0: the
 * option is left out; -1: too many words, or out of memory. Words lie in the arena. */
int config_translate(struct arena *a, const char *name, size_t n, const char *value,
                     const char *word_out[TRANSLATE_WORDS_MAX]);
