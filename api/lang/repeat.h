/* repeat: rules for "so many times" whose number grows with the logarithm of the count, not with the count.
 * Thread: as for struct gr_rules. */
#pragma once
#include "engine/grammar/grammar.h"

/* The symbol of min to max times `unit`; max may be RX_MANY. Every number of times has one derivation. */
uint32_t repeat_symbol(struct gr_rules *r, uint32_t unit, uint32_t min, uint32_t max);
