/* conn_impl: what conn.c (bytes in, time) and conn_out.c (bytes out) share.   Thread: the connection's io thread. */
#pragma once
#include "server/conn.h"

enum { CONN_WATCH_US = 1000000 }; /* how often a pending answer is looked at */

void conn_enter(struct conn *c, enum conn_state st); /* and sets its timer */
void conn_resume(struct conn *c);                    /* looks at what waits in the input */
void conn_drained(struct conn *c);                   /* the socket took enough of the output; may free c */
void conn_note_drain(struct conn *c,
                     uint64_t     now_us); /* what the socket took since the last look restarts the stall clock */
void conn_flush_now(struct conn *c);   /* a write is tried within the event of c; may free it */
void conn_out(struct conn *c, const void *p, size_t n);
