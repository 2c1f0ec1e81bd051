/* guests: connections to node 0 that have not identified themselves yet. Each gets a random challenge and has GUEST_MS
 * to answer with a hello. Node 0 waits for all of them at once, so a silent stranger delays no node. With more than
 * GUESTS_MAX connections the longest silent one
 * is closed.   guests_init -> guests_next* -> guests_free.   Thread: one. */
#pragma once
#include "engine/wire.h"
#include "transfer/link.h"
#include <stdbool.h>

enum { GUESTS_MAX = 64, GUEST_MS = 5000 };

struct guest {
    int           fd; /* below 0: nobody */
    char          from[64];
    unsigned char nonce[WIRE_NONCE]; /* its challenge */
    uint64_t      until_us;
    uint32_t      n;                                   /* bytes of the frame so far */
    unsigned char frame[LINK_HEAD + WIRE_HELLO_BYTES]; /* the hello, as it came */
};
struct guests {
    int          listener; /* the caller's */
    struct guest guest[GUESTS_MAX];
};

/* No guests yet. listener: a listening socket, which stays the caller's. */
void guests_init(struct guests *g, int listener);
/* Within timeout_ms at most: lets newcomers in, sends away who is silent or says something else, and gives the next one
 * that has said a whole hello frame. True: *out is it, its fd is the caller's, and *bytes_out the size of the body
 * behind the head. */
bool guests_next(struct guests *g, uint32_t timeout_ms, struct guest *out, uint32_t *bytes_out);
void guests_free(struct guests *g); /* closes those that are left */
