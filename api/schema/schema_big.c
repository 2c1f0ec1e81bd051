/* schema_big: whole numbers beyond 64 bits, which a tree has as floats (base/json_load.h), in the digits that the client
 * wrote. */
#include "api/schema/schema_impl.h"
#include <stdlib.h>
#include <string.h>

struct schema_big {
    double      near; /* as the tree has it */
    const char *text; /* borrowed from form.big */
};

static int by_value(const void *a, const void *b)
{
    const struct schema_big *x = a, *y = b;
    if (x->near != y->near) return x->near < y->near ? -1 : 1;
    return strcmp(x->text, y->text);
}

void schema_big_begin(struct schema *s)
{
    uint32_t n = (uint32_t)json_array_size(s->form.big);
    if (!n) return;
    struct schema_big *all = arena_alloc(&s->arena, n * sizeof *all);
    if (!all) {
        schema_fail(s, "", "no memory");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        all[i].text = json_string_value(json_array_get(s->form.big, i));
        all[i].near = strtod(all[i].text, NULL);
    }
    qsort(all, n, sizeof *all, by_value);
    s->big = all;
    s->n_big = n;
}

/* The first entry that is not below v. */
static uint32_t find(const struct schema *s, double v)
{
    uint32_t low = 0, high = s->n_big;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->big[mid].near < v)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

const char *schema_big_text(const struct schema *s, double v, bool *one_out)
{
    uint32_t at = find(s, v);
    *one_out = true;
    if (at == s->n_big || s->big[at].near != v) return NULL;
    for (uint32_t i = at + 1; i < s->n_big && s->big[i].near == v; i++)
        if (strcmp(s->big[i].text, s->big[at].text) != 0) *one_out = false;
    return s->big[at].text;
}
