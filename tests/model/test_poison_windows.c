/* The mixes of test_exact on models with a pool of their own for layers with a window, where all free blocks of both
 * pools are filled with NaN after every step: a row that sees a block that its window has passed, or that was given
 * away, gives another answer. */
#define EXACT_POISON 1
#define EXACT_MIXES  100
#include "test_exact.c"
