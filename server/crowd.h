/* crowd: counts the connections of each client address, so that one address cannot hold all places.   Thread: any.
 * crowd_create -> crowd_enter / crowd_leave -> crowd_free. A NULL crowd counts nothing and accepts every connection.
 *
 * A count-min sketch (Cormode and Muthukrishnan 2005): two rows of counters under two hashes with a seed of this start;
 * the smaller of an address's two counters is its number, or slightly more if both collide. The size is fixed for any
 * number of addresses, and there is no lock. An IPv6 address counts by its /64, which is what one customer gets;
 * all connections without an address (unix sockets) count as one address. */
#pragma once
#include "base/status.h"
#include "server/peer.h"
#include <stdbool.h>
#include <stdint.h>

struct crowd;
/* connections_max: of one address. ST_NOMEM. */
enum status crowd_create(uint32_t connections_max, struct crowd **out);
/* Counts a connection. False: the address has connections_max already; nothing was counted. */
bool crowd_enter(struct crowd *c, struct peer p);
void crowd_leave(struct crowd *c, struct peer p);
void crowd_free(struct crowd *c);
