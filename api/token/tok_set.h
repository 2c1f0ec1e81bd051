/* tok_set: a set of code points in a pattern: sorted ranges that do not touch.
 * {0} -> add* -> tok_set_sort -> the functions below it -> free.   Thread: one owner. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOK_CODE_MAX = 0x10ffff };
struct tok_range {
    uint32_t from, to; /* both belong to the range */
};
struct tok_set {
    struct tok_range *range;
    uint32_t          n, cap;
    bool              failed; /* out of memory: the set is not complete */
};

/* The set is empty then, and may be used again. */
void tok_set_free(struct tok_set *s);
/* Adds the code points from .. to, both included; all of another set. Without memory: s->failed. */
void tok_set_add(struct tok_set *s, uint32_t from, uint32_t to);
void tok_set_add_set(struct tok_set *s, const struct tok_set *other);
/* Adds a general category, script or property of Oniguruma. Case, spaces, hyphens and underscores of its name do not
 * count. False: no such name. */
bool tok_set_add_property(struct tok_set *s, const char *name, size_t n);
bool tok_set_add_posix(struct tok_set *s, const char *name, size_t n); /* "alpha" of [[:alpha:]] */
void tok_set_add_escape(struct tok_set *s, char letter);               /* 'w', 's', 'd' or 'h' */

/* Adds the word characters as Oniguruma has them inside a class: without six numbers of Latin-1 (superscripts and
 * fractions), which \w outside a class includes. */
void tok_set_add_class_word(struct tok_set *s);
bool tok_set_is_word(const char *name, size_t n); /* is it the name "word"? */

void tok_set_sort(struct tok_set *s); /* call it after the last add and before the functions below */
/* All code points that are not in it; those that are in both sets. */
void tok_set_invert(struct tok_set *s);
void tok_set_intersect(struct tok_set *s, const struct tok_set *other);
/* By bisection. */
bool tok_set_has(const struct tok_set *s, uint32_t cp);
void tok_set_fold(struct tok_set *s); /* adds the code points that differ from a member in case alone; sorts */
