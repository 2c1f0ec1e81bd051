/* hangup: detects that a client closes or half-closes a connection whose reading is suspended because enough of its
 * requests wait. Thread: the connection's io thread.
 * hangup_open -> hangup_watch / hangup_forget -> hangup_close.
 *
 * It has an epoll of its own, which the loop's epoll contains, because libevent reports EPOLLRDHUP only together with a
 * read event, and reading is suspended. A connection is watched while one of its requests is answered and IN_MAX bytes
 * of input wait. At other times a read detects the close. */
#pragma once
#include "base/status.h"

struct conn;
struct io;

/* gone: called for each connection whose client has closed; it frees the connection. ST_IO, ST_NOMEM. */
enum status hangup_open(struct io *io, void (*gone)(struct conn *c));
void        hangup_watch(struct conn *c);  /* no effect if c is watched already */
void        hangup_forget(struct conn *c); /* no effect if c is not watched */
void        hangup_close(struct io *io);
