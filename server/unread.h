/* unread: bounds the bytes that connections hold because their clients do not read: answers, and the requests behind
 * them. Thread: the connection's io thread.
 *
 * There are two budgets: a small one for open routes, and a larger one for the model's routes. Each io thread has its
 * share of both. While a budget is used up, the connection that has been still for longest is reset. So a client that
 * reads, however slowly, outlives a client that does not read. */
#pragma once
#include "base/list.h"
#include <stdint.h>

struct conn;
struct io;

enum unread_class { UNREAD_OPEN, UNREAD_LET_IN, UNREAD_CLASSES };
struct unread {
    struct list      conns;     /* ordered by time without progress, the longest first */
    _Atomic uint64_t bytes;     /* written by its io thread */
    _Atomic uint64_t bytes_max; /* set by unread_init; a test may lower it while the thread runs */
};

/* Sets the bounds of one of n_io io threads: parts of memory_bytes, the memory that this process may use. */
void unread_init(struct io *io, uint64_t memory_bytes, uint32_t n_io);
void unread_note(struct conn *c);   /* after a write or a read: updates the connection's bytes */
void unread_forget(struct conn *c); /* call it when the connection is freed */
/* reset: ends a connection, and calls unread_forget for it. Not from within the event of a connection. */
void unread_relieve(struct io *io, void (*reset)(struct conn *c));
