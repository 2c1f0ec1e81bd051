/* ewma: a running average of whole numbers in which every new value weighs an eighth.   Thread: any, no state. */
#pragma once
#include <stdint.h>

/* The average after v; old 0: there was no value before. Shares are rounded down one by one. An average that is not 0
 * never becomes 0. */
static inline uint64_t ewma_u64(uint64_t old, uint64_t v) { return old ? old - old / 8 + v / 8 : v; }
