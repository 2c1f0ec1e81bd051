/* listen: opens the listening socket: binds the address, or takes over the previous process's socket.
 * Thread: main. */
#pragma once
#include "server/io.h"

/* Sets server.listen_fd, address and port. fd: the previous process's socket; -1: binds a new one. ST_IO: the address
 * is not available, and errno says why if it could not be bound; ST_CONFIG: fd listens on another address. Both: err
 * has one line. */
enum status listen_open(struct server *s, int fd, char *err, size_t err_bytes);
