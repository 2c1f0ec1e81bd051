/* loop: the event loop of an io thread: accepts, takes messages of other threads, turns the wheel, stops.   Thread:
 * main calls. loop_create -> loop_accept (the first alone) -> loop_start -> loop_wake, whenever struct server has
 * changed -> loop_join -> loop_free. */
#pragma once
#include "server/io.h"

enum status loop_create(struct server *s, struct io *io, uint32_t index);
/* This one takes new connections of server.listen_fd, as server.accepting says. Before loop_start. */
enum status loop_accept(struct io *io);
enum status loop_start(struct io *io);
void        loop_wake(struct io *io);  /* any thread: look at server.state and the other atomics */
void        loop_join(struct io *io);  /* after SRV_STOPPING; what never started is not waited for */
void        loop_clear(struct io *io); /* jobs that came back after the thread was gone */
void        loop_free(struct io *io);  /* what loop_create has not reached is zero, but for hangup_fd -1 */
