/* memory_source: a model folder that lies in memory, for tests of what reads one. */
#pragma once
#include "engine/model/source.h"
#include "test.h"

enum { MEMORY_FILES_MAX = 8 };
struct memory_source {
    struct source       src;
    struct source_embed file[MEMORY_FILES_MAX];
    unsigned char      *owned[MEMORY_FILES_MAX];
};

/* The bytes are copied to a block of exactly their size, so that a read past the end is seen by the sanitizers. */
static inline void memory_add(struct memory_source *m, const char *name, const void *data, size_t n)
{
    uint32_t i = m->src.n_embed++;
    assert_in_range(i, 0, MEMORY_FILES_MAX - 1);
    m->owned[i] = malloc(n ? n : 1);
    assert_non_null(m->owned[i]);
    if (n) memcpy(m->owned[i], data, n);
    m->file[i] = (struct source_embed){ name, m->owned[i], n };
    m->src.embed = m->file;
}

static inline void memory_add_text(struct memory_source *m, const char *name, const char *text)
{
    memory_add(m, name, text, strlen(text));
}

/* A safetensors file: the header's length, the header, n_data bytes 0, 1, 2, ... */
static inline void memory_add_safetensors(struct memory_source *m, const char *name, const char *header, size_t n_data)
{
    size_t         n = strlen(header);
    unsigned char *b = malloc(8 + n + n_data);
    assert_non_null(b);
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(b + 8, header, n);
    for (size_t i = 0; i < n_data; i++) b[8 + n + i] = (unsigned char)i;
    memory_add(m, name, b, 8 + n + n_data);
    free(b);
}

static inline void memory_free(struct memory_source *m)
{
    for (uint32_t i = 0; i < m->src.n_embed; i++) free(m->owned[i]);
    *m = (struct memory_source){ .src.n_embed = 0 };
}
