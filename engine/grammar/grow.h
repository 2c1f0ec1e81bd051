/* grow: arrays that double when they are full.   Private to engine/grammar/. Thread: the array's. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Room for n more elements of so many bytes in *array, of which n_used are in use. false: no memory, nothing changed. */
static inline bool array_grow(void **array, uint32_t n_used, uint32_t n, uint32_t *n_room, size_t bytes)
{
    enum { FIRST = 64 };
    if (n_used + n <= *n_room) return true;
    uint32_t want = *n_room ? *n_room : FIRST;
    while (want < n_used + n) want *= 2;
    void *p = realloc(*array, want * bytes);
    if (!p) return false;
    *array = p;
    *n_room = want;
    return true;
}
