/* value_set: JSON values of a schema, each once, found without looking at all of them. It borrows the values.
 *   init -> add, has, in any order -> free
 * Thread: one at a time. */
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct value_set {
    const json_t **slot; /* [room] by hash; NULL: free */
    uint64_t      *hash; /* [room] */
    size_t         n, room;
    uint64_t       seed;
    bool           failed; /* no memory: what it says is worth nothing */
};

/* An empty set; what a set holds besides the values goes. */
void value_set_init(struct value_set *s);
void value_set_free(struct value_set *s);
/* Adds a value, which must outlive the set; false: it was there before, or s->failed. value_set_has: is it there?
 * Values are compared by schema_equal. */
bool value_set_add(struct value_set *s, const json_t *v);
bool value_set_has(const struct value_set *s, const json_t *v);
