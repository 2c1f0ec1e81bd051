#include "engine/model/codes_order.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static uint32_t index_at(const unsigned char *index, uint32_t i)
{
    uint32_t v;
    memcpy(&v, index + 4 * (size_t)i, sizeof v);
    return v;
}

enum codes_order codes_order(const unsigned char *index, uint32_t k, uint32_t group, uint32_t *from_out)
{
    uint32_t n_group = group ? k / group : 1;
    bool     plain = true, even = true;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t g = index_at(index, i);
        if (g == UINT32_MAX) return CODES_PLAIN;
        if (g >= n_group) return CODES_UNEVEN;
        plain = plain && g == (group ? i / group : 0);
    }
    if (plain) return CODES_PLAIN;
    uint32_t *n = calloc(n_group, sizeof *n); /* inputs seen of each group */
    if (!n) return CODES_UNEVEN;
    for (uint32_t i = 0; i < k && even; i++) {
        uint32_t g = index_at(index, i);
        even = n[g] < group;
        if (even && from_out) from_out[g * group + n[g]] = i;
        n[g]++;
    }
    free(n);
    return even ? CODES_SORTED : CODES_UNEVEN;
}
