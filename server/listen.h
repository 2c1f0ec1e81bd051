/* listen: the address of the server: bound, or taken over from the process before.   Thread: main. */
#pragma once
#include "server/io.h"

/* Sets server.listen_fd, address and port. fd: a socket of the process before, or -1: one is bound. err: one line.
 * ST_IO: the address cannot be had (errno says why); ST_CONFIG: fd listens on another one. */
enum status listen_open(struct server *s, int fd, char *err, size_t err_bytes);
