/* hangup: clients that close, or half-close, while their connection is not read because enough of their requests wait already.
 * Thread: the connection's io thread.
 * hangup_open -> hangup_watch / hangup_forget -> hangup_close.
 *
 * An epoll of its own within the loop's: libevent reports EPOLLRDHUP only together with a read event, and reading is what is
 * suspended. A connection is watched while a request of it is answered and IN_MAX bytes wait behind that; otherwise reading tells. */
#pragma once
#include "base/status.h"

struct conn;
struct io;

/* gone: is told of a connection whose client has closed, and frees it. */
enum status hangup_open(struct io *io, void (*gone)(struct conn *c));
void        hangup_watch(struct conn *c);  /* once more changes nothing */
void        hangup_forget(struct conn *c); /* likewise */
void        hangup_close(struct io *io);
