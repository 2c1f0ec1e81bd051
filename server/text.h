/* text: a few threads for what would hold up an io thread: parsing, templates and tokenizers on large bodies.
 * text_submit -> run (a text thread) -> done (back on the job's io thread).   Thread: as said. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct io;
struct text_pool;

/* Embedded in what it works for. run must not touch anything of the io thread. */
struct text_job {
    struct io *io;
    void (*run)(struct text_job *j);
    void (*done)(struct text_job *j);
};
enum { TEXT_INLINE_MAX = 16 << 10 }; /* smaller bodies are done on the io thread: the hand-off would cost more */

enum status text_create(uint32_t n_thread, uint32_t queue_max, struct text_pool **p_out);
bool        text_submit(struct text_pool *p, struct text_job *j); /* false: the queues are full (429) */
/* Joins; jobs that wait are still run, and handed to their io thread's inbox. */
void text_stop(struct text_pool *p);
void text_free(struct text_pool *p);
