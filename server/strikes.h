/* strikes: counts wrong keys per client address, and slows down guessing.   Thread: any.
 * strikes_create -> strikes_slowed, strikes_wrong, strikes_right -> strikes_free.
 *
 * An address may send `at_once` wrong keys. After that it has one try per second; its requests in between are refused,
 * whatever key they carry. Keys that were right from that address are remembered and still pass, so a bad client behind
 * a gateway does not shut out the others. An IPv6 address counts by its /64. The table has a fixed size: a new address
 * replaces the least recently seen of the few addresses that share its place. No function waits; the lock is held for
 * one look-up. */
#pragma once
#include "base/status.h"
#include "server/peer.h"
#include <stdbool.h>
#include <stdint.h>

struct strikes;

/* at_once 0: no address is ever slowed down. */
enum status strikes_create(uint32_t at_once, struct strikes **out);
/* tenant: the tenant of the request's key; 0: the key is wrong. True: the address has no try left, and the key is not
 * one of those remembered as right from it. */
bool strikes_slowed(struct strikes *s, struct peer p, uint64_t tenant, uint64_t now_us);
/* Counts a wrong key; returns the number of wrong keys from this address so far. */
uint32_t strikes_wrong(struct strikes *s, struct peer p, uint64_t now_us);
/* Remembers that the key of this tenant was right from this address. */
void strikes_right(struct strikes *s, struct peer p, uint64_t tenant, uint64_t now_us);
void strikes_free(struct strikes *s);
