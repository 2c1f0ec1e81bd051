/* strikes: client addresses that sent wrong keys, so that guessing is slow.   Thread: any.
 * strikes_create -> strikes_slowed, strikes_wrong, strikes_right -> strikes_free.
 *
 * An address may be wrong `at_once` times; then it gets one more try a second, and between those is told to come back later, whatever key
 * it sends. Keys that were right from that address are remembered and pass meanwhile, so that one bad client behind a gateway does not
 * shut out those that worked. An IPv6 address counts by its /64. The table has a fixed size; the address that was seen least recently
 * makes room among the few that share its place. Nothing waits: a lock is held for one look. */
#pragma once
#include "base/status.h"
#include "server/peer.h"
#include <stdbool.h>
#include <stdint.h>

struct strikes;

/* at_once: 0: nobody is ever slowed. */
enum status strikes_create(uint32_t at_once, struct strikes **out);
/* tenant: of the key that was sent and is right; 0: it is wrong. True: the address has no try left, and that key is not known from it. */
bool     strikes_slowed(struct strikes *s, struct peer p, uint64_t tenant, uint64_t now_us);
uint32_t strikes_wrong(struct strikes *s, struct peer p, uint64_t now_us); /* counts a try; returns how many there were in all */
void     strikes_right(struct strikes *s, struct peer p, uint64_t tenant, uint64_t now_us);
void     strikes_free(struct strikes *s);
