/* hangup: detects that a client closes or half-closes a connection whose reading is suspended because enough of its
 * requests wait. Thread: the connection's io thread.
 * hangup_open -> hangup_watch / hangup_forget -> hangup_close.
 *
 * It has an epoll of its own within the loop's, because libevent reports EPOLLRDHUP only together with a read event,
 * and reading is suspended. A connection is watched while one of its requests is answered and IN_MAX bytes wait behind
 * it. At other times a read finds out. */
#pragma once
#include "base/status.h"

struct conn;
struct io;

/* gone: called with a connection whose client has closed; it frees the connection. */
enum status hangup_open(struct io *io, void (*gone)(struct conn *c));
void        hangup_watch(struct conn *c);  /* once more changes nothing */
void        hangup_forget(struct conn *c); /* likewise */
void        hangup_close(struct io *io);
