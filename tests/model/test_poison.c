/* The talks of test_tiers on a device whose free blocks are filled with NaN after every step: what reads a block that
 * it does not hold (a stale page table, a copy from a block that was given away, the end of a block that was not
 * written) gives another answer. */
#define TIERS_POISON   1
#define TIERS_REQUESTS 700
#define TIERS_TEST     F3_freed_blocks_are_poisoned_and_no_answer_changes
#include "test_tiers.c"
