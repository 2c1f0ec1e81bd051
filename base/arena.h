/* arena: a bump allocator that is freed as a whole. init -> alloc* -> reset or free.   Thread: one owner at a time.
 * bytes_max bounds the memory that an arena takes from malloc. Over the bound alloc returns NULL, and the caller fails
 * its request. */
#pragma once
#include <stddef.h>

struct arena_chunk;
struct arena {
    struct arena_chunk *head;
    size_t              bytes, bytes_max; /* taken from malloc so far, and the most it may take */
};

/* Takes no memory yet. bytes_max: the most that it may take from malloc. */
void  arena_init(struct arena *a, size_t bytes_max);
void *arena_alloc(struct arena *a, size_t bytes);              /* 16-byte aligned, NOT zeroed; NULL over the bound */
void *arena_calloc(struct arena *a, size_t n, size_t size);    /* zeroed; overflow-checked                        */
char *arena_strdup(struct arena *a, const char *s);            /* NULL when s is NULL                             */
char *arena_strndup(struct arena *a, const char *s, size_t n); /* always NUL-terminated                        */
void  arena_reset(struct arena *a);                            /* keeps the first chunk */
/* Frees all that was allocated; the arena may be used again, with the same bound. */
void arena_free(struct arena *a);
