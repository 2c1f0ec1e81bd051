#include "base/arena.h"
#include "base/asan.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_ALIGN = 16, ARENA_CHUNK_MIN = 4096, ARENA_CHUNK_MAX = 1 << 20 };

struct arena_chunk {
    struct arena_chunk *next;       /* older */
    size_t              size, used; /* of data */
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

void arena_init(struct arena *a, size_t bytes_max) { *a = (struct arena){ .bytes_max = bytes_max }; }

static struct arena_chunk *arena_grow(struct arena *a, size_t need)
{
    size_t left = a->bytes_max - a->bytes, head = sizeof(struct arena_chunk);
    if (need > left || left - need < head) return NULL;
    /* Doubling keeps the number of chunks small; near the bound a chunk of just the size asked for still fits. */
    size_t size = a->head ? a->head->size * 2 : ARENA_CHUNK_MIN - head;
    if (size > ARENA_CHUNK_MAX) size = ARENA_CHUNK_MAX;
    if (size < need || size > left - head) size = need;
    struct arena_chunk *c = malloc(head + size);
    if (!c) return NULL;
    c->size = size;
    c->used = 0;
    ASAN_POISON(c->data, size);
    a->bytes += head + size;
    c->next = a->head;
    a->head = c;
    return c;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX - ARENA_ALIGN) return NULL;
    size_t              need = bytes ? (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN : ARENA_ALIGN;
    struct arena_chunk *c = a->head;
    if ((!c || c->size - c->used < need) && !(c = arena_grow(a, need))) return NULL;
    void *p = c->data + c->used;
    c->used += need;
    ASAN_UNPOISON(p, bytes);
    return p;
}

void *arena_calloc(struct arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) return NULL;
    void *p = arena_alloc(a, bytes);
    return p ? memset(p, 0, bytes) : NULL;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    if (n == SIZE_MAX) return NULL;
    char *p = arena_alloc(a, n + 1);
    if (!p) return NULL;
    if (n) memcpy(p, s, n);
    p[n] = 0;
    return p;
}

char *arena_strdup(struct arena *a, const char *s) { return s ? arena_strndup(a, s, strlen(s)) : NULL; }

static void arena_drop(struct arena *a, struct arena_chunk *keep)
{
    while (a->head && a->head != keep) {
        struct arena_chunk *c = a->head;
        a->head = c->next;
        a->bytes -= sizeof *c + c->size;
        ASAN_UNPOISON(c->data, c->size);
        free(c);
    }
}

void arena_reset(struct arena *a)
{
    struct arena_chunk *first = a->head;
    while (first && first->next) first = first->next;
    arena_drop(a, first);
    if (first) {
        first->used = 0;
        ASAN_POISON(first->data, first->size);
    }
}

void arena_free(struct arena *a) { arena_drop(a, NULL); }
