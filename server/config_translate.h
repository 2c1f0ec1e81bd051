/* config_translate: turns an environment variable of a container image into words of a command line, by the rules of
 * AWS's vLLM image.   Thread: main.
 * The name without its prefix, in small letters and with dashes for underscores, is the name of the option. The values
 * "true" and "" give the option alone; "false" and an empty JSON array leave the option out. A JSON array gives one
 * word for each element, and JSON objects with blanks between them one word each, except for four options whose value
 * is JSON itself. Any other value is one word. */
#pragma once
#include "base/arena.h"
#include <stddef.h>

enum { TRANSLATE_WORDS_MAX = 64 };

/* name: n bytes, without the prefix. word_out[0] is the option with its dashes. Returns the number of words; 0: the
 * option is left out; -1: too many words, or out of memory. The words lie in the arena. */
int config_translate(struct arena *a, const char *name, size_t n, const char *value,
                     const char *word_out[TRANSLATE_WORDS_MAX]);
