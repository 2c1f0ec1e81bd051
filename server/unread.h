/* unread: the bytes that connections hold because their clients do not read: answers, and the requests that wait behind them.
 * Thread: the connection's io thread.
 *
 * There are two budgets, a small one for what anyone may ask and a larger one for requests that were let in to the model. Each io thread
 * has its share of both. When one is used up, the connection of it that has been still for longest is reset, until it is not: whoever
 * reads, however slowly, outlives whoever does not read at all. */
#pragma once
#include "base/list.h"
#include <stdint.h>

struct conn;
struct io;

enum unread_class { UNREAD_OPEN, UNREAD_LET_IN, UNREAD_CLASSES };
struct unread {
    struct list      conns; /* the one that has been still for longest first */
    _Atomic uint64_t bytes; /* written by its io thread */
    uint64_t         bytes_max;
};

void unread_init(struct io *io, uint64_t memory_bytes, uint32_t n_io);
void unread_note(struct conn *c);   /* after a write or a read: what it holds now */
void unread_forget(struct conn *c); /* it is freed */
/* reset: ends a connection, and calls unread_forget for it. Not from within the event of a connection. */
void unread_relieve(struct io *io, void (*reset)(struct conn *c));
