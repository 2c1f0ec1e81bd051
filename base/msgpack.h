/* msgpack: writes values in MessagePack's form (msgpack.org) into memory of the caller. Each
 * value takes the shortest form.   Thread: any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* at: where the next byte goes. full: a value did not fit; nothing more is written then. */
struct msgpack {
    unsigned char *at, *end;
    bool           full;
};

/* Append one value. What does not fit sets m->full, and nothing is written from there on: */
void msgpack_nil(struct msgpack *m);
void msgpack_uint(struct msgpack *m, uint64_t v);
void msgpack_double(struct msgpack *m, double v);
void msgpack_text(struct msgpack *m, const char *s); /* UTF-8 */
void msgpack_bytes(struct msgpack *m, const void *p, uint32_t n);
void msgpack_array(struct msgpack *m, uint32_t n); /* n values follow */
void msgpack_map(struct msgpack *m, uint32_t n);   /* n pairs of values follow */
