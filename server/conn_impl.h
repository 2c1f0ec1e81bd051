/* conn_impl: functions that conn.c (input and timeouts) and conn_out.c (output) share.   Thread: the connection's io
 * thread. */
#pragma once
#include "server/conn.h"

enum { CONN_WATCH_US = 1000000 }; /* time between two checks of a pending answer */

void conn_enter(struct conn *c, enum conn_state st); /* changes the state and sets the timer */
void conn_resume(struct conn *c);                    /* handles the bytes in the input buffer; may free c */
void conn_drained(struct conn *c);                   /* call when the output fell to the low-water mark; may free c */
/* Restarts the stall clock if the socket has taken bytes since the last call. */
void conn_note_drain(struct conn *c, uint64_t now_us);
void conn_flush_now(struct conn *c);                    /* tries to write now, from within an event of c; may free c */
void conn_out(struct conn *c, const void *p, size_t n); /* appends n bytes to the output */
