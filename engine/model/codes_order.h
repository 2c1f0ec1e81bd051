/* codes_order: quantised inputs whose groups are not in order (gptq's desc_act, compressed-tensors' actorder): index
 * [k] has each input's group. Thread: any, no state. */
#pragma once
#include <stdint.h>

enum codes_order {
    CODES_PLAIN,  /* groups follow one another as without an index */
    CODES_SORTED, /* every group has its full number of inputs: sorted by group they are such codes */
    CODES_UNEVEN, /* other numbers of inputs in a group, or groups that cannot be */
};
/* index: unaligned 32-bit numbers of k inputs; group: inputs that share a scale, 0: all; from_out [k], or NULL: which
 * input comes at each place of CODES_SORTED, inputs of one group in their own order. An index that holds -1 is one that
 * was never made. */
enum codes_order codes_order(const unsigned char *index, uint32_t k, uint32_t group, uint32_t *from_out);
