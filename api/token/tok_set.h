/* tok_set: a set of code points, as patterns are made of: sorted ranges that do not touch.
 * {0} -> add* -> tok_set_sort -> the rest -> free.   Thread: one owner. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOK_CODE_MAX = 0x10ffff };
struct tok_range {
    uint32_t from, to; /* both are in it */
};
struct tok_set {
    struct tok_range *range;
    uint32_t          n, cap;
    bool              failed; /* no memory: what it holds is not all */
};

void tok_set_free(struct tok_set *s);
void tok_set_add(struct tok_set *s, uint32_t from, uint32_t to);
void tok_set_add_set(struct tok_set *s, const struct tok_set *other);
/* A general category, script or property of Oniguruma by name, whatever its case, spaces, hyphens and underscores.
 * False: no such name. */
bool tok_set_add_property(struct tok_set *s, const char *name, size_t n);
bool tok_set_add_posix(struct tok_set *s, const char *name, size_t n); /* "alpha" of [[:alpha:]] */
void tok_set_add_escape(struct tok_set *s, char letter);               /* 'w', 's', 'd' or 'h' */

/* Inside of a class a word character is none of six numbers of Latin-1, which it is outside. */
void tok_set_add_class_word(struct tok_set *s);
bool tok_set_is_word(const char *name, size_t n); /* is it the name "word"? */

void tok_set_sort(struct tok_set *s); /* after adding, before what follows */
void tok_set_invert(struct tok_set *s);
void tok_set_intersect(struct tok_set *s, const struct tok_set *other);
bool tok_set_has(const struct tok_set *s, uint32_t cp);
void tok_set_fold(struct tok_set *s); /* adds what differs from its members in case alone; sorts */
