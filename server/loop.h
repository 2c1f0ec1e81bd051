/* loop: the event loop of an io thread: accepts connections, handles messages of other threads, runs the timers, stops.
 * loop_create -> loop_accept (for one io thread only) -> loop_start -> loop_wake (after each change of struct server)
 * -> loop_join -> loop_clear -> loop_free.   Thread: main calls; loop_wake: any. */
#pragma once
#include "server/io.h"

/* Prepares io thread number `index`: its lists, timers, rings and event base. The thread does not run yet. ST_NOMEM. */
enum status loop_create(struct server *s, struct io *io, uint32_t index);
/* This io thread accepts on server.listen_fd while server.accepting is true. Call it before loop_start. ST_NOMEM. */
enum status loop_accept(struct io *io);
enum status loop_start(struct io *io);
void        loop_wake(struct io *io);  /* any thread: makes the loop read server.state and the other atomics */
void        loop_join(struct io *io);  /* after SRV_STOPPING: waits for the thread, if it was started */
void        loop_clear(struct io *io); /* handles the messages that arrived after the thread had ended */
/* After a failed loop_create too: members that it did not set must be zero, and hangup_fd -1. */
void loop_free(struct io *io);
