/* batch_run: reads the lines of a batch, asks the server for each, and writes the answers, until the input ends or a
 * signal comes. Lines are asked for in their order; answers are written as they come.   Thread: main, except
 * batch_job_answer.
 *
 * Bounded: at most lines_max lines are with the server, and the bytes of all of them stay below bytes_max (a single
 * longer one goes alone). What the server refuses because too much waits (429, 503) is asked again once others have
 * been answered; the refusal of a line that was alone is its answer. */
#pragma once
#include "base/list.h"
#include "server/cmd/batch_book.h"
#include "server/cmd/batch_read.h"
#include "server/inner.h"
#include "server/server.h"

struct batch_job; /* a line; batch_run.c */

struct batch_run {
    struct server     *srv;
    struct batch_book *book;
    struct batch_read *in;
    struct ring        answers; /* of io threads: struct batch_job */
    struct list        later;   /* refused, to be asked again */
    struct list        flying;
    struct batch_job  *lone; /* one that was refused and is now asked with nothing beside it; NULL: none */
    bool (*idle)(void *ctx); /* the engine has no request, canceled ones included; set by the caller */
    void      *idle_ctx;
    uint32_t   lines_max, n_flying, n_later;
    uint64_t   bytes_max, bytes; /* bytes: of lines that are flying or later */
    uint32_t   turn;             /* io thread of the next line */
    bool       ended;            /* the input */
    bool       more;             /* the last turn ended before it had read what it could */
    bool       stops, cut;       /* stops: nothing new is asked; cut: nothing more is waited for */
    int        code;             /* of the first failure; 0: none */
    char       why[700];         /* one line, with code */
    uint64_t   n_good, n_failed; /* lines that were answered by this start */
    struct buf text;             /* scratch: a line of output */
};

/* All of them stay the caller's and must outlive the run. lines_max: with the server at one time. ST_NOMEM. */
enum status batch_run_init(struct batch_run *r, struct server *srv, struct batch_book *book, struct batch_read *in,
                           uint32_t lines_max);
/* Asks for lines while there is room, and writes what has been answered. Never waits. */
void batch_run_turn(struct batch_run *r);
/* True: there is nothing more to do, or r->code is set. */
bool batch_run_over(const struct batch_run *r);
/* True: there is room for a line, and the input may have one. */
bool batch_run_wants(const struct batch_run *r);
/* Waits for answers, fd (-1: none) or the time. */
void batch_run_wait(struct batch_run *r, int fd, int64_t timeout_us);
void batch_run_free(struct batch_run *r); /* after server_stop */
