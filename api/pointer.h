/* pointer: where in a client's JSON something is, as an RFC 6901 pointer that grows and shrinks with the walk.
 * "~" is written "~0" and "/" is written "~1", so that a member with a slash in its name reads as one step. A pointer
 * that gets too long ends with "/..." from there on.   Thread: any, one per pointer. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { POINTER_BYTES = 240 };

struct pointer {
    char text[POINTER_BYTES]; /* "" is the whole document */
    bool cut;                 /* its end is "/..." */
};

/* Adds a step: the member of this name; the element of this index. Returns what pointer_leave takes it back with. */
size_t pointer_key(struct pointer *p, const char *key);
size_t pointer_index(struct pointer *p, size_t index);
void   pointer_leave(struct pointer *p, size_t was);
